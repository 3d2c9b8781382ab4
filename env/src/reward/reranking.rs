//! Rewards of published rerankers, beside those of rankings: overlap with a reference order, and scores spread as the grades are.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use async_trait::async_trait;
use forage_contracts::environment::{Call, Outcome};
use forage_contracts::{Episode, SettingError, Task};
use serde::Deserialize;

use super::ranking::Judgments;
use super::{Make, Reward, RewardEntry, RewardError, UNIT, judgments};

/// Overlap with the order of the judgments.
pub(crate) const RBO: RewardEntry = RewardEntry {
    name: "rbo",
    about: "rankings: rank-biased overlap with the order of the judgments (settings: p = 1.0)",
    always: false,
    judges: Some(Outcome::Ranking),
    range: UNIT,
    schema: Some(|| schemars::schema_for!(Rbo).into()),
    make: Make::Configured(|making| {
        let rbo: Rbo = making.read()?;
        if !(rbo.p > 0.0 && rbo.p <= 1.0) {
            return Err(SettingError::range("p", rbo.p, "above 0 and at most 1"));
        }
        Ok(Box::new(rbo))
    }),
};

/// Scores against grades.
pub(crate) const SCORES: RewardEntry = RewardEntry {
    name: "score_distribution",
    about: "rankings by scores: 1 where the scores of each turn are spread as the grades of its passages are",
    always: false,
    judges: Some(Outcome::Ranking),
    range: UNIT,
    schema: None,
    make: Make::Plain(|_| Box::new(Scores)),
};

/// Rank-biased overlap (Webber, Moffat and Zobel 2010) of the ranking with the order of the judgments, part of the reward of
/// `ReasonRank` (arXiv 2508.07050): the mean over depths d of the share of the first d passages that both have, with weights
/// p^(d - 1).
///
/// The reference is the judged order: the relevant passages by grade, found or not, then the others. Passages of one grade are
/// taken in the order that the ranking gives them, which is assumed: a task that wants one order gives each passage a grade of its
/// own. The published code leaves p at 1, a plain mean.
#[derive(Clone, Copy, Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Rbo {
    /// Persistence: the weight of each depth against that before it, above 0 and at most 1, where all depths count alike.
    p: f64,
}

impl Default for Rbo {
    fn default() -> Self {
        Self { p: 1.0 }
    }
}

impl Rbo {
    fn of(self, ranking: &[String], judgments: &Judgments) -> f64 {
        let mut seen = BTreeSet::new();
        let distinct = ranking.iter().map(String::as_str);
        let found: Vec<&str> = distinct.filter(|id| seen.insert(*id)).collect();
        let mut reference: Vec<(Reverse<i32>, usize, &str)> = judgments
            .iter()
            .filter(|(_, grade)| **grade > 0)
            .map(|(id, grade)| {
                let rank = found.iter().position(|found| found == id);
                (Reverse(*grade), rank.unwrap_or(usize::MAX), id.as_str())
            })
            .collect();
        reference.sort_unstable();
        let depth = found.len().max(reference.len());
        let mut reference: Vec<&str> = reference.into_iter().map(|(.., id)| id).collect();
        let others = found.iter().filter(|id| !reference.contains(id));
        let others: Vec<&str> = others.copied().collect();
        reference.extend(others);
        let mut ours = BTreeSet::<&str>::new();
        let mut theirs = BTreeSet::<&str>::new();
        let (mut sum, mut weights, mut weight) = (0.0, 0.0, 1.0);
        for place in 0..depth {
            ours.extend(found.get(place));
            theirs.extend(reference.get(place));
            let shared = ours.intersection(&theirs).count();
            sum += weight * shared as f64 / (place + 1) as f64;
            weights += weight;
            weight *= self.p;
        }
        if weights > 0.0 { sum / weights } else { 0.0 }
    }
}

#[async_trait]
impl Reward for Rbo {
    fn name(&self) -> &'static str {
        RBO.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let judgments = judgments(RBO.name, task)?;
        let ranking = episode.ranking();
        Ok(ranking.map_or(0.0, |ranking| self.of(ranking, &judgments)) as f32)
    }
}

/// The highest score, which the highest grade of a task stands for.
const TOP: f64 = 10.0;

/// Group by group, 1 less the Wasserstein distance between the scores that a turn gives its passages and their grades on the same
/// scale, as a share of the scale; a passage without a score is as far off as can be. `GroupRank` (arXiv 2511.11653) rewards scores
/// that are distributed alike over its groups; the distance and the scale, 10 for the highest grade of the task, are assumed.
#[derive(Clone, Copy, Debug)]
struct Scores;

impl Scores {
    /// How far off the scores of a turn are, added up over its passages.
    fn cost(scores: &[Option<f64>], targets: &[f64]) -> f64 {
        let pairs = scores.iter().zip(targets);
        let scored = pairs.filter_map(|(score, target)| Some(((*score)?, *target)));
        let (mut given, mut wanted): (Vec<f64>, Vec<f64>) = scored.unzip();
        for side in [&mut given, &mut wanted] {
            side.sort_unstable_by(f64::total_cmp);
        }
        let missing = (scores.len() - given.len()) as f64;
        let moved = given.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
        moved.sum::<f64>() + TOP * missing
    }
}

/// What an environment records of scores: the first stage in the last call's payload, and scores by place of it, turn after turn.
fn recorded(call: &Call) -> Option<Vec<Option<f64>>> {
    Vec::deserialize(call.arguments.get("scores")?).ok()
}

#[async_trait]
impl Reward for Scores {
    fn name(&self) -> &'static str {
        SCORES.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let judgments = judgments(SCORES.name, task)?;
        if episode.ranking().is_none_or(<[String]>::is_empty) {
            return Ok(0.0);
        }
        let last = episode.calls().last();
        let baseline = last.and_then(|call| call.payload.get("baseline"));
        let baseline = baseline.and_then(|ids| Vec::<String>::deserialize(ids).ok());
        let baseline = baseline.unwrap_or_default();
        let groups: Vec<Vec<Option<f64>>> = episode.calls().filter_map(recorded).collect();
        if groups.is_empty() || groups.iter().map(Vec::len).sum::<usize>() != baseline.len() {
            let message = "the environment gives passages no scores; set form = \"groupwise\" or \"pointwise\" of the environment rerank";
            return Err(RewardError {
                name: SCORES.name.to_owned(),
                message: message.to_owned(),
            });
        }
        let top = judgments.values().copied().max().unwrap_or(0).max(1);
        let target = |id: &String| {
            let grade = judgments.get(id).copied().unwrap_or(0).max(0);
            TOP * f64::from(grade) / f64::from(top)
        };
        let targets: Vec<f64> = baseline.iter().map(target).collect();
        let (mut cost, mut first) = (0.0, 0);
        for scores in &groups {
            let next = first + scores.len();
            cost += Self::cost(scores, &targets[first..next]);
            first = next;
        }
        Ok((1.0 - cost / (TOP * targets.len() as f64)) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Fixture {
        overlaps: Vec<Overlap>,
        distances: Vec<Distance>,
    }

    #[derive(Deserialize)]
    struct Overlap {
        ranking: Vec<String>,
        judgments: Judgments,
        p: f64,
        rbo: f64,
    }

    #[derive(Deserialize)]
    struct Distance {
        scores: Vec<Option<f64>>,
        targets: Vec<f64>,
        cost: f64,
    }

    fn fixture() -> Fixture {
        let text = include_str!("../../tests/fixtures/reranking.json");
        serde_json::from_str(text).expect("a fixture")
    }

    #[test]
    fn overlaps_equal_those_of_python() {
        let overlaps = fixture().overlaps;
        assert!(overlaps.len() > 20);
        for case in overlaps {
            let found = Rbo { p: case.p }.of(&case.ranking, &case.judgments);
            assert!(
                (found - case.rbo).abs() < 1e-9,
                "{:?} {found} {}",
                case.ranking,
                case.rbo
            );
        }
    }

    #[test]
    fn distances_of_scores_equal_integrals_of_distribution_functions() {
        let distances = fixture().distances;
        assert!(distances.len() > 20);
        for case in distances {
            let found = Scores::cost(&case.scores, &case.targets);
            assert!(
                (found - case.cost).abs() < 1e-9,
                "{:?} {found} {}",
                case.scores,
                case.cost
            );
        }
    }
}

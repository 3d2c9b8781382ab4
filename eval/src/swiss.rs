//! Several policies in one order, over data sets that have no common scale.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use forage_contracts::Episode;
use forage_contracts::environment::Outcome;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::Serialize;

use crate::compare::{
    Asked, CompareError, Comparison, Values, adjust_several, check_same_questions,
};
use crate::measures::{QuestionKey, by_question, clusters, score, sources};
use crate::stats::{Bootstrap, below, mean};
use crate::summary::number;
use crate::text;

/// Contests that are simulated: the standard error of a mean of points is below 0.002 for each square root of a round.
const CONTESTS: usize = 100_000;

/// Policies after a simulated Swiss-system contest (Liu et al. 2025, "LLM Swiss Round", arXiv 2512.21010): in each round, one for each
/// data set, policies of equal standing meet, and the higher mean on the data set wins a point. It needs no weights between data sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standings {
    /// The measure that decides.
    pub measure: &'static str,
    /// The data set of each round, in the order of the rounds.
    pub rounds: Vec<String>,
    /// `[policy][round]`: means over the questions that every policy has a score on.
    pub scores: Vec<Vec<f64>>,
    /// `[policy]`: expected points, 1 a round at most.
    pub points: Vec<f64>,
    /// `[policy]`: the same where each round but the last eliminates one of those with the fewest points: who falls behind early, falls
    /// out.
    pub points_eliminating: Vec<f64>,
    /// Contests simulated for each.
    pub contests: usize,
    /// `[policy]` from the second on: each compared with the first. Tests in the measure are adjusted for the number of policies.
    #[serde(skip)]
    pub against_first: Vec<Comparison>,
}

impl Standings {
    /// Ranks policies by their episodes on the same questions, one set for each, and compares each with the first. The order of the rounds
    /// is that of the names of the data sets.
    ///
    /// # Errors
    /// [`CompareError`] when a set asks other questions than the first, no question of a data set was scored for every policy, none is
    /// graded by the measure, or the bootstrap's settings are out of range.
    pub fn of(sets: &[Vec<Episode>], bootstrap: Bootstrap) -> Result<Self, CompareError> {
        let asked: Vec<Asked<'_>> = sets.iter().map(by_question).collect();
        let (Some(first), Some(episodes)) = (asked.first(), sets.first()) else {
            return Err(CompareError::Empty);
        };
        for other in &asked[1..] {
            check_same_questions(first, other)?;
        }
        let measure = Outcome::of(episodes).measure();
        let values: Vec<Values> = asked
            .iter()
            .map(|asked| clusters(asked).remove(measure).unwrap_or_default())
            .collect();
        let mut questions: BTreeMap<String, Vec<QuestionKey>> = BTreeMap::new();
        for (key, source) in sources(first) {
            // What is not graded by the measure, such as questions without an accepted answer, is in no round.
            let lacks = |(asked, values): (&Asked<'_>, &Values)| {
                let mut episodes = asked.get(&key).into_iter().flatten();
                episodes.any(|episode| score(episode).is_some()) && !values.contains_key(&key)
            };
            if asked.iter().zip(&values).any(lacks) {
                continue;
            }
            let scored = questions.entry(source).or_default();
            if values.iter().all(|values| values.contains_key(&key)) {
                scored.push(key);
            }
        }
        if questions.is_empty() {
            return Err(CompareError::NoMetric(measure));
        }
        if questions.values().all(Vec::is_empty) {
            let infra = first.len();
            return Err(CompareError::NothingScored { infra });
        }
        // A round less would be another contest.
        if let Some((data_set, _)) = questions.iter().find(|(_, scored)| scored.is_empty()) {
            let data_set = data_set.clone();
            return Err(CompareError::DataSet { data_set });
        }
        let level = |values: &Values, keys: &Vec<QuestionKey>| {
            let means: Vec<f64> = keys.iter().map(|key| mean(&values[key])).collect();
            mean(&means)
        };
        let of_policy =
            |values: &Values| questions.values().map(|keys| level(values, keys)).collect();
        let scores: Vec<Vec<f64>> = values.iter().map(of_policy).collect();
        let others = sets[1..].iter();
        let against_first = others.map(|set| Comparison::from_episodes(&sets[0], set, bootstrap));
        let mut against_first: Vec<Comparison> = against_first.collect::<Result<_, _>>()?;
        adjust_several(&mut against_first, measure)?;
        Ok(Self {
            measure,
            points: points(&scores, 0, CONTESTS, bootstrap.seed),
            points_eliminating: points(&scores, 1, CONTESTS, bootstrap.seed),
            rounds: questions.into_keys().collect(),
            scores,
            contests: CONTESTS,
            against_first,
        })
    }

    /// A row per policy, the one with the most expected points first: its points, and its mean on each data set; then what the columns
    /// are.
    pub fn to_text(&self, names: &[String]) -> String {
        let mut order: Vec<usize> = (0..self.points.len().min(names.len())).collect();
        order.sort_by(|&a, &b| self.points[b].total_cmp(&self.points[a]));
        let (measure, rounds) = (self.measure, self.rounds.len());
        let means: Vec<String> = self
            .rounds
            .iter()
            .map(|data_set| format!("{measure} on {data_set}"))
            .collect();
        // Nobody is eliminated in a contest of one round.
        let several = rounds > 1;
        let mut header = vec!["policy", "expected points"];
        header.extend(several.then_some("with elimination"));
        header.extend(means.iter().map(String::as_str));
        let row = |&place: &usize| {
            let eliminating = several.then_some(self.points_eliminating[place]);
            let points = std::iter::once(self.points[place]).chain(eliminating);
            let scores = self.scores[place].iter().map(|&score| number(score));
            std::iter::once(names[place].clone())
                .chain(points.map(|points| format!("{points:.2}")))
                .chain(scores)
                .collect()
        };
        let table = text::table(&header, order.iter().map(row).collect());
        let contests = self.contests;
        let points = format!(
            "expected points: mean over {contests} simulated contests in which each data set is a round: policies with equal points \
             meet in pairs drawn at random, and the higher {measure} wins a point ({rounds} at most)"
        );
        let eliminating = several.then_some(
            "with elimination: the same where each round but the last sends home one of those with the fewest points".to_owned(),
        );
        let mean = format!("{measure} on a data set: mean over its questions");
        let legend: Vec<String> = std::iter::once(points)
            .chain(eliminating)
            .chain([mean])
            .collect();
        format!("{table}  {}\n", legend.join("\n  "))
    }
}

/// Expected points of each policy by `scores[policy][round]`: the mean over simulated contests, whose pairings are drawn. Each round but
/// the last eliminates `out` of those with the fewest points, as long as more than two are in.
pub(crate) fn points(scores: &[Vec<f64>], out: usize, contests: usize, seed: u64) -> Vec<f64> {
    let count = scores.first().map_or(0, Vec::len);
    let of_round = |round: usize| scores.iter().map(|scores| scores[round]).collect();
    let rounds: Vec<Vec<f64>> = (0..count).map(of_round).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut sums = vec![0_u64; scores.len()];
    for _ in 0..contests {
        let mut halves = vec![0_u64; scores.len()];
        let mut active: Vec<usize> = (0..scores.len()).collect();
        for (round, levels) in rounds.iter().enumerate() {
            shuffle(&mut active, &mut rng);
            // Stable: policies of equal standing stay in the order that was drawn.
            active.sort_by_key(|&policy| halves[policy]);
            let standing = halves.clone();
            let groups = active.chunk_by(|&a, &b| standing[a] == standing[b]);
            // Of an odd group the last meets nobody and wins nothing: luck shall not carry it up.
            for pair in groups.flat_map(|group| group.chunks_exact(2)) {
                let [a, b] = [pair[0], pair[1]];
                match levels[a].total_cmp(&levels[b]) {
                    Ordering::Greater => halves[a] += 2,
                    Ordering::Less => halves[b] += 2,
                    Ordering::Equal => {
                        halves[a] += 1;
                        halves[b] += 1;
                    }
                }
            }
            if round + 1 < count {
                eliminate(&mut active, &halves, out, &mut rng);
            }
        }
        sums.iter_mut()
            .zip(halves)
            .for_each(|(sum, own)| *sum += own);
    }
    let mean = |sum: u64| sum as f64 / (2 * contests.max(1)) as f64;
    sums.into_iter().map(mean).collect()
}

/// Takes out policies with the fewest points, drawn one after the other.
fn eliminate(active: &mut Vec<usize>, halves: &[u64], out: usize, rng: &mut ChaCha8Rng) {
    for _ in 0..out.min(active.len().saturating_sub(2)) {
        let fewest = active.iter().map(|&policy| halves[policy]).min();
        let last: Vec<usize> = (0..active.len())
            .filter(|&place| Some(halves[active[place]]) == fewest)
            .collect();
        active.remove(last[below(rng, last.len())]);
    }
}

/// Fisher and Yates' shuffle.
fn shuffle(items: &mut [usize], rng: &mut ChaCha8Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(rng, last + 1));
    }
}

//! Hints of the length with which a policy is right half of the time: SEELE (Staying in the Sweet Spot, arXiv 2509.06923).
//!
//! The solution of a question is what the environment's oracle does: its turns, the last of which answers. A hint is the first of
//! them, forced at the beginning of an episode. The members of a group are played in rounds; what the earlier rounds of a question have
//! shown says with how many turns the next begins. Members of all rounds are compared as one group.
//!
//! The paper hints by tokens of a written solution, here whole turns are given, so shares are multiples of one turn. Assumed, since the
//! abstract does not say: the first round's share is the same for all questions, nothing is carried from one step to the next, and no
//! loss is on the hint.

mod response;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use forage_contracts::environment::Outcome;
use forage_contracts::policy::Policy;
use forage_contracts::scripted::{Cast, OracleStyle, ScriptEntry};
use forage_contracts::{Episode, Metric, Provenance, SettingError};
use forage_env::reward::RewardSet;
use forage_env::{Job, Rollout, registry};
use serde::{Deserialize, Serialize};

use response::{Response, Seen};

use super::{GrpoConfig, RunError, Source};
use crate::learner::Learner;
use crate::metrics::Row;

/// Begins episodes with turns of the environment's oracle, as many as bring the policy's accuracy to a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HintConfig {
    /// Rounds in which the episodes of a group are played, at most as many as there are. After each, the turns that the next begins with
    /// are chosen anew.
    pub rounds: usize,
    /// Share of the oracle's turns that the first round begins with, 0 to 1; its last turn is never given.
    pub first: f64,
    /// Accuracy that is aimed at, above 0 and below 1.
    #[serde(default = "half")]
    pub target: f64,
    /// The text that the oracle writes around its actions.
    #[serde(default)]
    #[schemars(schema_with = "style")]
    pub style: OracleStyle,
}

fn half() -> f64 {
    0.5
}

/// The schema of [`OracleStyle`], whose crate knows no schemas.
pub(crate) fn style(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "oneOf": [
            {"const": "terse", "description": "The action alone; programs are as short as they can be."},
            {"const": "spaced", "description": "The same with a space before queries and answers in tags: with a tokenizer whose words hold their space they have the tokens of a sentence, and can be copied."},
            {"const": "plain", "description": "A short thought before each action; programs check what they find."},
        ],
    })
}

impl HintConfig {
    fn check(&self, grpo: &GrpoConfig) -> Result<(), SettingError> {
        let Self {
            rounds,
            first,
            target,
            ..
        } = *self;
        let size = grpo.group_size;
        if rounds == 0 || rounds > size {
            let must = format!("1 to {size}, the episodes of a group");
            return Err(SettingError::range("rounds", rounds, &must));
        }
        if !(0.0..=1.0).contains(&first) {
            return Err(SettingError::range("first", first, "0 to 1"));
        }
        if !(target > 0.0 && target < 1.0) {
            return Err(SettingError::range("target", target, "above 0 and below 1"));
        }
        if grpo.trees.is_some() {
            let fault = "begin episodes that do not branch off one another; remove grpo.trees";
            return Err(SettingError::new("hints", fault));
        }
        if grpo.recomposition.is_some() {
            let fault = "make episodes short, so that of the right ones those with most help would be chosen; remove grpo.recomposition";
            return Err(SettingError::new("hints", fault));
        }
        Ok(())
    }
}

impl GrpoConfig {
    /// Says that episodes begin with turns of the oracle.
    pub fn has_hints(&self) -> bool {
        self.hints.is_some()
    }

    /// Checks the hints, if there are any.
    pub(super) fn check_hints(&self) -> Result<(), SettingError> {
        self.hints.map_or(Ok(()), |hints| hints.check(self))
    }
}

/// Who gives hints in a run.
#[derive(Clone)]
pub(super) struct Hints {
    config: HintConfig,
    oracle: Arc<dyn Policy>,
}

/// A question while its group is played.
struct Asked {
    /// Places of its jobs.
    members: Range<usize>,
    /// The oracle's episode; none where it does not show how to be right, leaves nothing to do, or cannot be given turn by turn.
    shown: Option<Arc<Episode>>,
    /// What was played so far.
    outcomes: Vec<Seen>,
}

impl Hints {
    /// Those of a run, where it has any.
    pub(super) fn of(
        config: &GrpoConfig,
        source: Source<'_>,
        learner: &Learner,
    ) -> Result<Option<Self>, RunError> {
        let (Some(hints), Source::Play(problem)) = (config.hints, source) else {
            return Ok(None);
        };
        if let Some(part) = problem.rewards.group_parts().next() {
            let fault = format!(
                "compares the episodes of a group, which hints let play in rounds; remove [grpo.hints] or reward.{part}"
            );
            let error = SettingError::new(part, fault).of("grpo.hints");
            return Err(RunError::Setting(error));
        }
        let tokenizer = Arc::new(learner.checkpoint().tokenizer);
        let cast = Cast::new(tokenizer, problem.train.iter().cloned()).in_style(hints.style);
        let entry = registry::find(problem.factory.entry())?;
        Ok(Some(Self {
            config: hints,
            oracle: entry.script(ScriptEntry::ORACLE, cast)?,
        }))
    }

    /// Plays the jobs, whose groups stand one after the other, and returns their episodes in order.
    pub(super) async fn play(&self, rollout: &Rollout, jobs: Vec<Job>) -> Vec<Episode> {
        let mut groups = self.shown(rollout, &jobs).await;
        let mut episodes: Vec<Option<Episode>> = vec![None; jobs.len()];
        for round in 0..self.config.rounds {
            let (mut places, mut hinted) = (Vec::new(), Vec::new());
            for (index, group) in groups.iter().enumerate() {
                let turns = self.turns(group);
                for place in group.of_round(round, self.config.rounds) {
                    let shown = group.shown.clone();
                    places.push((index, place));
                    hinted.push(Job {
                        hint: shown.map(|shown| (shown, turns)),
                        ..jobs[place].clone()
                    });
                }
            }
            let played = rollout.run(hinted).await;
            for ((index, place), episode) in places.into_iter().zip(played) {
                groups[index].learn(&episode);
                episodes[place] = Some(episode);
            }
        }
        episodes.into_iter().flatten().collect()
    }

    /// Sets the mean number of turns that a step's episodes were given.
    pub(super) fn describe(row: &mut Row, episodes: &[Episode]) {
        let played = episodes.iter().filter(|episode| !episode.ending.is_infra());
        let hinted: Vec<usize> = played.map(|episode| episode.hinted).collect();
        let sum: usize = hinted.iter().sum();
        row.set(Metric::HINTED, sum as f64 / hinted.len().max(1) as f64);
    }

    /// The oracle's episode of each group of jobs.
    async fn shown(&self, rollout: &Rollout, jobs: &[Job]) -> Vec<Asked> {
        let mut groups = Vec::new();
        for group in jobs.chunk_by(|one, next| one.group == next.group) {
            let first = groups.last().map_or(0, |asked: &Asked| asked.members.end);
            groups.push(Asked {
                members: first..first + group.len(),
                shown: None,
                outcomes: Vec::new(),
            });
        }
        let job = |asked: &Asked| {
            let first = &jobs[asked.members.start];
            let seed = first.seed.child("hint", &[]);
            Job::alone(Arc::clone(&first.task), seed)
        };
        let outcome = rollout.factory.spec().outcome;
        let demonstrated = Rollout {
            policy: Arc::clone(&self.oracle),
            rewards: Arc::new(RewardSet::measure(outcome)),
            ..rollout.clone()
        };
        let played = demonstrated.run(groups.iter().map(job).collect()).await;
        let lost = played
            .iter()
            .filter(|episode| episode.ending.is_infra())
            .count();
        if lost > 0 {
            tracing::warn!(
                lost,
                "the oracle's episodes were lost to infrastructure faults; their questions have no hints"
            );
        }
        for (group, episode) in groups.iter_mut().zip(played) {
            let teaches = outcome.teaches(&episode, true) && can_be_cut(&episode);
            group.shown = teaches.then(|| Arc::new(episode));
        }
        groups
    }

    /// The turns that the next round of a group begins with.
    fn turns(&self, group: &Asked) -> usize {
        let all = group.shown.as_ref().map_or(0, |shown| shown.turns.len());
        let share = if group.outcomes.is_empty() {
            self.config.first
        } else {
            Response::fit(&group.outcomes).share(self.config.target)
        };
        let turns = (share * all as f64).round() as usize;
        turns.min(all.saturating_sub(1))
    }
}

/// Returns true for an episode of several turns, all of which have tokens: the log does not say where a turn without tokens stands.
fn can_be_cut(episode: &Episode) -> bool {
    let spans = episode.tokens.spans().iter();
    let written = spans.filter(|span| span.provenance == Provenance::Policy);
    episode.turns.len() > 1 && written.count() == episode.turns.len()
}

impl Asked {
    /// The places of the members that a round plays; rounds are as alike as can be.
    fn of_round(&self, round: usize, rounds: usize) -> Range<usize> {
        let (start, size) = (self.members.start, self.members.len());
        start + round * size / rounds..start + (round + 1) * size / rounds
    }

    /// Takes in how an episode went, unless it was lost.
    fn learn(&mut self, episode: &Episode) {
        let (Some(shown), Some(score)) = (&self.shown, &episode.score) else {
            return;
        };
        let share = episode.hinted as f64 / shown.turns.len() as f64;
        let accuracy = f64::from(Outcome::accuracy(score));
        self.outcomes.push(Seen {
            share,
            accuracy: accuracy.clamp(0.0, 1.0),
        });
    }
}

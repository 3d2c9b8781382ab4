//! Exact match: 1 when the last answer equals some gold after normalisation.

use async_trait::async_trait;

use super::grading;
use super::{Make, Reward, RewardEntry, RewardError, UNIT, indicator};
use crate::environment::Outcome;
use crate::episode::Episode;
use crate::task::Task;

/// The registry's entry.
pub const ENTRY: RewardEntry = RewardEntry {
    name: "em",
    about: "the last answer equals a gold after normalisation",
    always: true,
    judges: Some(Outcome::Answer),
    range: UNIT,
    make: Make::Plain(|_| Box::new(ExactMatch)),
};

/// Exact match: 1 when the last answer equals some gold after normalisation.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExactMatch;

#[async_trait]
impl Reward for ExactMatch {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(indicator(episode.answer().is_some_and(|answer| grading::exact_match(answer, &task.golds))))
    }
}

//! Substring match: 1 when some gold stands in the last answer after normalisation.

use async_trait::async_trait;

use super::grading;
use super::{Make, Reward, RewardEntry, RewardError, UNIT, indicator};
use crate::environment::Outcome;
use crate::episode::Episode;
use crate::task::Task;

/// The registry's entry.
pub const ENTRY: RewardEntry = RewardEntry {
    name: "sub_em",
    about: "a gold stands in the last answer",
    always: true,
    judges: Some(Outcome::Answer),
    range: UNIT,
    make: Make::Plain(|_| Box::new(SubExactMatch)),
};

/// Substring match: 1 when some gold stands in the last answer after normalisation.
#[derive(Clone, Copy, Debug, Default)]
pub struct SubExactMatch;

#[async_trait]
impl Reward for SubExactMatch {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(indicator(episode.answer().is_some_and(|answer| grading::sub_exact_match(answer, &task.golds))))
    }
}

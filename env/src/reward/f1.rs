//! F1: overlap of words between the last answer and the best gold.

use async_trait::async_trait;

use super::grading;
use super::{Make, Reward, RewardEntry, RewardError, UNIT};
use crate::environment::Outcome;
use crate::episode::Episode;
use crate::task::Task;

/// The registry's entry.
pub const ENTRY: RewardEntry = RewardEntry {
    name: "f1",
    about: "word overlap of the last answer with the best gold",
    always: true,
    judges: Some(Outcome::Answer),
    range: UNIT,
    make: Make::Plain(|_| Box::new(F1)),
};

/// F1: overlap of words between the last answer and the best gold.
#[derive(Clone, Copy, Debug, Default)]
pub struct F1;

#[async_trait]
impl Reward for F1 {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(episode.answer().map_or(0.0, |answer| grading::f1(answer, &task.golds)))
    }
}

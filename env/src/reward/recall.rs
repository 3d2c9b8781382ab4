//! Share of the relevant passages among all a query found, as many as the environment's `limit`.

use async_trait::async_trait;

use super::{Make, Reward, RewardEntry, RewardError, UNIT, ranked, ranking};
use crate::environment::Outcome;
use crate::episode::Episode;
use crate::task::Task;

/// The registry's entry.
pub const ENTRY: RewardEntry = RewardEntry {
    name: "recall",
    about: "queries: share of the relevant passages found",
    always: true,
    judges: Some(Outcome::Query),
    range: UNIT,
    make: Make::Plain(|_| Box::new(Recall)),
};

/// Share of the relevant passages among all a query found, as many as the environment's `limit`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recall;

#[async_trait]
impl Reward for Recall {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let ranked = ranked(ENTRY.name, task, episode)?;
        Ok(ranked.map_or(0.0, |(turn, judgments)| ranking::recall(&turn.found, &judgments, turn.found.len()) as f32))
    }
}

//! One over the rank of the first relevant passage among all a query found; 0 when there is none.

use async_trait::async_trait;

use super::{Make, Reward, RewardEntry, RewardError, UNIT, ranked, ranking};
use crate::environment::Outcome;
use crate::episode::Episode;
use crate::task::Task;

/// The registry's entry.
pub const ENTRY: RewardEntry = RewardEntry {
    name: "mrr",
    about: "queries: one over the rank of the first relevant passage",
    always: true,
    judges: Some(Outcome::Query),
    range: UNIT,
    make: Make::Plain(|_| Box::new(Mrr)),
};

/// One over the rank of the first relevant passage among all a query found; 0 when there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mrr;

#[async_trait]
impl Reward for Mrr {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let ranked = ranked(ENTRY.name, task, episode)?;
        Ok(ranked.map_or(0.0, |(turn, judgments)| {
            ranking::reciprocal_rank(&turn.found, &judgments, turn.found.len()) as f32
        }))
    }
}

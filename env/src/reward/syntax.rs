//! Syntax: 1 when there is a query and nothing in it had to be repaired, whatever it found.

use async_trait::async_trait;

use super::{Make, Reward, RewardEntry, RewardError, UNIT, indicator};
use crate::environment::{Outcome, QueryTurn};
use crate::episode::Episode;
use crate::task::Task;

/// The registry's entry.
pub const ENTRY: RewardEntry = RewardEntry {
    name: "syntax",
    about: "queries: the query needed no repair",
    always: true,
    judges: Some(Outcome::Query),
    range: UNIT,
    make: Make::Plain(|_| Box::new(Syntax)),
};

/// Syntax: 1 when there is a query and nothing in it had to be repaired, whatever it found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Syntax;

#[async_trait]
impl Reward for Syntax {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(indicator(episode.query_turn().is_some_and(QueryTurn::is_valid)))
    }
}

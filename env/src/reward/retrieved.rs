//! Retrieved: 1 when anything a query found is relevant.

use async_trait::async_trait;

use super::ranking::Judgments;
use super::{Make, Reward, RewardEntry, RewardError, UNIT, indicator, ranked};
use crate::environment::Outcome;
use crate::episode::Episode;
use crate::task::Task;

/// The registry's entry.
pub const ENTRY: RewardEntry = RewardEntry {
    name: "retrieved",
    about: "queries: anything relevant was found",
    always: true,
    judges: Some(Outcome::Query),
    range: UNIT,
    make: Make::Plain(|_| Box::new(Retrieved)),
};

/// Retrieved: 1 when anything a query found is relevant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retrieved;

#[async_trait]
impl Reward for Retrieved {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let ranked = ranked(ENTRY.name, task, episode)?;
        let relevant = |id: &String, judgments: &Judgments| judgments.get(id).is_some_and(|grade| *grade > 0);
        Ok(indicator(ranked.is_some_and(|(turn, judgments)| turn.found.iter().any(|id| relevant(id, &judgments)))))
    }
}

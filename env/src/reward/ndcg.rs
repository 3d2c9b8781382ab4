//! NDCG of the first ten passages a query found, with the ideal order of all that is judged; 0 without a query.

use async_trait::async_trait;

use super::{Make, Reward, RewardEntry, RewardError, UNIT, ranked, ranking};
use crate::environment::Outcome;
use crate::episode::Episode;
use crate::task::Task;

/// Passages that NDCG looks at.
pub(super) const DEPTH: usize = 10;

/// The registry's entry.
pub const ENTRY: RewardEntry = RewardEntry {
    name: "ndcg",
    about: "queries: NDCG@10 of what the query found, as trec_eval computes it",
    always: true,
    judges: Some(Outcome::Query),
    range: UNIT,
    make: Make::Plain(|_| Box::new(Ndcg)),
};

/// NDCG of the first ten passages a query found, with the ideal order of all that is judged; 0 without a query.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ndcg;

#[async_trait]
impl Reward for Ndcg {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let ranked = ranked(ENTRY.name, task, episode)?;
        Ok(ranked.map_or(0.0, |(turn, judgments)| ranking::ndcg(&turn.found, &judgments, DEPTH) as f32))
    }
}

//! NDCG of what a query found less that of what the question's keywords find, and not below 0.
//!
//! Members of a group share the keywords, so that only the bound at 0 changes what is learned: whatever ranks no better
//! than the keywords earns nothing here.

use async_trait::async_trait;

use super::ndcg::DEPTH;
use super::{Make, Reward, RewardEntry, RewardError, UNIT, ranked, ranking};
use crate::environment::Outcome;
use crate::episode::Episode;
use crate::task::Task;

/// The registry's entry.
pub const ENTRY: RewardEntry = RewardEntry {
    name: "gain",
    about: "queries: NDCG@10 above that of the question's own keywords",
    always: true,
    judges: Some(Outcome::Query),
    range: UNIT,
    make: Make::Plain(|_| Box::new(Gain)),
};

/// NDCG of what a query found less that of what the question's keywords find, and not below 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gain;

#[async_trait]
impl Reward for Gain {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let ranked = ranked(ENTRY.name, task, episode)?;
        Ok(ranked.map_or(0.0, |(turn, judgments)| {
            let [found, keywords] =
                [&turn.found, &turn.keywords_found].map(|ids| ranking::ndcg(ids, &judgments, DEPTH) as f32);
            (found - keywords).max(0.0)
        }))
    }
}

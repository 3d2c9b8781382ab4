//! Rewards: pure judgements of finished episodes.

use std::borrow::Cow;

use forage_contracts::reward::{
    Built, GroupReward, Make, Making, Pieces, Reward, RewardEntry, RewardError,
};
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Task};

pub(crate) mod give_up;
pub(crate) mod grading;
pub(crate) mod ranking;
pub(crate) mod search_r1;

pub(crate) mod answers;
pub(crate) mod rankings;
pub(crate) mod reranking;

pub(crate) mod format;
pub mod judge;
pub(crate) mod majority;
pub(crate) mod published;
pub(crate) mod retrieval;

pub(crate) mod altered;
pub(crate) mod controls;
pub(crate) mod costs;
pub(crate) mod random;
pub(crate) mod relevance;
pub(crate) mod turns;

pub(crate) mod set;
pub(crate) mod settings;
#[cfg(test)]
mod tests;

pub use give_up::is_give_up;
pub use grading::{exact_match, normalize, sub_exact_match};
pub use published::PublishedSettings;
pub use ranking::Graded;
pub(crate) use ranking::Judgments;
pub use retrieval::shown;
pub use set::{RewardSet, RewardSetError};
pub use settings::Weighting;

/// The range of most rewards.
pub(crate) const UNIT: [f32; 2] = [0.0, 1.0];

/// The task's judgments.
///
/// # Errors
/// When it has none: every ranking would earn 0.
pub(crate) fn judgments<'a>(name: &str, task: &'a Task) -> Result<Cow<'a, Judgments>, RewardError> {
    let judgments = task.judgments();
    if judgments.is_empty() {
        let message = format!(
            "task `{}` (`{}`) has no judged passage",
            task.name(),
            task.question
        );
        return Err(RewardError {
            name: name.to_owned(),
            message,
        });
    }
    Ok(judgments)
}

/// A number in `[0, 1)` that depends on the seed, the task and the member alone.
fn draw(seed: Seed, task: &Task, episode: &Episode) -> f64 {
    (seed.child(&task.name(), &[episode.member]).0 >> 11) as f64 / (1_u64 << 53) as f64
}

/// 1 for true, 0 for false.
fn indicator(holds: bool) -> f32 {
    if holds { 1.0 } else { 0.0 }
}

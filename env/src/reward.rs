//! Rewards: pure judgements of finished episodes.

use std::borrow::Cow;

pub use forage_contracts::reward::{
    Built, GroupReward, Make, Making, Pieces, Reward, RewardEntry, RewardError,
};

use crate::episode::Episode;
use crate::seed::Seed;
use crate::task::Task;
use ranking::Judgments;

pub mod give_up;
pub mod grading;
pub mod ranking;
pub mod search_r1;

pub(crate) mod answers;
pub(crate) mod rankings;

pub mod format;
pub mod judge;
pub mod majority;
pub mod published;
pub mod retrieval;

pub mod altered;
pub mod controls;
pub mod costs;
pub mod random;

pub mod set;
pub mod settings;
#[cfg(test)]
mod tests;

pub use set::{RewardSet, RewardSetError, default_weights};
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
            task.id, task.question
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
    (seed.child(&task.id, &[episode.member]).0 >> 11) as f64 / (1_u64 << 53) as f64
}

/// 1 for true, 0 for false.
fn indicator(holds: bool) -> f32 {
    if holds { 1.0 } else { 0.0 }
}

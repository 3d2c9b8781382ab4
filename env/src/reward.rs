//! Rewards: pure judgements of finished episodes.

use std::borrow::Cow;

use async_trait::async_trait;

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

pub use set::{RewardEntry, RewardSet, RewardSetError, default_weights};
pub use settings::{Built, Make, Making, Weighting};

/// A reward could not be computed. An infrastructure fault, never a reward of zero.
#[derive(Clone, Debug, thiserror::Error)]
#[error("reward `{name}` failed: {message}")]
pub struct RewardError {
    /// The reward's name.
    pub name: String,
    /// What went wrong.
    pub message: String,
}

/// Scores one aspect of a finished episode.
#[async_trait]
pub trait Reward: Send + Sync {
    /// Name under which the part is logged.
    fn name(&self) -> &'static str;

    /// The score, before weighting.
    ///
    /// # Errors
    /// [`RewardError`] when no score could be computed.
    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError>;

    /// The score and what it is made of, each piece logged as `NAME_PIECE`. Most rewards are of one piece.
    ///
    /// # Errors
    /// As [`Reward::score`].
    async fn score_in_pieces(
        &self,
        task: &Task,
        episode: &Episode,
    ) -> Result<(f32, Pieces), RewardError> {
        Ok((self.score(task, episode).await?, Pieces::new()))
    }
}

/// Scores the finished episodes of a group by comparing them.
#[async_trait]
pub trait GroupReward: Send + Sync {
    /// Name under which the part is logged.
    fn name(&self) -> &'static str;

    /// The scores of the members before weighting, in their order, each with the pieces it is made of. The members are the
    /// group's episodes of `task` that no fault ended; a group may be of one.
    ///
    /// # Errors
    /// [`RewardError`] when no scores could be computed; every member is then a fault.
    async fn score_group(
        &self,
        task: &Task,
        members: &[&Episode],
    ) -> Result<Vec<(f32, Pieces)>, RewardError>;
}

/// Pieces of a score by name, for people to read: they carry no weight.
pub type Pieces = Vec<(String, f32)>;

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

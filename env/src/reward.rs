//! Rewards: pure judgements of finished episodes.

use async_trait::async_trait;

use crate::episode::Episode;
use crate::task::Task;

pub mod give_up;
pub mod grading;
pub mod search_r1;

pub mod em;
pub mod f1;
pub mod format;
pub mod random;
pub mod retrieval;
pub mod sub_em;

pub mod set;

pub use set::{REWARDS, RewardEntry, RewardSet, RewardSetError};

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
}

/// 1 for true, 0 for false.
fn indicator(holds: bool) -> f32 {
    if holds { 1.0 } else { 0.0 }
}

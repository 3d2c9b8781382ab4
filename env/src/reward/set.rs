//! The registered rewards and their weighted sum.

use std::collections::BTreeMap;

use super::{Reward, RewardError, em, f1, format, random, retrieval, sub_em};
use crate::episode::{Episode, Score};
use crate::nearest::nearest;
use crate::seed::Seed;
use crate::task::Task;

/// One registered reward.
#[derive(Clone, Copy, Debug)]
pub struct RewardEntry {
    /// The name in configs and records.
    pub name: &'static str,
    /// When it is earned, in a few words.
    pub about: &'static str,
    /// Whether it is computed and logged without a weight.
    pub always: bool,
    /// Builds it; the seed is for rewards that draw.
    pub make: fn(Seed) -> Box<dyn Reward>,
}

/// Every reward there is. A new one is a file and a line here.
pub const REWARDS: &[RewardEntry] =
    &[em::ENTRY, sub_em::ENTRY, f1::ENTRY, format::ENTRY, retrieval::ENTRY, random::ENTRY];

/// Weights that make no reward.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RewardSetError {
    /// No reward has this name.
    #[error("unknown reward `{name}`; did you mean `{nearest}`?")]
    Unknown {
        /// As written.
        name: String,
        /// The nearest registered name.
        nearest: &'static str,
    },
    /// The weight is infinite or not a number.
    #[error("weight of reward `{name}` is {weight}; write a finite number")]
    NotFinite {
        /// The reward.
        name: String,
        /// As written.
        weight: f32,
    },
}

struct Part {
    reward: Box<dyn Reward>,
    weight: f32,
}

/// A weighted sum of registered rewards. Parts of weight 0 are computed and logged as well.
pub struct RewardSet {
    parts: Vec<Part>,
}

impl std::fmt::Debug for RewardSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let weights = self.parts.iter().map(|part| (part.reward.name(), part.weight));
        formatter.debug_map().entries(weights).finish()
    }
}

impl RewardSet {
    /// Composes the rewards named in `weights`; `seed` starts the streams of those that draw (`random`).
    ///
    /// # Errors
    /// When a name is not registered or a weight is not finite.
    pub fn new(weights: &BTreeMap<String, f32>, seed: Seed) -> Result<Self, RewardSetError> {
        for (name, &weight) in weights {
            if !REWARDS.iter().any(|entry| entry.name == name) {
                let nearest = nearest(name, REWARDS.iter().map(|entry| entry.name));
                return Err(RewardSetError::Unknown { name: name.clone(), nearest });
            }
            if !weight.is_finite() {
                return Err(RewardSetError::NotFinite { name: name.clone(), weight });
            }
        }
        let mut parts = Vec::new();
        for entry in REWARDS {
            let weight = weights.get(entry.name).copied().unwrap_or(0.0);
            if entry.always || weight != 0.0 {
                parts.push(Part { reward: (entry.make)(seed), weight });
            }
        }
        Ok(Self { parts })
    }

    /// Exact match with weight 1, everything else logged only.
    pub fn exact_match() -> Self {
        let parts = REWARDS.iter().filter(|entry| entry.always).map(|entry| Part {
            reward: (entry.make)(Seed::root(0)),
            weight: if entry.name == em::ENTRY.name { 1.0 } else { 0.0 },
        });
        Self { parts: parts.collect() }
    }

    /// Adds a reward that is not registered, for instance one of a caller's own.
    #[must_use]
    pub fn with(mut self, reward: Box<dyn Reward>, weight: f32) -> Self {
        self.parts.push(Part { reward, weight });
        self
    }

    /// Scores a finished episode. Not for episodes that ended in an infrastructure fault: those have no score.
    ///
    /// # Errors
    /// When a part cannot be computed or is not finite.
    pub async fn score(&self, task: &Task, episode: &Episode) -> Result<Score, RewardError> {
        let mut score = Score::default();
        for part in &self.parts {
            let name = part.reward.name();
            let value = part.reward.score(task, episode).await?;
            if !value.is_finite() {
                return Err(RewardError { name: name.to_owned(), message: format!("the score is {value}") });
            }
            score.total += part.weight * value;
            score.parts.insert(name.to_owned(), value);
        }
        Ok(score)
    }
}

//! A control: a coin that knows nothing of the episode.

use async_trait::async_trait;
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, SettingError, Task};
use serde::Deserialize;

use super::{Make, Reward, RewardEntry, RewardError, UNIT, draw, indicator};

/// The registry's entry.
pub(crate) const ENTRY: RewardEntry = RewardEntry {
    name: "random",
    about: "control: a coin per task and member, seeded; no skill can earn it (settings: p = 0.5)",
    always: false,
    judges: None,
    range: UNIT,
    schema: Some(|| schemars::schema_for!(Settings).into()),
    make: Make::Configured(|making| {
        let Settings { p } = making.read()?;
        if !(0.0..=1.0).contains(&p) {
            return Err(SettingError::range("p", p, "a probability, 0 to 1"));
        }
        Ok(Box::new(Random {
            seed: making.seed,
            p,
        }))
    }),
};

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Probability of 1.
    p: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { p: 0.5 }
    }
}

/// 1 with probability `p`, drawn from the task's data set and id, the member and the seed, never from what was written: `randomP` of
/// Spurious Rewards (Shao et al. 2025), seeded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random {
    /// Start of the stream.
    pub seed: Seed,
    /// Probability of 1.
    pub p: f64,
}

#[async_trait]
impl Reward for Random {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        Ok(indicator(
            draw(self.seed.child("reward/random", &[]), task, episode) >= 1.0 - self.p,
        ))
    }

    fn needs_golds(&self, _task: &Task) -> bool {
        false
    }
}

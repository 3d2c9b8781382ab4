//! A control: a fair coin that knows nothing of the episode.

use async_trait::async_trait;

use super::{Reward, RewardEntry, RewardError, UNIT, indicator};
use crate::episode::Episode;
use crate::seed::Seed;
use crate::task::Task;

/// The registry's entry.
pub const ENTRY: RewardEntry = RewardEntry {
    name: "random",
    about: "control: a fair coin per task and member, seeded; no skill can earn it",
    always: false,
    judges: None,
    range: UNIT,
    make: |seed| Box::new(Random { seed }),
};

/// 1 with probability 1/2, drawn from the task's id, the member and the seed, never from what was written.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    /// Start of the stream.
    pub seed: Seed,
}

#[async_trait]
impl Reward for Random {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    async fn score(&self, task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let draw = self.seed.child("reward/random", &[]).child(&task.id, &[episode.member]);
        Ok(indicator(draw.0 >> 63 == 1))
    }
}

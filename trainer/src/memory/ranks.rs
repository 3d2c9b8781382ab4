//! The memory that the first of several ranks holds besides: weights and moments of before a step, for a checkpoint where a rank is lost.

use super::estimate::{Part, part, sum};
use super::{F32, MemoryEstimate, MemoryPlan, PROGRAMS};

/// Name of the part.
const AGAIN: &str = "weights and moments of before the step";

impl MemoryPlan<'_> {
    /// The weights that learn and the moments, which it holds twice while a step is under way; nothing where moments are shared.
    pub(super) fn held_again(&self) -> Part {
        let bytes = if self.ranks <= 1 || self.sharded {
            0
        } else {
            let own = self.trained() * F32 + self.moments(self.trained());
            own + sum(&self.critic_parts(0)) as usize
        };
        part(AGAIN, bytes, "grpo.update.optimizer.sharded")
    }
}

impl MemoryEstimate {
    /// Bytes that must be there and bytes at the peak, of so many ranks in one process, the first among them.
    pub fn of_ranks(&self, here: usize) -> [u64; 2] {
        let once = |part: &&Part| [AGAIN, PROGRAMS].contains(&part.name);
        let once: u64 = self.always.iter().filter(once).map(|part| part.bytes).sum();
        let others = (here as u64).saturating_sub(1);
        [self.needed(), self.peak()].map(|first| first + others * (first - once))
    }
}

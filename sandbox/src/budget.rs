//! The memory that all sandboxes of a process share.
//!
//! Three quarters are for turns that run, a quarter for sessions that wait for their next turn. A turn is admitted with all
//! that its limit lets it take, so that it never waits for memory while it holds some: whoever holds a place gives it back
//! without needing another. Waiting for a place changes no outcome; a refusal would depend on the load. What sessions keep
//! between turns is counted by the lines of memory that they have changed, compressed if it is much, and goes to a file where the
//! quarter is full. Instances that wait to be used again take what half of the quarter leaves.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::SandboxError;
use crate::memory::available_memory;
use crate::spill::Spill;

/// A part of the budget, given back when dropped.
pub(crate) type Share = OwnedSemaphorePermit;

/// Most turns at a time, whatever the memory: with the instances that wait fewer than an engine has room for.
const TURNS: usize = 900;
/// The budget where the system does not say what is free.
const UNKNOWN: usize = 4 << 30;

pub(crate) struct Budget {
    bytes: usize,
    /// Whether a person chose the size.
    chosen: bool,
    turns_mib: usize,
    /// Memory that turns may use, MiB.
    turns: Arc<Semaphore>,
    /// Memory kept between turns, KiB.
    kept: Arc<Semaphore>,
    pub(crate) spill: Spill,
}

impl Budget {
    /// The process's budget. Its size is `asked`, or a quarter of what is free, for whoever comes first; `limit` is what one
    /// turn may take, `folder` where the file of idle sessions lies.
    pub(crate) fn of_process(
        asked: Option<usize>,
        limit: usize,
        folder: &Path,
    ) -> Result<&'static Self, SandboxError> {
        static PROCESS: OnceLock<Budget> = OnceLock::new();
        let budget = PROCESS.get_or_init(|| {
            let bytes = asked.unwrap_or_else(|| {
                let free = available_memory().map_or(UNKNOWN, |free| (free / 4) as usize);
                // Room for one turn on the smallest machine.
                free.max(limit.saturating_mul(2))
            });
            Self::new(bytes, asked.is_some(), folder.to_owned())
        });
        let fault = |what: String| {
            let shared_mib = budget.bytes >> 20;
            Err(SandboxError::Budget { shared_mib, what })
        };
        match asked {
            Some(asked) if asked >> 20 != budget.bytes >> 20 => {
                let chosen = if budget.chosen { "chosen" } else { "measured" };
                fault(format!(
                    "{chosen} when the first was opened, not {} MiB; give all the same `total_mib`",
                    asked >> 20
                ))
            }
            _ if limit >> 20 > budget.turns_mib => fault(format!(
                "and a turn with a limit of {} MiB needs 4/3 of that; raise `total_mib` or lower `memory_mib`",
                limit >> 20
            )),
            _ => Ok(budget),
        }
    }

    fn new(bytes: usize, chosen: bool, folder: PathBuf) -> Self {
        let turns_mib = (bytes / 4 * 3) >> 20;
        Self {
            bytes,
            chosen,
            turns_mib,
            turns: Arc::new(Semaphore::new(turns_mib)),
            kept: Arc::new(Semaphore::new(bytes / 4 / 1024)),
            spill: Spill::new(bytes as u64, folder),
        }
    }

    /// Waits for the memory of a turn that may take `limit` bytes; first come, first served.
    pub(crate) async fn turn(&self, limit: usize) -> Option<Share> {
        let mib = limit
            .div_ceil(1 << 20)
            .max(self.turns_mib.div_ceil(TURNS))
            .min(self.turns_mib);
        let turns = Arc::clone(&self.turns);
        // The semaphore is never closed.
        turns.acquire_many_owned(mib as u32).await.ok()
    }

    /// Room for `bytes` between turns, if there is any.
    pub(crate) fn keep(&self, bytes: usize) -> Option<Share> {
        let kib = u32::try_from(bytes.div_ceil(1024)).ok()?;
        Arc::clone(&self.kept).try_acquire_many_owned(kib).ok()
    }

    /// Room for an instance that waits to be used again and has written `bytes`, unless sessions may need it.
    pub(crate) fn keep_instance(&self, bytes: usize) -> Option<Share> {
        let left = self.kept.available_permits().saturating_mul(1024);
        let enough = left.saturating_sub(bytes) >= self.bytes / 8;
        enough.then(|| self.keep(bytes)).flatten()
    }
}

/// Gives back what exceeds `bytes`.
pub(crate) fn trim(share: &mut Share, bytes: usize) {
    let spare = share.num_permits().saturating_sub(bytes.div_ceil(1024));
    drop(share.split(spare));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_given_back_and_never_exceed_the_budget() {
        let budget = Budget::new(1 << 30, true, PathBuf::new());
        assert_eq!(budget.turns_mib, 768);
        let mut share = budget.keep(256 << 20).expect("a quarter is for idle ones");
        assert!(budget.keep(1).is_none());
        trim(&mut share, 1 << 20);
        assert!(budget.keep(255 << 20).is_some());
        drop(share);
        // Half of it is for sessions whatever instances wait.
        let instances: Vec<_> = std::iter::from_fn(|| budget.keep_instance(8 << 20)).collect();
        assert_eq!(instances.len(), 16);
        assert!(budget.keep(128 << 20).is_some());
        drop(instances);
        assert!(budget.keep(256 << 20).is_some());
    }

    #[tokio::test]
    async fn a_turn_waits_for_the_memory_it_may_take() {
        let budget = Budget::new(256 << 20, true, PathBuf::new());
        let first = budget.turn(128 << 20).await.expect("room");
        let mut second = Box::pin(budget.turn(128 << 20));
        let waited = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(waited, &mut second).await.is_err());
        drop(first);
        assert!(second.await.is_some());
    }
}

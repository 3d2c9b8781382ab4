//! The work that a server which stops waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Flights {
    draining: AtomicBool,
    count: AtomicU64,
    /// Notified when the last work in flight is done.
    finished: Notify,
}

impl Flights {
    pub(super) fn draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    pub(super) fn enter(self: &Arc<Self>) -> Flight {
        self.count.fetch_add(1, Ordering::SeqCst);
        Flight(Arc::clone(self))
    }

    /// Refuses new work and waits for the work in flight; gives how much is left when time is up.
    pub(super) async fn drain(&self, until: Instant) -> u64 {
        self.draining.store(true, Ordering::SeqCst);
        loop {
            let finished = self.finished.notified();
            let left = self.count.load(Ordering::SeqCst);
            if left == 0 || tokio::time::timeout_at(until, finished).await.is_err() {
                return left;
            }
        }
    }
}

/// Work in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct Flight(Arc<Flights>);

impl Drop for Flight {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.finished.notify_one();
        }
    }
}

//! Counters of a remote engine.

use std::sync::{Mutex, MutexGuard, PoisonError};

use forage_net::Fault;

use super::error::RemoteFault;

/// Requests to a server since it was connected to. Faults are counted by try, those that a further try fixed
/// included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemoteStats {
    /// Completions asked for.
    pub requests: u64,
    /// Completions that came whole.
    pub completed: u64,
    /// Completions that failed after all tries, those that were not sent because the server is gone included.
    pub failed: u64,
    /// Further tries, of completions and of pushes.
    pub retries: u64,
    /// Tries without a connection, or with one that broke off.
    pub unreachable: u64,
    /// Tries without an answer in time.
    pub timeouts: u64,
    /// Tries with an HTTP status that is not a success.
    pub statuses: u64,
    /// Tries with a body that is not of the protocol.
    pub malformed: u64,
    /// Tries with token ids and log-probabilities that do not belong together, or not to the request.
    pub counts: u64,
    /// Tries with a log-probability that is not one.
    pub logprobs: u64,
    /// Tries that the server aborted.
    pub aborted: u64,
    /// Tries where the server reported a failure inside a success.
    pub refused: u64,
    /// Tokens of completions that came whole.
    pub generated_tokens: u64,
    /// Weights handed over.
    pub pushes: u64,
}

/// Counters that many requests add to.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<RemoteStats>);

impl Counters {
    pub(super) fn lock(&self) -> MutexGuard<'_, RemoteStats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, fault: &RemoteFault) {
        let mut stats = self.lock();
        let counter = match fault {
            RemoteFault::Net(Fault::Connect(_) | Fault::Broken { .. }) => &mut stats.unreachable,
            RemoteFault::Net(Fault::Timeout { .. }) => &mut stats.timeouts,
            RemoteFault::Net(Fault::Status { .. }) => &mut stats.statuses,
            RemoteFault::Net(_) | RemoteFault::Malformed(_) => &mut stats.malformed,
            RemoteFault::Counts(_) => &mut stats.counts,
            RemoteFault::Logprob(_) => &mut stats.logprobs,
            RemoteFault::Aborted(_) => &mut stats.aborted,
            RemoteFault::Refused(_) => &mut stats.refused,
        };
        *counter += 1;
    }
}

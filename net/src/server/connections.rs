//! The connections of a server: at most so many, and when they are too many the one that has kept the server waiting
//! longest gives way.
//!
//! A connection waits for its client between requests, while a head or a body arrives. One that is being answered is left
//! alone, as is one that was upgraded to a WebSocket.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Time given to a connection to close before the next one is asked to.
const GIVING_WAY: Duration = Duration::from_millis(50);

/// All open connections.
#[derive(Debug)]
pub(super) struct Connections {
    most: u32,
    places: Arc<Semaphore>,
    waiting: Mutex<Waiting>,
}

/// Connections that wait for their clients, by the order in which they began to.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    by_age: BTreeMap<u64, Arc<Notify>>,
}

impl Connections {
    /// At most `most` connections, and no more than three quarters of the descriptors that the process may open: indexes,
    /// remote servers and interpreters need some too.
    pub(super) fn new(most: usize) -> Arc<Self> {
        let most = descriptors().map_or(most, |limit| most.min(limit / 4 * 3));
        let most = u32::try_from(most.max(1)).unwrap_or(u32::MAX);
        Arc::new(Self {
            most,
            places: Arc::new(Semaphore::new(most as usize)),
            waiting: Mutex::default(),
        })
    }

    /// A place for a connection. When all are taken, the connection that has waited longest for its client is closed; while
    /// all are being answered, the new one waits.
    pub(super) async fn place(&self) -> OwnedSemaphorePermit {
        loop {
            let places = Arc::clone(&self.places);
            if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                return place;
            }
            self.close_longest_waiting();
            if let Ok(Ok(place)) = tokio::time::timeout(GIVING_WAY, places.acquire_owned()).await {
                return place;
            }
        }
    }

    /// Closes the connection that has waited longest for its client, if one waits.
    pub(super) fn close_longest_waiting(&self) {
        if let Some((_, close)) = self.waiting().by_age.pop_first() {
            close.notify_one();
        }
    }

    /// Completes when no connection is open.
    pub(super) async fn all_closed(&self) {
        let _ = self.places.acquire_many(self.most).await;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most descriptors that this process may open, where the system says.
fn descriptors() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// One connection's part in giving way.
#[derive(Debug)]
pub(super) struct Connection {
    all: Arc<Connections>,
    close: Arc<Notify>,
    /// Its place in the order of those that wait.
    age: Mutex<Option<u64>>,
}

impl Connection {
    /// A connection that waits for its first request.
    pub(super) fn new(all: &Arc<Connections>) -> Arc<Self> {
        let connection = Self {
            all: Arc::clone(all),
            close: Arc::default(),
            age: Mutex::default(),
        };
        connection.waits();
        Arc::new(connection)
    }

    /// Marks the connection as waiting for its client.
    pub(super) fn waits(&self) {
        let mut age = self.age.lock().unwrap_or_else(PoisonError::into_inner);
        if age.is_none() {
            let mut waiting = self.all.waiting();
            waiting.next += 1;
            let number = waiting.next;
            waiting.by_age.insert(number, Arc::clone(&self.close));
            *age = Some(number);
        }
    }

    /// Marks the connection as being answered.
    pub(super) fn works(&self) {
        let mut age = self.age.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = age.take() {
            self.all.waiting().by_age.remove(&number);
        }
    }

    /// Completes when it is to give way.
    pub(super) async fn to_close(&self) {
        self.close.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.works();
    }
}

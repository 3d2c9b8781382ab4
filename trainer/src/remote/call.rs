//! Tries, and the point at which a server counts as gone.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use forage_net::{Again, Client, Fault, Request, Retry};

use super::config::RemoteConfig;
use super::error::{RemoteError, RemoteFault};
use super::stats::Counters;

/// Failures since the last success.
#[derive(Debug, Default)]
struct Health {
    failures: u32,
    last: String,
    /// True once others take its place.
    replaced: bool,
}

/// Calls one server again and again.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) client: Client,
    pub(super) counters: Counters,
    retry: Retry,
    give_up_after: u32,
    health: Mutex<Health>,
}

impl Caller {
    pub(super) fn new(config: &RemoteConfig, url: &str) -> Result<Self, RemoteError> {
        Ok(Self {
            client: config.client(url)?,
            counters: Counters::default(),
            retry: config.retry(),
            give_up_after: config.give_up_after,
            health: Mutex::default(),
        })
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails once the server counts as gone.
    pub(super) fn alive(&self) -> Result<(), RemoteError> {
        let health = self.health();
        if health.failures < self.give_up_after && !health.replaced {
            return Ok(());
        }
        let url = self.client.base().to_owned();
        Err(RemoteError::GivenUp {
            url,
            failures: health.failures,
            last: health.last.clone(),
        })
    }

    /// Takes the outcome of a completion into account. Once gone, a late success does not bring the server back: some
    /// of the run's requests have been refused by then.
    fn note<T>(&self, outcome: &Result<T, RemoteError>) {
        let mut health = self.health();
        match outcome {
            Ok(_) if health.failures < self.give_up_after => health.failures = 0,
            Err(error) if error.counts_against_server() => {
                health.failures += 1;
                health.last = error.to_string();
            }
            _ => {}
        }
    }

    /// Asks the server nothing more: others are there.
    pub(super) fn give_up(&self, error: &RemoteError) {
        let mut health = self.health();
        if health.replaced {
            return;
        }
        (health.replaced, health.last) = (true, error.to_string());
        health.failures = health.failures.max(1);
        tracing::warn!(
            url = self.client.base(),
            "server given up, others take its place: {error}"
        );
    }

    /// Asks the server again.
    pub(super) fn take_back(&self) {
        *self.health() = Health::default();
    }

    /// Takes the outcome of a request into account, and counts it with its `tokens`.
    pub(super) fn account<T>(&self, outcome: &Result<T, RemoteError>, tokens: usize) {
        self.note(outcome);
        let mut stats = self.counters.lock();
        match outcome {
            Ok(_) => {
                stats.completed += 1;
                stats.generated_tokens += tokens as u64;
            }
            Err(_) => stats.failed += 1,
        }
    }

    /// The address of a path that begins with a slash.
    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.client.base())
    }

    /// Posts JSON once.
    pub(super) async fn post(
        &self,
        path: &str,
        json: Vec<u8>,
        limit: Duration,
    ) -> Result<Bytes, RemoteFault> {
        let request = Request::post(self.client.at(path), "application/json", json);
        Ok(self.client.send(&request, limit).await?)
    }

    /// Tries until it works, the failure is one that stays or is not `worth` a further try, the tries are used up, or the
    /// server is not `usable` any more.
    pub(super) async fn retry<T, F: Future<Output = Result<T, RemoteFault>>>(
        &self,
        path: &str,
        usable: impl Fn() -> Result<(), RemoteError>,
        worth: impl Fn(&RemoteFault) -> bool,
        attempt: impl Fn() -> F,
    ) -> Result<T, RemoteError> {
        let (usable, attempt) = (&usable, &attempt);
        let numbered = |tries| async move {
            if tries > 1 {
                usable()?;
                self.counters.lock().retries += 1;
            }
            attempt().await.map_err(|fault| {
                let fault = fault.shown(|text| self.client.redact(text));
                self.counters.count(&fault);
                let url = self.url(path);
                RemoteError::Call { url, tries, fault }
            })
        };
        let again = |error: &RemoteError| match error {
            RemoteError::Call { fault, .. } if worth(fault) => match fault.again() {
                // Nothing is sent any more, so there is nothing to wait for.
                Again::Soon | Again::After(_) if usable().is_err() => Again::After(Duration::ZERO),
                again => again,
            },
            _ => Again::Never,
        };
        self.retry.run(numbered, again).await
    }

    /// A step of a push: tried again, but not after a time-out, because the server may still be at it.
    pub(super) async fn step(&self, step: &Step<'_>) -> Result<(), RemoteError> {
        let timed_out =
            |fault: &RemoteFault| matches!(fault, RemoteFault::Net(Fault::Timeout { .. }));
        let attempt = || async {
            let json = step.body.to_string().into_bytes();
            (step.take)(&self.post(step.path, json, step.limit).await?)
        };
        let worth = |fault: &RemoteFault| step.again && !timed_out(fault);
        self.retry(step.path, || Ok(()), worth, attempt).await
    }
}

/// A step of a push.
pub(super) struct Step<'a> {
    pub(super) path: &'a str,
    pub(super) body: &'a serde_json::Value,
    /// Longest time it may take.
    pub(super) limit: Duration,
    /// True where it is worth further tries.
    pub(super) again: bool,
    /// Finds the failure in an answer.
    pub(super) take: fn(&[u8]) -> Result<(), RemoteFault>,
}

//! Tries, waits between them, and the point at which a server counts as gone.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forage_env::seed::Seed;

use super::config::RemoteConfig;
use super::error::{RemoteError, RemoteFault};
use super::http::{Ask, Failure, Http};
use super::stats::Counters;

/// Longest wait between two tries, whatever the server asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Failures since the last success.
#[derive(Debug, Default)]
struct Health {
    failures: u32,
    last: String,
}

/// Calls one server again and again.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) http: Http,
    pub(super) counters: Counters,
    retries: u32,
    backoff: Duration,
    give_up_after: u32,
    health: Mutex<Health>,
}

impl Caller {
    pub(super) fn new(config: &RemoteConfig) -> Result<Self, RemoteError> {
        Ok(Self {
            http: Http::new(config)?,
            counters: Counters::default(),
            retries: config.retries,
            backoff: Duration::from_millis(config.backoff_ms),
            give_up_after: config.give_up_after,
            health: Mutex::default(),
        })
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server still counts as there.
    pub(super) fn alive(&self) -> Result<(), RemoteError> {
        let health = self.health();
        if health.failures < self.give_up_after {
            return Ok(());
        }
        let url = self.http.base().to_owned();
        Err(RemoteError::GivenUp { url, failures: health.failures, last: health.last.clone() })
    }

    /// Takes the outcome of a completion into account. Once gone, a late success does not bring the server back: some
    /// of the run's requests have been refused by then.
    pub(super) fn note<T>(&self, outcome: &Result<T, RemoteError>) {
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

    /// Tries until it works, the failure is one that stays, the tries are used up, or `go_on` refuses.
    pub(super) async fn retry<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        path: &str,
        seed: Seed,
        go_on: impl Fn(&RemoteFault) -> Result<bool, RemoteError>,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, RemoteError> {
        let mut tries = 0;
        loop {
            let Failure { fault, wait } = match attempt().await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            self.counters.count(&fault);
            tries += 1;
            let again = fault.passes() && tries <= self.retries && go_on(&fault)?;
            if !again {
                return Err(RemoteError::Call { url: self.http.url(path), tries, fault });
            }
            self.counters.lock().retries += 1;
            tokio::time::sleep(wait.unwrap_or_else(|| self.wait(seed, tries)).min(LONGEST_WAIT)).await;
            go_on(&fault)?;
        }
    }

    /// Between half and all of `backoff * 2^(tries - 1)`: where many requests fail at once, they do not come back at
    /// once.
    fn wait(&self, seed: Seed, tries: u32) -> Duration {
        let whole = self.backoff.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_WAIT);
        let jitter = seed.child("remote wait", &[u64::from(tries)]).0 >> 40;
        whole.mul_f64(0.5 + 0.5 * jitter as f64 / f64::from(1 << 24))
    }

    /// A step of a push: tried again, but not after a time-out, because the server may still be at it.
    pub(super) async fn step(&self, step: &Step<'_>) -> Result<(), RemoteError> {
        let ask = Ask::Post(step.body.to_string().into_bytes());
        let ask = &ask;
        let patient = |fault: &RemoteFault| Ok(step.again && !matches!(fault, RemoteFault::Timeout { .. }));
        let attempt = || async move {
            let bytes = self.http.exchange(step.path, ask, step.limit).await?;
            (step.take)(&bytes).map_err(Failure::from)
        };
        self.retry(step.path, Seed::root(0), patient, attempt).await
    }
}

/// A step of a push.
pub(super) struct Step<'a> {
    pub(super) path: &'a str,
    pub(super) body: &'a serde_json::Value,
    /// Longest time it may take.
    pub(super) limit: Duration,
    /// Whether it is worth further tries.
    pub(super) again: bool,
    /// Finds the failure in an answer.
    pub(super) take: fn(&[u8]) -> Result<(), RemoteFault>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::config::RemoteKind;

    #[test]
    fn waits_double_up_to_a_limit_and_differ_by_request_alone() {
        let config = RemoteConfig { backoff_ms: 100, ..RemoteConfig::new(RemoteKind::Sglang, "http://localhost", 16) };
        let caller = Caller::new(&config).unwrap();
        for tries in 1..40 {
            let whole = Duration::from_millis(100 * (1 << (tries - 1).min(16))).min(LONGEST_WAIT);
            let waits: Vec<Duration> = (0..50).map(|seed| caller.wait(Seed::root(seed), tries)).collect();
            assert!(waits.iter().all(|&wait| wait >= whole / 2 && wait <= whole), "{tries}: {waits:?}");
            assert_eq!(caller.wait(Seed::root(49), tries), waits[49]);
            let spread = waits.iter().max().unwrap().abs_diff(*waits.iter().min().unwrap());
            assert!(spread > whole / 4, "{tries}: {spread:?}");
        }
    }
}

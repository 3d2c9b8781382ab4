//! The one retry policy.

use std::fmt::Display;
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};

/// Longest wait between two attempts, whatever the server asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The consequence of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Not at all: the failure would be the same.
    Never,
    /// After the wait of the policy.
    Soon,
    /// After the wait that the server asked for.
    After(Duration),
}

/// The number of attempts and the waits in between: between half and all of `backoff * 2^n` after
/// attempt `n`, drawn at random so that requests that fail at once do not come back at once, and at most 30 s.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// Most attempts, at least 1.
    pub attempts: u32,
    /// Wait after the first failure.
    pub backoff: Duration,
    /// Longest time, attempts and waits together: a wait that would end after it is not begun.
    pub deadline: Option<Duration>,
}

impl Retry {
    /// Attempts until it works, or the failure or the policy forbids another attempt. `attempt` gets the number of the
    /// attempt, from 1.
    ///
    /// # Errors
    /// The failure of the last attempt.
    pub async fn run<T, E: Display, F: Future<Output = Result<T, E>>>(
        &self,
        mut attempt: impl FnMut(u32) -> F,
        again: impl Fn(&E) -> Again,
    ) -> Result<T, E> {
        let started = Instant::now();
        let mut number = 0;
        // The jitter adds up to the delay itself.
        let waits = ExponentialBuilder::new()
            .with_min_delay((self.backoff / 2).min(LONGEST_WAIT / 2))
            .with_max_delay(LONGEST_WAIT / 2)
            .with_factor(2.0)
            .with_max_times(self.attempts.saturating_sub(1) as usize)
            .with_jitter();
        let numbered = || {
            number += 1;
            attempt(number)
        };
        numbered
            .retry(waits)
            .sleep(tokio::time::sleep)
            .when(|failure| again(failure) != Again::Never)
            .adjust(|failure, wait| {
                let wait = match again(failure) {
                    Again::After(asked) => wait.map(|_| asked.min(LONGEST_WAIT)),
                    _ => wait,
                }?;
                let over = |deadline| started.elapsed() + wait >= deadline;
                (!self.deadline.is_some_and(over)).then_some(wait)
            })
            .notify(|failure, wait| {
                let wait_ms = wait.as_millis() as u64;
                tracing::debug!(%failure, wait_ms, "retry");
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const RETRY: Retry = Retry {
        attempts: 4,
        backoff: Duration::from_millis(100),
        deadline: None,
    };

    /// When each attempt was made, under a clock that only waits move.
    async fn times(retry: Retry, again: Again) -> Vec<Duration> {
        let begin = tokio::time::Instant::now();
        let times = Mutex::new(Vec::new());
        let attempt = |number| {
            let times = &times;
            async move {
                times.lock().unwrap().push(begin.elapsed());
                Err::<(), _>(number)
            }
        };
        let failure = retry.run(attempt, |_| again).await.unwrap_err();
        let times = times.into_inner().unwrap();
        assert_eq!(failure as usize, times.len(), "attempts are counted from 1");
        times
    }

    #[tokio::test(start_paused = true)]
    async fn waits_double_and_spread() {
        let mut firsts = Vec::new();
        for _ in 0..20 {
            let times = times(RETRY, Again::Soon).await;
            assert_eq!(times.len(), 4);
            for (place, pair) in times.windows(2).enumerate() {
                let wait = pair[1].abs_diff(pair[0]);
                let whole = Duration::from_millis(100 << place);
                let slack = Duration::from_millis(2);
                assert!(
                    wait + slack >= whole / 2 && wait <= whole + slack,
                    "{times:?}"
                );
            }
            firsts.push(times[1]);
        }
        firsts.sort();
        let spread = firsts[19].abs_diff(firsts[0]);
        assert!(spread > Duration::from_millis(10), "{firsts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_wait_is_longer_than_half_a_minute() {
        let patient = Retry {
            backoff: Duration::from_mins(10),
            ..RETRY
        };
        let found = times(patient, Again::Soon).await;
        let slack = Duration::from_millis(2);
        assert_eq!(found.len(), 4);
        for pair in found.windows(2) {
            assert!(
                pair[1].abs_diff(pair[0]) <= LONGEST_WAIT + slack,
                "{found:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_says_when_within_bounds() {
        let asked = times(RETRY, Again::After(Duration::from_secs(2))).await;
        assert_eq!(
            asked.len(),
            4,
            "asking for a wait grants no further attempt"
        );
        assert_eq!(asked[1].as_secs(), 2);
        let hour = times(RETRY, Again::After(Duration::from_hours(1))).await;
        assert_eq!(hour[1].as_secs(), 30);
    }

    #[tokio::test]
    async fn a_wait_beyond_the_deadline_is_not_begun() {
        let retry = Retry {
            deadline: Some(Duration::from_secs(1)),
            ..RETRY
        };
        assert_eq!(
            times(retry, Again::After(Duration::from_secs(2)))
                .await
                .len(),
            1
        );
        assert_eq!(times(RETRY, Again::Never).await.len(), 1);
    }
}

//! Runs of one process at the same time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Result, RunError};
use crate::observer::Observer;

/// The observer of one of several runs: when one fails the others stop too, with what they keep.
struct Beside<'a> {
    observer: &'a dyn Observer,
    failed: &'a AtomicBool,
}

impl Observer for Beside<'_> {
    fn say(&self, line: &str) {
        self.observer.say(line);
    }

    fn warn(&self, line: &str) {
        self.observer.warn(line);
    }

    fn progress(&self, task: &str, done: u64, total: u64, shown: &str) {
        self.observer.progress(task, done, total, shown);
    }

    fn is_stopped(&self) -> bool {
        self.failed.load(Ordering::SeqCst) || self.observer.is_stopped()
    }

    fn notice(&self) -> fn(&str) {
        self.observer.notice()
    }
}

/// Runs `job` for 0..`jobs`, `at_a_time` of them at once, and returns the results in order.
///
/// # Errors
/// The first failure in time: those that it stops fail as well, for a lesser reason.
pub(crate) fn side_by_side<T: Send>(
    at_a_time: usize,
    jobs: usize,
    observer: &dyn Observer,
    job: impl Fn(usize, &dyn Observer) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let failure: Mutex<Option<RunError>> = Mutex::default();
    let beside = Beside {
        observer,
        failed: &failed,
    };
    let work = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::SeqCst) {
            let place = next.fetch_add(1, Ordering::Relaxed);
            if place >= jobs {
                break;
            }
            match job(place, &beside) {
                Ok(result) => done.push((place, result)),
                Err(error) => {
                    let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    failure.get_or_insert(error);
                    failed.store(true, Ordering::SeqCst);
                }
            }
        }
        done
    };
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..at_a_time.min(jobs))
            .map(|_| scope.spawn(work))
            .collect();
        let mut done = work();
        for other in others {
            done.extend(
                other
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            );
        }
        done
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    done.sort_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::error::bail;

    #[test]
    fn results_are_in_order_whoever_was_first() {
        for at_a_time in [1, 2, 5] {
            let squares = side_by_side(at_a_time, 4, &(), |place, _| Ok(place * place));
            assert_eq!(squares.unwrap(), [0, 1, 4, 9]);
        }
    }

    #[test]
    fn the_first_failure_stops_the_others_and_is_told() {
        let both = Barrier::new(2);
        let told = side_by_side(2, 9, &(), |place, observer| -> Result<()> {
            assert!(place < 2, "nothing is begun after a failure");
            both.wait();
            if place == 1 {
                bail!("the disk is full");
            }
            while !observer.is_stopped() {
                std::thread::yield_now();
            }
            bail!("interrupted")
        });
        assert_eq!(told.unwrap_err().to_string(), "the disk is full");
    }
}

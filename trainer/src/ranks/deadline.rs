//! The time that a sum between ranks of one process may take. A thread or a device that hangs closes no connection, and the process
//! around it gives signs of life: nothing else here would notice it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::RankError;
use super::here::FIX;
use super::link::Losses;

/// Parts of the time that are waited for one after the other: a process that is halted within one and goes on has the others left.
const PARTS: u32 = 10;

/// The time, and what the ranks are doing meanwhile; shared by all of them.
#[derive(Clone, Debug)]
pub(super) struct Deadline {
    time: Duration,
    /// Whether each rank is working on a sum and not waiting for another one.
    at_work: Arc<[AtomicBool]>,
}

impl Deadline {
    pub(super) fn new(time: Duration, size: usize) -> Self {
        Self {
            time,
            at_work: (0..size).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Says whether a rank is at work, or waits for another one or is done.
    pub(super) fn works(&self, rank: usize, works: bool) {
        self.at_work[rank].store(works, Ordering::Release);
    }

    /// Notes a loss unless what this returns is dropped in time.
    pub(super) fn watch(&self, rank: usize, losses: &Arc<Losses>) -> io::Result<Watch> {
        let (deadline, losses) = (self.clone(), Arc::clone(losses));
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("sum watch".to_owned())
            .spawn(move || {
                let part = deadline.time / PARTS;
                let goes_on = |_| stopped.recv_timeout(part) == Err(RecvTimeoutError::Timeout);
                if (0..PARTS).all(goes_on) {
                    losses.note(deadline.loss(rank));
                }
            })?;
        Ok(Watch(Some((stop, thread))))
    }

    /// The loss of a sum that is not done, as `rank` sees it: the first rank that waits for no other is at fault.
    fn loss(&self, rank: usize) -> RankError {
        let seconds = self.time.as_secs_f64();
        let mut states = self.at_work.iter();
        match states.position(|works| works.load(Ordering::Acquire)) {
            Some(rank) => RankError::Lost {
                rank,
                what: format!(
                    "has not done its part of a sum of gradients in {seconds} s, and the others wait for it: its device or thread hangs"
                ),
            },
            None => RankError::Lost {
                rank,
                what: format!(
                    "has waited for a sum of gradients for {seconds} s, to which all have given their part: what connects the devices hangs; {FIX}"
                ),
            },
        }
    }
}

/// A sum that is watched.
pub(super) struct Watch(Option<(Sender<()>, JoinHandle<()>)>);

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

//! Several processes, or threads of one, that train one policy: ranks, which exchange over TCP what each has made. Processes meet by an
//! address.
//!
//! Every rank goes through every step with the same numbers. Groups of episodes are dealt to ranks and exchanged; the gradient is
//! summed part by part in an order that is fixed, whoever computes a part; all apply the same update, or each that of its share of
//! the weights. Rank 0 passes on what all need to know; gradients and updated weights go from each rank to the next, and gradients stay
//! on the GPUs where these can add them up.

mod calls;
mod deadline;
mod exchange;
mod here;
mod link;
mod rendezvous;
mod sample;
mod shards;
mod sum;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use burn::tensor::Device;
use deadline::{Deadline, Watch};
pub(crate) use exchange::{Vote, floats};
use link::{Farewell, Link, Losses};
pub(crate) use sample::sample;
pub(crate) use shards::{Coming, Cut, Questions, Shard};
pub(crate) use sum::Sums;

use crate::device::is_processor;
use crate::workers::Parts;

/// The place of a process among the ranks of a run, and where they meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankSettings {
    /// The number of this rank, from 0.
    pub rank: usize,
    /// Ranks in all.
    pub size: usize,
    /// The address at which rank 0 listens: `HOST:PORT`.
    pub address: String,
    /// A file with a secret that all ranks share; without it whoever reaches the address is trusted.
    pub secret_file: Option<PathBuf>,
    /// The longest time that ranks wait for each other at the start.
    pub wait: Duration,
    /// The longest silence before a rank counts as lost.
    pub silence: Duration,
}

impl RankSettings {
    /// Tells whether strangers can take part: rank 0 listens beyond this machine and asks for no secret.
    pub fn is_open(&self) -> bool {
        let beyond = || {
            let mut places = self.address.to_socket_addrs().into_iter().flatten();
            places.next().is_none_or(|place| !place.ip().is_loopback())
        };
        self.rank == 0 && self.size > 1 && self.secret_file.is_none() && beyond()
    }
}

/// Ranks that do not come together or do not stay together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// They cannot meet.
    #[error("the ranks cannot meet at {address}: {what}")]
    Meeting {
        /// The address.
        address: String,
        /// The fault and the fix.
        what: String,
    },
    /// A rank is gone, or not what it should be.
    #[error("rank {rank} {what}")]
    Lost {
        /// The rank.
        rank: usize,
        /// A predicate of it.
        what: String,
    },
    /// A rank cannot go on.
    #[error("rank {rank} stopped: {why}")]
    Stopped {
        /// The rank.
        rank: usize,
        /// Its error.
        why: String,
    },
}

/// This process, or thread, among the ranks of a run. One process alone is a rank too, to which nothing here costs anything.
#[derive(Debug)]
pub(crate) struct Ranks {
    rank: usize,
    size: usize,
    /// By rank: all others at rank 0, elsewhere rank 0 and the two neighbours.
    links: Arc<BTreeMap<usize, Link>>,
    losses: Arc<Losses>,
    /// By rank, where gradients are summed between them; else none.
    devices: Vec<Device>,
    /// Of ranks of one process.
    deadline: Option<Deadline>,
    /// The device was left in a sum.
    hangs: AtomicBool,
    /// Exchanges so far.
    exchanges: AtomicU32,
    heart: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Ranks {
    /// A process of its own.
    pub(crate) fn alone() -> Self {
        Self {
            rank: 0,
            size: 1,
            links: Arc::default(),
            losses: Arc::new(Losses::new()),
            devices: Vec::new(),
            deadline: None,
            hangs: AtomicBool::new(false),
            exchanges: AtomicU32::new(0),
            heart: None,
        }
    }

    /// Meets the other ranks, all of which must have the same `digest` of what they are to do. Blocks.
    ///
    /// # Errors
    /// [`RankError::Meeting`] when not all come in time, or one is of another run.
    pub(crate) fn join(settings: &RankSettings, digest: &str) -> Result<Self, RankError> {
        let streams = rendezvous::meet(settings, digest)?;
        Self::connected((settings.rank, settings.size), streams, settings.silence).map_err(
            |error| RankError::Meeting {
                address: settings.address.clone(),
                what: error.to_string(),
            },
        )
    }

    /// A rank, by its number and that of all, with its connections by the other's number.
    fn connected(
        (rank, size): (usize, usize),
        streams: BTreeMap<usize, TcpStream>,
        silence: Duration,
    ) -> io::Result<Self> {
        let losses = Arc::new(Losses::new());
        let link = |(peer, stream)| -> io::Result<(usize, Link)> {
            Ok((peer, Link::new(stream, peer, silence, &losses)?))
        };
        let links: io::Result<BTreeMap<usize, Link>> = streams.into_iter().map(link).collect();
        let links = Arc::new(links?);
        let beating = Arc::clone(&links);
        // Several signs fit into the silence that is allowed.
        let every = (silence / 5).max(Duration::from_millis(10));
        let (stop, stopped) = channel();
        let heart = std::thread::Builder::new()
            .name("ranks".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                    beating.values().for_each(Link::beat);
                }
            })?;
        Ok(Self {
            rank,
            size,
            links,
            losses,
            devices: Vec::new(),
            deadline: None,
            hangs: AtomicBool::new(false),
            exchanges: AtomicU32::new(0),
            heart: Some((stop, heart)),
        })
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// The first loss, if there was one.
    pub(crate) fn loss(&self) -> Option<RankError> {
        self.losses.first()
    }

    /// Waits for a loss, for ever where there is none.
    pub(crate) fn lost(&self) -> impl Future<Output = RankError> + Send + use<> {
        let (losses, mut told) = (Arc::clone(&self.losses), self.losses.watch());
        async move {
            loop {
                if let Some(error) = losses.first() {
                    return error;
                }
                if told.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// The part of 0..`jobs` that is this rank's: ranks have neighbouring ones, as many as each other or one more.
    pub(crate) fn own(&self, jobs: usize) -> Range<usize> {
        share(jobs, self.size, self.rank)
    }

    /// The jobs of a step that are this rank's, of `jobs` cut into as many parts, one for each rank where no number is given, and how
    /// they are cut.
    pub(crate) fn deal(&self, jobs: usize, parts: Option<usize>) -> (Range<usize>, Parts) {
        let count = parts.unwrap_or(self.size);
        let of = |part| share(jobs, count, part);
        let own = self.own(count);
        let first = of(own.start).start;
        let ends = own.map(|part| of(part).end - first).collect();
        let parts = Parts::new(ends, self.folds());
        (first..first + parts.jobs(), parts)
    }

    /// Tells whether devices of this process sum gradients between them.
    pub(crate) fn sums_on_devices(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Tells whether the device of this rank was left in a sum that did not end: what is kept on it cannot be read.
    pub(crate) fn hangs(&self) -> bool {
        self.hangs.load(Ordering::Relaxed)
    }

    /// Says whether this rank is at work on a sum, or waits for another one or is done.
    fn works(&self, works: bool) {
        if let Some(deadline) = &self.deadline {
            deadline.works(self.rank, works);
        }
    }

    /// Watches a sum that all have begun, until what this returns is dropped.
    fn watch(&self) -> Result<Option<Watch>, RankError> {
        let watch = |deadline: &Deadline| deadline.watch(self.rank, &self.losses);
        let watch = self.deadline.as_ref().map(watch).transpose();
        watch.map_err(|error| self.wrong(self.rank, &format!("cannot watch a sum: {error}")))
    }

    /// Tells whether the sums of this rank's parts may be added to each other before those of other ranks: those of rank 0 come first, and
    /// between devices no order is kept.
    fn folds(&self) -> bool {
        self.is_first() || self.sums_on_devices()
    }

    /// The norm of the gradient, of which this rank has found `own`. Kernels may have added in another order on each device: there rank 0's
    /// counts, so that all clip alike.
    pub(crate) fn norm(&self, own: f64, device: &Device) -> Result<f64, RankError> {
        if self.size == 1 || is_processor(device) {
            return Ok(own);
        }
        let first = self.of_first(own.to_le_bytes().to_vec())?;
        let first: [u8; 8] = first
            .try_into()
            .map_err(|_| self.wrong(0, "sends no norm"))?;
        Ok(f64::from_le_bytes(first))
    }

    /// Every rank's bytes, by rank; all ranks call this at the same place.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost.
    pub(crate) fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, RankError> {
        if self.size == 1 {
            return Ok(vec![own]);
        }
        let exchange = self.next_exchange();
        if self.rank > 0 {
            let root = self.link(0)?;
            root.send(exchange, &own)?;
            let all = (0..self.size).map(|_| root.receive(exchange));
            return all.collect();
        }
        let mut all = vec![own];
        for rank in 1..self.size {
            all.push(self.link(rank)?.receive(exchange)?);
        }
        for link in self.links.values() {
            for part in &all {
                link.send(exchange, part)?;
            }
        }
        Ok(all)
    }

    /// The bytes of rank 0; what others give does not count. All ranks call this at the same place.
    ///
    /// # Errors
    /// [`RankError`] when a rank is lost.
    pub(crate) fn of_first(&self, own: Vec<u8>) -> Result<Vec<u8>, RankError> {
        let exchange = self.next_exchange();
        if self.rank > 0 {
            return self.link(0)?.receive(exchange);
        }
        for link in self.links.values() {
            link.send(exchange, &own)?;
        }
        Ok(own)
    }

    /// Takes leave of the others: of a run that is over, or, with its error, of one that cannot go on. They learn of the first
    /// cause, which may be another rank.
    pub(crate) fn leave(&self, why: Option<&str>) {
        let stopped = |why: &str| RankError::Stopped {
            rank: self.rank,
            why: why.to_owned(),
        };
        let cause = why.map(|why| self.loss().unwrap_or_else(|| stopped(why)));
        let farewell = cause.as_ref().map(Farewell::of);
        for link in self.links.values() {
            link.part(farewell.as_ref());
        }
    }

    /// The error of a rank that sent what it should not.
    pub(crate) fn wrong(&self, rank: usize, what: &str) -> RankError {
        let what = what.to_owned();
        self.losses.note(RankError::Lost {
            rank,
            what: what.clone(),
        });
        self.loss().unwrap_or(RankError::Lost { rank, what })
    }

    fn next_exchange(&self) -> u32 {
        self.exchanges.fetch_add(1, Ordering::Relaxed)
    }

    fn link(&self, rank: usize) -> Result<&Link, RankError> {
        self.links
            .get(&rank)
            .ok_or_else(|| self.wrong(rank, "has no connection to this one"))
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        if let Some((stop, heart)) = self.heart.take() {
            drop(stop);
            let _ = heart.join();
        }
    }
}

/// The part of 0..`jobs` that falls to `index` of `count`.
fn share(jobs: usize, count: usize, index: usize) -> Range<usize> {
    index * jobs / count..(index + 1) * jobs / count
}

//! Ranks on threads of one process: their connections, and gradients summed between their GPUs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use burn::tensor::distributed::{ReduceOperation, all_reduce};
use burn::tensor::{DType, Device, Tensor};

use super::deadline::Deadline;
use super::link::LOOK;
use super::{RankError, Ranks};
use crate::device::has_collectives;
use crate::grads::NamedGrads;

/// Time without a sign of life after which a thread counts as lost: longer than any run. A thread that ends closes its connections, and a
/// process that is halted halts all of them.
const SILENCE: Duration = Duration::from_hours(100);
/// Time that a sum may take once all have come to it: the first loads NCCL and connects the GPUs. `PyTorch` allows NCCL as much.
const SUM: Duration = Duration::from_mins(10);
/// What can be done where GPUs cannot sum.
pub(super) const FIX: &str = "NCCL_DEBUG=WARN and --log warn tell more; in a container raise --shm-size, or start a process for each GPU with --ranks";

/// Why a device does not do its part of a sum.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Fault(pub(super) String);

impl Fault {
    fn of(error: impl Display) -> Self {
        Self(error.to_string())
    }
}

impl Ranks {
    /// The ranks of a run on threads of this process, in order, one for each of the devices. Where these can, they sum gradients
    /// themselves.
    pub(crate) fn here(devices: &[Device]) -> io::Result<Vec<Self>> {
        Self::here_within(devices, SUM)
    }

    /// The same where a sum may take so long.
    pub(super) fn here_within(devices: &[Device], time: Duration) -> io::Result<Vec<Self>> {
        let size = devices.len();
        let deadline = Deadline::new(time, size);
        let summing = size > 1 && devices.iter().all(has_collectives);
        let streams = pairs(size)?.into_iter().enumerate();
        let ranks = streams.map(|(rank, streams)| -> io::Result<Self> {
            let mut ranks = Self::connected((rank, size), streams, SILENCE)?;
            ranks.deadline = Some(deadline.clone());
            if summing {
                ranks.devices = devices.to_vec();
            }
            Ok(ranks)
        });
        ranks.collect()
    }

    /// The sum of what all ranks give, tensor by tensor, without a copy on the host. All get the same bits; the order of
    /// additions is NCCL's. `own` may be empty, which counts as zeros; `tensors` are names and numbers of all tensors.
    ///
    /// # Panics
    /// When the device is lost.
    pub(super) fn sum_between(
        &self,
        mut own: NamedGrads,
        tensors: &[(String, usize)],
        device: &Device,
    ) -> Result<NamedGrads, RankError> {
        if tensors.is_empty() {
            return Ok(own);
        }
        for (name, count) in tensors {
            let zeros = || Tensor::<1>::zeros([*count], (device, DType::F32));
            own.0.entry(name.clone()).or_insert_with(zeros);
        }
        // What has failed on a device shows when its numbers are read. In the sum the others would wait for it for ever.
        let own = self.apart(move || {
            own.global_norm();
            Ok(own)
        })?;
        self.works(false);
        self.gather(Vec::new())?;
        self.works(true);
        let (devices, device) = (self.devices.clone(), device.clone());
        let (deadline, rank) = (self.deadline.clone(), self.rank());
        self.apart(move || {
            let begin = |(name, gradient): (String, Tensor<1>)| {
                let sum = all_reduce(gradient, ReduceOperation::Sum, devices.clone());
                (name, sum)
            };
            let begun: Vec<_> = own.0.into_iter().map(begin).collect();
            if let Some(deadline) = deadline {
                deadline.works(rank, false);
            }
            let sums = begun.into_iter().map(|(name, sum)| (name, sum.resolve()));
            let sums = NamedGrads(sums.collect());
            // Not before it is done are kernels loaded or memory taken: the driver may make that wait for what waits in a sum.
            device.sync().map_err(Fault::of)?;
            // What NCCL refuses does not show before numbers are read.
            let firsts = sums.0.values().map(|sum| sum.clone().narrow(0, 0, 1));
            let read = Tensor::cat(firsts.collect(), 0).try_into_data();
            read.map_err(Fault::of)?;
            Ok(sums)
        })
    }

    /// What `job` makes on a thread of its own, which is left behind where another rank is lost meanwhile: nothing ends what waits for a
    /// device.
    ///
    /// # Panics
    /// Where the job does.
    pub(super) fn apart<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, RankError> {
        let (made, found) = channel();
        let thread = std::thread::Builder::new()
            .name("sum".to_owned())
            .spawn(move || {
                // Nobody listens any more where a rank was lost.
                let _ = made.send(job());
            })
            .map_err(|error| self.unsummed(&error))?;
        loop {
            match found.recv_timeout(LOOK) {
                Ok(found) => return found.map_err(|error| self.unsummed(&error)),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(error) = self.loss() {
                        self.hangs.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => match thread.join() {
                    Ok(()) => return Err(self.unsummed(&"its thread has ended")),
                    Err(panic) => std::panic::resume_unwind(panic),
                },
            }
        }
    }

    /// The error of this rank, whose device cannot take part in a sum.
    pub(super) fn unsummed(&self, error: &impl Display) -> RankError {
        let what = format!("cannot sum gradients with the other GPUs: {error}; {FIX}");
        self.wrong(self.rank(), &what)
    }
}

/// Connections between ranks of this process: by rank, then by the other's number, those that processes have too.
fn pairs(size: usize) -> io::Result<Vec<BTreeMap<usize, TcpStream>>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let mut all: Vec<BTreeMap<usize, TcpStream>> = Vec::new();
    all.resize_with(size, BTreeMap::new);
    for high in 1..size {
        // All are connected with rank 0 and their neighbours.
        let both = [0, high - 1];
        for &low in &both[usize::from(high == 1)..] {
            let calling = TcpStream::connect(address)?;
            let caller = calling.local_addr()?;
            let called = loop {
                let (stream, from) = listener.accept()?;
                // Who else calls is not a rank.
                if from == caller {
                    break stream;
                }
            };
            all[low].insert(high, called);
            all[high].insert(low, calling);
        }
    }
    Ok(all)
}

//! Ranks on threads of one process: their connections, and gradients summed between their GPUs.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use burn::tensor::distributed::{ReduceOperation, all_reduce};
use burn::tensor::{DType, Device, Tensor};

use super::{RankError, Ranks};
use crate::device::has_collectives;
use crate::grads::NamedGrads;

/// Threads of a process end with a word, and all of them stand still while it is halted.
const SILENCE: Duration = Duration::from_hours(100);

impl Ranks {
    /// The ranks of a run on threads of this process, in order, one for each of the devices. Where these can, they sum gradients
    /// themselves.
    pub(crate) fn here(devices: &[Device]) -> io::Result<Vec<Self>> {
        let size = devices.len();
        let summing = size > 1 && devices.iter().all(has_collectives);
        let streams = pairs(size)?.into_iter().enumerate();
        let ranks = streams.map(|(rank, streams)| -> io::Result<Self> {
            let mut ranks = Self::connected((rank, size), streams, SILENCE)?;
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
        own.global_norm();
        self.gather(Vec::new())?;
        let begin = |(name, gradient): (String, Tensor<1>)| {
            let sum = all_reduce(gradient, ReduceOperation::Sum, self.devices.clone());
            (name, sum)
        };
        let begun: Vec<_> = own.0.into_iter().map(begin).collect();
        let sums = begun.into_iter().map(|(name, sum)| (name, sum.resolve()));
        let sums = NamedGrads(sums.collect());
        // Not before it is done are kernels loaded or memory taken: the driver may make that wait for what waits in a sum.
        device.sync().map_err(|error| {
            let what = format!("cannot sum gradients with the other GPUs: {error}");
            self.wrong(self.rank(), &what)
        })?;
        Ok(sums)
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
                // Who else calls is no rank.
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

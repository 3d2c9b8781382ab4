//! Weights of a sharded optimizer: what each rank has made of its share, brought to all.

use std::collections::BTreeMap;

use burn::module::{ModuleMapper, Param};
use burn::tensor::{DType, Tensor, TensorData, Transaction};

use super::AdamW;
#[cfg(test)]
use super::{Kept, Moments};
use crate::model::{Decoder, ModelConfig};
use crate::ranks::{Coming, Cut, RankError, Ranks, Shard};

impl AdamW {
    /// Keeps the moments of this shard alone from now on, where the config says so; one that has moments keeps what it has.
    pub(crate) fn deal(&mut self, shard: Shard) {
        if self.config.sharded && self.moments.is_empty() {
            self.shard = shard;
        }
    }

    /// Returns whether other ranks keep a part of the moments.
    pub(crate) fn is_sharded(&self) -> bool {
        !self.shard.is_whole()
    }

    /// Numbers of both moments that are kept here.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        let kept = self
            .moments
            .values()
            .filter_map(|entry| entry.kept.as_ref());
        kept.map(|kept| match kept {
            Kept::Full(Moments { first, second }) => first.dims()[0] + second.dims()[0],
            Kept::EightBit(moments) => moments.first.codes.len() + moments.root.codes.len(),
            #[cfg(feature = "gpu")]
            Kept::Packed(moments) => moments.kept(),
        })
        .sum()
    }
}

/// Numbers that are read from a device together: 64 MiB.
const READ: usize = 1 << 24;

/// The changed numbers of a rank's share.
#[derive(Default)]
pub(super) struct Changed {
    /// Numbers of this rank's share of all parameters, in the order of the decoder.
    own: Vec<f32>,
    /// Those after them, which are to be read from the device.
    unread: Vec<Tensor<1>>,
    /// The parameters, whether or not some of their numbers are this rank's.
    cuts: BTreeMap<String, Cut>,
}

impl Changed {
    /// Adds a parameter.
    pub(super) fn name(&mut self, name: &str, cut: Cut) {
        self.cuts.insert(name.to_owned(), cut);
    }

    /// Adds this rank's numbers of a parameter.
    ///
    /// # Panics
    /// When the device is lost.
    pub(super) fn add(&mut self, numbers: Tensor<1>) {
        self.unread.push(numbers);
        let unread = self.unread.iter().map(|numbers| numbers.dims()[0]);
        if unread.sum::<usize>() >= READ {
            self.read();
        }
    }

    /// Reads what is unread, in one go: a device waits for each read.
    fn read(&mut self) {
        if self.unread.is_empty() {
            return;
        }
        let mut reads = Transaction::default();
        for numbers in self.unread.drain(..) {
            reads = reads.register(numbers);
        }
        for numbers in reads.execute() {
            let numbers = numbers.convert::<f32>();
            let numbers: Vec<f32> = numbers.try_into_vec().expect("converted just before");
            self.own.extend(numbers);
        }
    }

    /// Brings them to all ranks, and puts those of all ranks into the decoder, of this shape. What was not yet exchanged when a rank is
    /// lost stays as it was.
    pub(super) fn spread(
        mut self,
        decoder: &mut Decoder,
        shape: &ModelConfig,
        shard: Shard,
        ranks: &Ranks,
    ) -> Result<(), RankError> {
        self.read();
        let Self { own, cuts, .. } = self;
        if cuts.is_empty() {
            return Ok(());
        }
        let of = |rank| -> usize { cuts.values().map(|&cut| shard.of(rank, cut).len()).sum() };
        let counts = (0..shard.size()).map(of).collect();
        let mut exchange = Exchange {
            shard,
            cuts,
            coming: ranks.all_gather(own, counts),
            failed: None,
            path: Vec::new(),
        };
        super::map(decoder, shape, &mut exchange);
        exchange.failed.map_or(Ok(()), Err)
    }
}

/// Makes changed parameters of the shares of all ranks.
struct Exchange<'a> {
    shard: Shard,
    /// The parameters whose turn is yet to come.
    cuts: BTreeMap<String, Cut>,
    coming: Coming<'a>,
    failed: Option<RankError>,
    path: Vec<String>,
}

impl ModuleMapper for Exchange<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let cut = self.cuts.remove(&self.path.join("."));
        let Some(cut) = cut.filter(|_| self.failed.is_none()) else {
            return param;
        };
        let (id, value, mapper) = param.consume();
        let mut numbers = vec![0.0; cut.count];
        let taken = (0..self.shard.size()).try_for_each(|rank| {
            let share = self.shard.of(rank, cut);
            self.coming.take(rank, &mut numbers[share])
        });
        let value = match taken {
            Ok(()) => {
                let numbers = TensorData::new(numbers, value.shape());
                Tensor::from_data(numbers, (&value.device(), DType::F32))
            }
            Err(error) => {
                self.failed = Some(error);
                value
            }
        };
        Param::from_mapped_value(id, value, mapper)
    }
}

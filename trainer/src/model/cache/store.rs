//! Keys and values, where the device of the model wants them.

use burn::tensor::Tensor;

use super::host::{HostCache, HostPass};
use super::pass::Pass;
#[cfg(feature = "gpu")]
use crate::model::cube;
use crate::model::host::BLOCK;
use crate::model::{Decoder, Kernels, ModelConfig, RopeTables};

/// Positions per block.
pub(crate) const BLOCK_POSITIONS: usize = BLOCK;

/// Keys and values of every layer.
#[derive(Debug)]
pub(crate) struct KvCache {
    store: Store,
}

#[derive(Debug)]
enum Store {
    /// In plain memory, for the kernels of the processor.
    Host(HostCache),
    /// In tensors, for every other device.
    #[cfg(feature = "gpu")]
    Cube(cube::CubeCache),
}

/// Bytes that attention on a device has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// What its kernels read and wrote, by their own arithmetic.
    pub(crate) moved: u64,
    /// Keys and values of the sequences of each pass, each once: what had to be read.
    pub(crate) live: u64,
}

impl KvCache {
    /// Memory for `blocks` blocks of [`BLOCK_POSITIONS`] positions of what `decoder` computes.
    pub(crate) fn new(config: &ModelConfig, blocks: usize, decoder: &Decoder) -> Self {
        let device = &decoder.device();
        let store = match Kernels::of(device) {
            #[cfg(feature = "gpu")]
            Kernels::Cube => {
                let dtype = decoder.dtype();
                Store::Cube(cube::CubeCache::new(config, blocks, dtype, device))
            }
            _ => Store::Host(HostCache::new(config, blocks)),
        };
        Self { store }
    }

    /// Numbers that a position takes: a key and a value of every layer.
    pub(crate) fn numbers_per_position(config: &ModelConfig) -> usize {
        2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    }

    /// Bytes moved so far; none on the processor, whose kernels do not count.
    pub(crate) fn traffic(&self) -> Traffic {
        match &self.store {
            Store::Host(_) => Traffic::default(),
            #[cfg(feature = "gpu")]
            Store::Cube(cache) => cache.traffic,
        }
    }

    /// Pads a pass to shapes the device has seen before, where that matters.
    pub(in crate::model) fn pad(&self, pass: &mut Pass<'_>) {
        #[cfg(feature = "gpu")]
        if matches!(self.store, Store::Cube(_)) {
            pass.rows = bucket(pass.rows);
        }
        let _ = pass;
    }

    /// Final hidden states of the rows of a pass, `[rows, hidden]`.
    pub(in crate::model) fn hidden(
        &mut self,
        decoder: &Decoder,
        config: &ModelConfig,
        rope: &RopeTables,
        pass: &Pass<'_>,
    ) -> Tensor<2> {
        match &mut self.store {
            Store::Host(cache) => {
                let mut attention = HostPass { cache, rope, pass };
                let attend = |layer, heads| attention.attend(layer, heads);
                decoder.run(config, &pass.ids(), attend)
            }
            #[cfg(feature = "gpu")]
            Store::Cube(cache) => cube::hidden(decoder, config, rope, pass, cache),
        }
    }
}

/// The next of a few sizes: powers of two up to 64, then multiples of 64.
#[cfg(feature = "gpu")]
fn bucket(size: usize) -> usize {
    if size <= 64 {
        size.next_power_of_two()
    } else {
        size.next_multiple_of(64)
    }
}

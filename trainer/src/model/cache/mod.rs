//! The paged key-value cache: blocks of positions that sequences refer to, so that memory follows what is used and equal
//! prefixes are kept once.

mod device;
mod host;
#[cfg(test)]
mod tests;

#[cfg(test)]
use burn::tensor::{DType, Device};

use super::attend::{Attend, Heads};
use super::host::BLOCK;
use super::{Decoder, ModelConfig, RopeTables};
use crate::device::is_processor;

/// Positions per block.
pub(crate) const BLOCK_POSITIONS: usize = BLOCK;

/// New tokens of one sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk<'a> {
    /// Token ids.
    pub ids: &'a [u32],
    /// Position of the first one; the cache holds everything before it.
    pub start: usize,
    /// The sequence's blocks, in order, up to the last new token at least.
    pub blocks: &'a [u32],
}

/// The tokens that go through the model together.
#[derive(Clone, Debug)]
pub(crate) struct Pass<'a> {
    chunks: Vec<Chunk<'a>>,
    /// Rows with padding: shapes of a GPU repeat.
    rows: usize,
}

impl<'a> Pass<'a> {
    /// Chunks in the order their hidden states come back.
    ///
    /// # Panics
    /// When there is nothing to run.
    pub(crate) fn new(chunks: Vec<Chunk<'a>>) -> Self {
        let rows = chunks.iter().map(|chunk| chunk.ids.len()).sum();
        assert!(rows > 0, "a pass has tokens");
        Self { chunks, rows }
    }

    /// Tokens without padding.
    pub(crate) fn tokens(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.ids.len()).sum()
    }

    pub(super) fn ids(&self) -> Vec<i32> {
        let mut ids: Vec<i32> = self
            .chunks
            .iter()
            .flat_map(|chunk| chunk.ids)
            .map(|&id| id as i32)
            .collect();
        ids.resize(self.rows, 0);
        ids
    }

    /// `(sequence, position)` of every token.
    fn places(&self) -> impl Iterator<Item = (&Chunk<'a>, usize)> {
        self.chunks
            .iter()
            .flat_map(|chunk| (0..chunk.ids.len()).map(move |offset| (chunk, chunk.start + offset)))
    }
}

/// The next of a few sizes: powers of two up to 64, then multiples of 64.
fn bucket(size: usize) -> usize {
    if size <= 64 {
        size.next_power_of_two()
    } else {
        size.next_multiple_of(64)
    }
}

/// Keys and values of every layer.
#[derive(Debug)]
pub(crate) struct KvCache {
    store: Store,
}

#[derive(Debug)]
enum Store {
    /// In plain memory, for the kernels of the processor.
    Host(host::HostCache),
    /// In tensors, for every other device.
    Device(device::DeviceCache),
}

impl KvCache {
    /// Memory for `blocks` blocks of [`BLOCK_POSITIONS`] positions of what `decoder` computes.
    pub(crate) fn new(config: &ModelConfig, blocks: usize, decoder: &Decoder) -> Self {
        let device = &decoder.device();
        let store = if is_processor(device) {
            Store::Host(host::HostCache::new(config, blocks))
        } else {
            Store::Device(device::DeviceCache::new(
                config,
                blocks,
                decoder.dtype(),
                device,
            ))
        };
        Self { store }
    }

    /// The same cache in tensors whatever the device: what a GPU runs, where a test can reach it.
    #[cfg(test)]
    fn in_tensors(config: &ModelConfig, blocks: usize, device: &Device) -> Self {
        Self {
            store: Store::Device(device::DeviceCache::new(config, blocks, DType::F32, device)),
        }
    }

    /// Numbers that a position takes: a key and a value of every layer.
    pub(crate) fn numbers_per_position(config: &ModelConfig) -> usize {
        2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    }

    /// Pads a pass to shapes the device has seen before, where that matters.
    pub(super) fn pad(&self, pass: &mut Pass<'_>) {
        if matches!(self.store, Store::Device(_)) {
            pass.rows = bucket(pass.rows);
        }
    }

    /// Attention of one pass.
    pub(super) fn over<'a>(
        &'a mut self,
        rope: &'a RopeTables,
        pass: &'a Pass<'a>,
    ) -> Box<dyn Attend + 'a> {
        match &mut self.store {
            Store::Host(cache) => Box::new(host::HostPass { cache, rope, pass }),
            Store::Device(cache) => Box::new(device::DevicePass::new(cache, rope, pass)),
        }
    }
}

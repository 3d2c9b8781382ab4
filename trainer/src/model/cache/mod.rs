//! The paged key-value cache: blocks of positions that sequences refer to, so that memory follows what is used and equal
//! prefixes are kept once.

mod host;
#[cfg(test)]
mod tests;

use burn::tensor::Tensor;

use super::attend::Heads;
#[cfg(feature = "gpu")]
use super::cube;
use super::host::BLOCK;
use super::{Decoder, Kernels, ModelConfig, RopeTables};

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
    pub(super) chunks: Vec<Chunk<'a>>,
    /// Rows with padding: shapes of a GPU repeat.
    pub(super) rows: usize,
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
    pub(super) fn places(&self) -> impl Iterator<Item = (&Chunk<'a>, usize)> {
        self.chunks
            .iter()
            .flat_map(|chunk| (0..chunk.ids.len()).map(move |offset| (chunk, chunk.start + offset)))
    }
}

#[cfg(feature = "gpu")]
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
            _ => Store::Host(host::HostCache::new(config, blocks)),
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
    pub(super) fn pad(&self, pass: &mut Pass<'_>) {
        #[cfg(feature = "gpu")]
        if matches!(self.store, Store::Cube(_)) {
            pass.rows = bucket(pass.rows);
        }
        let _ = pass;
    }

    /// Final hidden states of the rows of a pass, `[rows, hidden]`.
    pub(super) fn hidden(
        &mut self,
        decoder: &Decoder,
        config: &ModelConfig,
        rope: &RopeTables,
        pass: &Pass<'_>,
    ) -> Tensor<2> {
        match &mut self.store {
            Store::Host(cache) => {
                let mut attention = host::HostPass { cache, rope, pass };
                let attend = |layer, heads| attention.attend(layer, heads);
                decoder.run(config, &pass.ids(), attend)
            }
            #[cfg(feature = "gpu")]
            Store::Cube(cache) => cube::hidden(decoder, config, rope, pass, cache),
        }
    }
}

//! The cache in plain memory: kernels of the processor write and read it in place.

use burn::tensor::{Tensor, TensorData};

use super::pass::{Chunk, Pass};
use crate::model::attend::Heads;
use crate::model::host::{self, BLOCK, Layer, Run};
use crate::model::{ModelConfig, RopeTables};

/// See [`Layer`] for the order of the numbers.
#[derive(Debug)]
pub(super) struct HostCache {
    layers: Vec<(Vec<f32>, Vec<f32>)>,
    kv_heads: usize,
    head_dim: usize,
}

impl HostCache {
    pub(super) fn new(config: &ModelConfig, blocks: usize) -> Self {
        let (kv_heads, head_dim) = (config.num_key_value_heads, config.head_dim);
        let size = blocks * kv_heads * head_dim * BLOCK;
        // Zeroed memory is not touched before its first use: only what is used is ever resident.
        let layers = (0..config.num_hidden_layers)
            .map(|_| (vec![0.0; size], vec![0.0; size]))
            .collect();
        Self {
            layers,
            kv_heads,
            head_dim,
        }
    }

    /// Stores one token's keys and values, `[kv_heads, head_dim]` each.
    fn write(&mut self, layer: usize, block: u32, slot: usize, keys: &[f32], values: &[f32]) {
        let (all_keys, all_values) = &mut self.layers[layer];
        let dim = self.head_dim;
        for head in 0..self.kv_heads {
            let start = (block as usize * self.kv_heads + head) * dim * BLOCK;
            let stored = &mut all_keys[start..start + dim * BLOCK];
            for (place, key) in keys[head * dim..][..dim].iter().enumerate() {
                stored[place * BLOCK + slot] = *key;
            }
            all_values[start + slot * dim..][..dim].copy_from_slice(&values[head * dim..][..dim]);
        }
    }
}

/// One pass over a [`HostCache`].
pub(super) struct HostPass<'a> {
    pub(super) cache: &'a mut HostCache,
    pub(super) rope: &'a RopeTables,
    pub(super) pass: &'a Pass<'a>,
}

impl<'a> HostPass<'a> {
    /// Grouped-query attention of one layer: the mixed values, `[n, heads * head_dim]`.
    pub(super) fn attend(&mut self, layer: usize, heads: Heads) -> Tensor<2> {
        let [n, query_heads, dim] = heads.queries.dims();
        let device = heads.queries.device();
        let kv_width = self.cache.kv_heads * dim;
        let mut keys = values_of(heads.keys);
        host::read(heads.values, |values| {
            let lines = keys
                .chunks_exact_mut(kv_width)
                .zip(values.chunks_exact(kv_width));
            for ((chunk, position), (key, value)) in self.pass.places().zip(lines) {
                self.rope.rotate_in_place(key, position);
                self.cache.write(
                    layer,
                    chunk.blocks[position / BLOCK],
                    position % BLOCK,
                    key,
                    value,
                );
            }
        });
        let mut queries = values_of(heads.queries);
        for ((_, position), query) in self
            .pass
            .places()
            .zip(queries.chunks_exact_mut(query_heads * dim))
        {
            self.rope.rotate_in_place(query, position);
        }
        let run = |chunk: &Chunk<'a>| Run {
            blocks: chunk.blocks,
            start: chunk.start,
            count: chunk.ids.len(),
        };
        let runs: Vec<Run<'_>> = self.pass.chunks.iter().map(run).collect();
        let (keys, values) = &self.cache.layers[layer];
        let stored = Layer {
            keys,
            values,
            kv_heads: self.cache.kv_heads,
            head_dim: dim,
        };
        let mixed = host::attend(&queries, query_heads, &runs, &stored);
        Tensor::from_data(TensorData::new(mixed, [n, query_heads * dim]), &device)
    }
}

/// A tensor's numbers, taken over when nothing else holds them.
fn values_of(x: Tensor<3>) -> Vec<f32> {
    x.into_data()
        .try_into_vec()
        .expect("the processor computes in f32")
}

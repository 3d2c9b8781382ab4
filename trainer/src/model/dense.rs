//! Attention of whole sequences, each to itself, in Burn's own operations: what training runs, on any device.
//!
//! Scores are made for a block of queries at a time and dropped, so memory grows with a sequence's length, not with its
//! square. The derivative is written out (Dao et al. 2022, `FlashAttention`, algorithm 4, without the tiling of keys);
//! where the projections carry a graph, Burn's autodiff differentiates the same forward pass, which keeps every block.

use std::ops::Range;

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};

use super::attend::{Attend, Heads, MASKED};
use super::host;
use super::rope::rotate;
use super::{Batch, ModelConfig, RopeTables};

/// Most scores in memory at once, over all heads of a block of queries.
pub(crate) const BLOCK_SCORES: usize = 1 << 22;

/// Whole sequences, each attending to itself causally.
pub(crate) struct Dense {
    cos: Tensor<3>,
    sin: Tensor<3>,
    spans: Vec<Range<usize>>,
    /// Additive mask of a block of queries, `[block, longest + block]`: in row i, columns up to `longest + i` are seen. The
    /// mask of a block whose first query stands at position p starts at column `longest - p`.
    mask: Tensor<2>,
    longest: usize,
    block: usize,
}

/// Projections of one sequence with heads first; the query heads that share a key head stand together.
struct Sequence {
    /// `[kv_heads, group, length, head_dim]`.
    queries: Tensor<4>,
    /// `[kv_heads, length, head_dim]`.
    keys: Tensor<3>,
    /// `[kv_heads, length, head_dim]`.
    values: Tensor<3>,
}

impl Dense {
    /// For the sequences of `batch`; `device` is that of the projections.
    pub(crate) fn new(config: &ModelConfig, rope: &RopeTables, batch: &Batch, device: &Device) -> Self {
        let plain = device.clone().without_autodiff();
        let (cos, sin) = rope.rows(Tensor::<1, Int>::from_ints(batch.positions().as_slice(), &plain));
        let longest = batch.spans().iter().map(Range::len).max().unwrap_or(0);
        let block = (BLOCK_SCORES / (config.num_attention_heads * longest.max(1))).clamp(16, longest.max(16));
        let block = block.min(longest.max(1));
        let mask = mask(block, longest, &plain);
        Self { cos, sin, spans: batch.spans().to_vec(), mask, longest, block }
    }

    /// Blocks of the queries of a sequence.
    fn blocks(&self, length: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let block = self.block;
        (0..length).step_by(block).map(move |start| start..(start + block).min(length))
    }

    /// Additive mask of a block of queries, `[1, queries, keys]`: a query sees what stands before it, and itself.
    fn mask(&self, block: &Range<usize>, device: &Device) -> Tensor<3> {
        let first = self.longest - block.start;
        let mask = self.mask.clone().slice([0..block.len(), first..first + block.end]).unsqueeze();
        if device.is_autodiff() { mask.autodiff() } else { mask }
    }

    /// The weights of a block of queries, `[kv_heads, group * queries, keys]`, and the queries, rows alike.
    fn weights(&self, sequence: &Sequence, block: &Range<usize>) -> (Tensor<3>, Tensor<3>) {
        let [kv_heads, group, _, dim] = sequence.queries.dims();
        let (queries, keys) = (block.len(), block.end);
        let folded = sequence.queries.clone().narrow(2, block.start, queries).reshape([kv_heads, group * queries, dim]);
        let seen = sequence.keys.clone().narrow(1, 0, keys).swap_dims(1, 2);
        let scores = folded.clone().matmul(seen);
        if host::runs_on(&scores) {
            return (host::causal_softmax(scores, queries, block.start, scale(dim) as f32), folded);
        }
        let scores = scores * scale(dim);
        let scores = scores.reshape([kv_heads * group, queries, keys]) + self.mask(block, &folded.device());
        (softmax(scores, 2).reshape([kv_heads, group * queries, keys]), folded)
    }

    /// Rotates queries and keys.
    pub(crate) fn rotate(&self, heads: Heads) -> Heads {
        let same = |tensor: &Tensor<3>| {
            if heads.queries.is_autodiff() { tensor.clone().autodiff() } else { tensor.clone() }
        };
        let (cos, sin) = (same(&self.cos), same(&self.sin));
        let Heads { queries, keys, values } = heads;
        Heads { queries: rotate(queries, &cos, &sin), keys: rotate(keys, &cos, &sin), values }
    }

    /// Gradient by the heads that [`Self::rotate`] was given, from that by its result; nothing carries a graph.
    pub(crate) fn rotate_backward(&self, slopes: Heads) -> Heads {
        let sin = self.sin.clone().neg();
        let back = |slope| rotate(slope, &self.cos, &sin);
        Heads { queries: back(slopes.queries), keys: back(slopes.keys), values: slopes.values }
    }

    /// Mixed values of rotated heads, `[n, heads * head_dim]`.
    pub(crate) fn mix(&self, heads: &Heads) -> Tensor<2> {
        let [n, query_heads, dim] = heads.queries.dims();
        let mut parts = Vec::new();
        for span in self.spans.iter().filter(|span| !span.is_empty()) {
            let sequence = sequence(heads, span);
            let blocks = self.blocks(span.len()).map(|block| {
                let (weights, _) = self.weights(&sequence, &block);
                let values = sequence.values.clone().narrow(1, 0, block.end);
                weights.matmul(values).reshape([query_heads, block.len(), dim]).swap_dims(0, 1)
            });
            parts.extend(blocks);
        }
        Tensor::cat(parts, 0).reshape([n, query_heads * dim])
    }

    /// Gradient by rotated heads of a loss whose gradient by [`Self::mix`]'s result `mixed` is `slope`, both
    /// `[n, heads * head_dim]`. Nothing carries a graph.
    pub(crate) fn mix_backward(&self, heads: &Heads, mixed: &Tensor<2>, slope: &Tensor<2>) -> Heads {
        let [n, query_heads, dim] = heads.queries.dims();
        let by_head = |x: &Tensor<2>| x.clone().reshape([n, query_heads, dim]);
        let (mixed, slope) = (by_head(mixed), by_head(slope));
        let (mut queries, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for span in self.spans.iter().filter(|span| !span.is_empty()) {
            let slopes = self.sequence_backward(&sequence(heads, span), span, &mixed, &slope);
            queries.push(slopes.queries);
            keys.push(slopes.keys);
            values.push(slopes.values);
        }
        Heads { queries: Tensor::cat(queries, 0), keys: Tensor::cat(keys, 0), values: Tensor::cat(values, 0) }
    }

    /// [`Self::mix_backward`] of one sequence: with weights P, dV = P'dO, dP = dO V', dS = P (dP - rowsum(dO O)).
    fn sequence_backward(
        &self,
        sequence: &Sequence,
        span: &Range<usize>,
        mixed: &Tensor<3>,
        slope: &Tensor<3>,
    ) -> Heads {
        let [kv_heads, group, _, dim] = sequence.queries.dims();
        let mut parts = Vec::new();
        let (mut keys, mut values) = (sequence.keys.zeros_like(), sequence.values.zeros_like());
        for block in self.blocks(span.len()) {
            let (weights, queries) = self.weights(sequence, &block);
            let rows = |x: &Tensor<3>| {
                let x = x.clone().narrow(0, span.start + block.start, block.len()).swap_dims(0, 1);
                x.reshape([kv_heads, group * block.len(), dim])
            };
            let (mixed, slope) = (rows(mixed), rows(slope));
            let seen = |x: &Tensor<3>| x.clone().narrow(1, 0, block.end);
            let add = |total: Tensor<3>, part: Tensor<3>| {
                let place = [0..kv_heads, 0..block.end, 0..dim];
                let sum = seen(&total) + part;
                total.slice_assign(place, sum)
            };
            values = add(values, weights.clone().swap_dims(1, 2).matmul(slope.clone()));
            let level = (slope.clone() * mixed).sum_dim(2);
            let slope = slope.matmul(seen(&sequence.values).swap_dims(1, 2));
            let scores = if host::runs_on(&slope) {
                host::softmax_backward(weights, slope, level, scale(dim) as f32)
            } else {
                weights * (slope - level) * scale(dim)
            };
            keys = add(keys, scores.clone().swap_dims(1, 2).matmul(queries));
            let queries = scores.matmul(seen(&sequence.keys));
            parts.push(queries.reshape([kv_heads * group, block.len(), dim]).swap_dims(0, 1));
        }
        Heads { queries: Tensor::cat(parts, 0), keys: keys.swap_dims(0, 1), values: values.swap_dims(0, 1) }
    }
}

impl Attend for Dense {
    fn attend(&mut self, _layer: usize, heads: Heads) -> Tensor<2> {
        let heads = self.rotate(heads);
        self.mix(&heads)
    }
}

fn sequence(heads: &Heads, span: &Range<usize>) -> Sequence {
    let [_, query_heads, dim] = heads.queries.dims();
    let [_, kv_heads, _] = heads.keys.dims();
    let rows = |x: &Tensor<3>| x.clone().narrow(0, span.start, span.len()).swap_dims(0, 1);
    Sequence {
        queries: rows(&heads.queries).reshape([kv_heads, query_heads / kv_heads, span.len(), dim]),
        keys: rows(&heads.keys),
        values: rows(&heads.values),
    }
}

/// See [`Dense::mask`].
fn mask(block: usize, longest: usize, device: &Device) -> Tensor<2> {
    let row = |i: usize| std::iter::repeat_n(0.0, longest + i + 1).chain(std::iter::repeat_n(MASKED, block - i - 1));
    let mask: Vec<f32> = (0..block).flat_map(row).collect();
    Tensor::from_data(TensorData::new(mask, [block, longest + block]), device)
}

fn scale(dim: usize) -> f64 {
    1.0 / (dim as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use forage_env::seed::Seed;
    use rand::RngExt;

    use super::*;
    use crate::model::Architecture;

    fn numbers<const D: usize>(shape: [usize; D], seed: u64) -> Tensor<D> {
        let mut rng = Seed::root(seed).rng();
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.random::<f32>() - 0.5).collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex())
    }

    fn assert_close<const D: usize>(found: &Tensor<D>, expected: &Tensor<D>, what: &str) {
        let gap = (found.clone() - expected.clone()).abs().max().into_scalar::<f32>();
        assert!(gap < 1e-6, "{what}: {gap}");
    }

    /// Values and derivatives in blocks of queries equal those of autodiff over whole sequences.
    #[test]
    fn blocks_of_queries_make_no_difference() {
        let config = ModelConfig {
            architecture: Architecture::Qwen3,
            vocab_size: 10,
            hidden_size: 16,
            intermediate_size: 16,
            num_hidden_layers: 1,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 6,
            max_position_embeddings: 32,
            rope_theta: 100.0,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
        };
        let ids: Vec<u32> = vec![1; 23];
        let batch = Batch::new(&[&ids[..11], &ids[..1], &ids]);
        let device = Device::flex();
        let rope = RopeTables::new(&config, 32, &device);
        let whole = Dense::new(&config, &rope, &batch, &device);
        let heads =
            Heads { queries: numbers([35, 4, 6], 1), keys: numbers([35, 2, 6], 2), values: numbers([35, 2, 6], 3) };
        let slope = numbers([35, 24], 4);
        let leaf = |x: &Tensor<3>| x.clone().autodiff().require_grad();
        let leaves = Heads { queries: leaf(&heads.queries), keys: leaf(&heads.keys), values: leaf(&heads.values) };
        let expected = whole.mix(&leaves);
        let gradients = (expected.clone() * slope.clone().autodiff()).sum().backward();
        for block in [1, 4, 5, 16] {
            let longest = whole.longest;
            let blocks =
                Dense { block, mask: mask(block, longest, &device), ..Dense::new(&config, &rope, &batch, &device) };
            let mixed = blocks.mix(&heads);
            assert_close(&mixed, &expected.clone().inner(), "values");
            let found = blocks.mix_backward(&heads, &mixed, &slope);
            for (found, leaf, what) in [
                (found.queries, &leaves.queries, "queries"),
                (found.keys, &leaves.keys, "keys"),
                (found.values, &leaves.values, "values"),
            ] {
                assert_close(&found, &leaf.grad(&gradients).unwrap(), what);
            }
        }
    }
}

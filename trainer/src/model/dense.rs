//! Attention of whole sequences, each to itself: what training runs, on any device.
//!
//! On a GPU kernels of our own attend to all sequences of a batch at once. Elsewhere, in products of matrices, scores are made for a
//! block of queries at a time and dropped, so memory grows with a sequence's length, not with its square. The derivative is
//! written out (Dao et al. 2022, `FlashAttention`, algorithm 4, without the tiling of keys); where the projections carry a
//! graph, Burn's autodiff differentiates the same forward pass, which keeps every block.

use std::ops::Range;

use burn::tensor::activation::softmax;
use burn::tensor::{DType, Device, Int, Tensor};

use super::attend::{Heads, MASKED};
#[cfg(feature = "gpu")]
use super::cube::Packed;
use super::host;
use super::{Batch, Decoder, Kernels, ModelConfig, RopeTables, Span};
use crate::device::Workspace;

/// Whole sequences, each attending to itself causally.
pub(crate) struct Dense {
    /// The kernels of the projections' device.
    pub(super) kernels: Kernels,
    cos: Tensor<3>,
    sin: Tensor<3>,
    /// Sines of the opposite angles, by which derivatives are rotated.
    minus_sin: Tensor<3>,
    spans: Vec<Span>,
    /// Additive mask of a block of queries, `[block, longest + block]`: in row i, columns up to `longest + i` are seen. The
    /// mask of a block whose first query stands at position p starts at column `longest - p`.
    mask: Tensor<2>,
    longest: usize,
    block: usize,
    /// Replaces the blocks on a device with our own kernels.
    #[cfg(feature = "gpu")]
    pub(super) packed: Option<Packed>,
}

/// The output of attention, with what its derivative needs of the forward pass.
#[derive(Clone)]
pub(crate) struct Mixed {
    /// `[n, heads * head_dim]`.
    pub(crate) values: Tensor<2>,
    /// See [`Packed::attend`].
    #[cfg(feature = "gpu")]
    stats: Option<Tensor<3>>,
}

impl Mixed {
    fn of(values: Tensor<2>) -> Self {
        Self {
            values,
            #[cfg(feature = "gpu")]
            stats: None,
        }
    }
}

/// Projections of one sequence with heads first; the query heads that share a key head stand together. Its queries are those
/// of its own rows.
struct Sequence {
    /// `[kv_heads, group, own, head_dim]`.
    queries: Tensor<4>,
    /// `[kv_heads, shared + own, head_dim]`.
    keys: Tensor<3>,
    /// `[kv_heads, shared + own, head_dim]`.
    values: Tensor<3>,
}

/// Some queries of a sequence.
#[derive(Clone, Debug)]
struct Block {
    /// Among those of its own rows.
    queries: Range<usize>,
    /// Position of the first in the sequence: it sees the keys before it, and itself.
    first: usize,
}

impl Block {
    /// How many keys some of them see.
    fn keys(&self) -> usize {
        self.first + self.queries.len()
    }
}

impl Dense {
    /// For the sequences of `batch`, run through `decoder`.
    pub(crate) fn new(
        config: &ModelConfig,
        rope: &RopeTables,
        batch: &Batch,
        decoder: &Decoder,
    ) -> Self {
        let heads = [config.num_attention_heads, config.num_key_value_heads];
        Self::rotating(rope, heads, batch, &decoder.device(), decoder.kernels())
    }

    /// The same without a decoder, for so many heads of queries and of keys.
    fn rotating(
        rope: &RopeTables,
        heads: [usize; 2],
        batch: &Batch,
        device: &Device,
        kernels: Kernels,
    ) -> Self {
        let plain = device.clone().without_autodiff();
        let positions = Tensor::<1, Int>::from_ints(batch.positions().as_slice(), &plain);
        let (cos, sin) = rope.rows(positions);
        let plain = Self::unrotated(heads, batch, device, kernels);
        Self {
            cos,
            minus_sin: sin.clone().neg(),
            sin,
            #[cfg(feature = "gpu")]
            packed: plain
                .packed
                .map(|packed| packed.turning(rope.angles(), &batch.positions())),
            ..plain
        }
    }

    /// The same where heads are mixed as they are.
    pub(crate) fn unrotated(
        [heads, kv_heads]: [usize; 2],
        batch: &Batch,
        device: &Device,
        kernels: Kernels,
    ) -> Self {
        let plain = device.clone().without_autodiff();
        let longest = batch.spans().iter().map(Span::len).max().unwrap_or(0);
        #[cfg(feature = "gpu")]
        let packed = (kernels == Kernels::Cube)
            .then(|| Packed::new(batch.spans(), heads / kv_heads, &plain));
        #[cfg(feature = "gpu")]
        let longest = if packed.is_some() { 0 } else { longest };
        #[cfg(not(feature = "gpu"))]
        let _ = kv_heads;
        let scores = Workspace::of(&plain).attention_scores;
        let block = (scores / (heads * longest.max(1))).clamp(16, longest.max(16));
        let block = block.min(longest.max(1));
        let none = || Tensor::<3>::zeros([1, 1, 1], &plain);
        Self {
            kernels,
            cos: none(),
            sin: none(),
            minus_sin: none(),
            spans: batch.spans().to_vec(),
            mask: mask(block, longest, &plain),
            longest,
            block,
            #[cfg(feature = "gpu")]
            packed,
        }
    }

    /// Sequences with rows of their own.
    fn spans(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|span| !span.own.is_empty())
    }

    /// Blocks of the queries of a sequence.
    fn blocks(&self, span: &Span) -> impl Iterator<Item = Block> + use<> {
        let (own, before, block) = (span.own.len(), span.before(), self.block);
        let blocks = (0..own)
            .step_by(block)
            .map(move |start| start..(start + block).min(own));
        blocks.map(move |queries| Block {
            first: before + queries.start,
            queries,
        })
    }

    /// Additive mask of a block of queries, `[1, queries, keys]`: a query sees what stands before it, and itself.
    fn mask(&self, block: &Block, device: &Device) -> Tensor<3> {
        let start = self.longest - block.first;
        let mask = self
            .mask
            .clone()
            .slice([0..block.queries.len(), start..start + block.keys()])
            .unsqueeze();
        if device.is_autodiff() {
            mask.autodiff()
        } else {
            mask
        }
    }

    /// The weights of a block of queries, `[kv_heads, group * queries, keys]` in f32, and the queries, rows alike.
    fn weights(&self, sequence: &Sequence, block: &Block) -> (Tensor<3>, Tensor<3>) {
        let [kv_heads, group, _, dim] = sequence.queries.dims();
        let (queries, keys) = (block.queries.len(), block.keys());
        let folded = sequence
            .queries
            .clone()
            .narrow(2, block.queries.start, queries);
        let folded = folded.reshape([kv_heads, group * queries, dim]);
        let seen = sequence.keys.clone().narrow(1, 0, keys).swap_dims(1, 2);
        let scores = self.kernels.product(folded.clone(), seen);
        if self.kernels == Kernels::Processor {
            return (
                host::causal_softmax(scores, queries, block.first, scale(dim) as f32),
                folded,
            );
        }
        let scores = scores.cast(DType::F32) * scale(dim);
        let scores =
            scores.reshape([kv_heads * group, queries, keys]) + self.mask(block, &folded.device());
        (
            softmax(scores, 2).reshape([kv_heads, group * queries, keys]),
            folded,
        )
    }

    /// Rotates queries and keys.
    pub(crate) fn rotate(&self, heads: Heads) -> Heads {
        let same = |tensor: &Tensor<3>| {
            if heads.queries.is_autodiff() {
                tensor.clone().autodiff()
            } else {
                tensor.clone()
            }
        };
        let (cos, sin) = (same(&self.cos), same(&self.sin));
        let Heads {
            queries,
            keys,
            values,
        } = heads;
        Heads {
            queries: self.kernels.rotate(queries, &cos, &sin),
            keys: self.kernels.rotate(keys, &cos, &sin),
            values,
        }
    }

    /// Gradient by the heads that [`Self::rotate`] was given, from that by its result; nothing carries a graph.
    pub(crate) fn rotate_backward(&self, grads: Heads) -> Heads {
        let back = |grad| self.kernels.rotate(grad, &self.cos, &self.minus_sin);
        Heads {
            queries: back(grads.queries),
            keys: back(grads.keys),
            values: grads.values,
        }
    }

    /// Mixed values of rotated heads.
    pub(crate) fn mix(&self, heads: &Heads) -> Mixed {
        let [n, query_heads, dim] = heads.queries.dims();
        #[cfg(feature = "gpu")]
        if let Some(packed) = &self.packed {
            let Heads {
                queries,
                keys,
                values,
            } = heads.clone();
            let (mixed, stats) = packed.attend(queries, keys, values);
            return Mixed {
                values: mixed.reshape([n, query_heads * dim]),
                stats: Some(stats),
            };
        }
        let mut parts = Vec::new();
        for span in self.spans() {
            let sequence = sequence(heads, span);
            let blocks = self.blocks(span).map(|block| {
                let (weights, _) = self.weights(&sequence, &block);
                let values = sequence.values.clone().narrow(1, 0, block.keys());
                self.kernels
                    .product(weights.cast(values.dtype()), values)
                    .reshape([query_heads, block.queries.len(), dim])
                    .swap_dims(0, 1)
            });
            parts.extend(blocks);
        }
        Mixed::of(Tensor::cat(parts, 0).reshape([n, query_heads * dim]))
    }

    /// Gradient by rotated heads of a loss whose gradient by [`Self::mix`]'s result `mixed` is `grad`, `[n, heads * head_dim]`.
    /// Nothing carries a graph.
    pub(crate) fn mix_backward(&self, heads: &Heads, mixed: &Mixed, grad: &Tensor<2>) -> Heads {
        let [n, query_heads, dim] = heads.queries.dims();
        let by_head = |x: &Tensor<2>| x.clone().reshape([n, query_heads, dim]);
        #[cfg(feature = "gpu")]
        if let (Some(packed), Some(stats)) = (&self.packed, &mixed.stats) {
            let Heads {
                queries,
                keys,
                values,
            } = heads.clone();
            let (mixed, grad) = (by_head(&mixed.values), by_head(grad));
            let heads = [queries, keys, values];
            let [queries, keys, values] = packed.attend_backward(heads, mixed, stats.clone(), grad);
            return Heads {
                queries,
                keys,
                values,
            };
        }
        let (mixed, grad) = (by_head(&mixed.values), by_head(grad));
        let mut queries = Vec::new();
        let (mut keys, mut values) = (heads.keys.zeros_like(), heads.values.zeros_like());
        for span in self.spans() {
            let grads = self.sequence_backward(&sequence(heads, span), span, &mixed, &grad);
            queries.push(grads.queries);
            // What sequences share has a gradient from each of them.
            keys = add_rows(keys, span, &grads.keys);
            values = add_rows(values, span, &grads.values);
        }
        Heads {
            queries: Tensor::cat(queries, 0),
            keys,
            values,
        }
    }

    /// [`Self::mix_backward`] of one sequence: with weights P, dV = P'dO, dP = dO V', dS = P (dP - rowsum(dO O)).
    fn sequence_backward(
        &self,
        sequence: &Sequence,
        span: &Span,
        mixed: &Tensor<3>,
        grad: &Tensor<3>,
    ) -> Heads {
        let [kv_heads, group, _, dim] = sequence.queries.dims();
        let dtype = sequence.queries.dtype();
        let mut parts = Vec::new();
        let (mut keys, mut values) = (sequence.keys.zeros_like(), sequence.values.zeros_like());
        for block in self.blocks(span) {
            let (count, seen) = (block.queries.len(), block.keys());
            let (weights, queries) = self.weights(sequence, &block);
            let rows = |x: &Tensor<3>| {
                let x = x
                    .clone()
                    .narrow(0, span.own.start + block.queries.start, count)
                    .swap_dims(0, 1);
                x.reshape([kv_heads, group * count, dim])
            };
            let (mixed, grad) = (rows(mixed), rows(grad));
            let seen = |x: &Tensor<3>| x.clone().narrow(1, 0, seen);
            let add = |total: Tensor<3>, part: Tensor<3>| {
                add(total, [0..kv_heads, 0..block.keys(), 0..dim], part)
            };
            values = add(
                values,
                self.kernels
                    .product(weights.clone().cast(dtype).swap_dims(1, 2), grad.clone()),
            );
            let level = (grad.clone().cast(DType::F32) * mixed.cast(DType::F32)).sum_dim(2);
            let grad = self
                .kernels
                .product(grad, seen(&sequence.values).swap_dims(1, 2))
                .cast(DType::F32);
            let scores = if self.kernels == Kernels::Processor {
                host::softmax_backward(weights, grad, level, scale(dim) as f32)
            } else {
                (weights * (grad - level) * scale(dim)).cast(dtype)
            };
            keys = add(
                keys,
                self.kernels
                    .product(scores.clone().swap_dims(1, 2), queries),
            );
            let queries = self.kernels.product(scores, seen(&sequence.keys));
            parts.push(
                queries
                    .reshape([kv_heads * group, count, dim])
                    .swap_dims(0, 1),
            );
        }
        Heads {
            queries: Tensor::cat(parts, 0),
            keys: keys.swap_dims(0, 1),
            values: values.swap_dims(0, 1),
        }
    }
}

/// Numbers that attention to whole sequences holds at most, with blocks of `scores` numbers over all heads:
/// [`Dense::sequence_backward`] has the weights of a block of queries, the gradient by them and that by the scores.
pub(crate) fn attention_numbers(config: &ModelConfig, longest: usize, scores: usize) -> usize {
    let row = config.num_attention_heads * longest;
    3 * (row * longest).min(scores.max(16 * row))
}

fn sequence(heads: &Heads, span: &Span) -> Sequence {
    let [_, query_heads, dim] = heads.queries.dims();
    let [_, kv_heads, _] = heads.keys.dims();
    let rows = |x: &Tensor<3>, rows: Range<usize>| x.clone().narrow(0, rows.start, rows.len());
    let all = |x: &Tensor<3>| {
        let all = match span.shared.as_slice() {
            [] => rows(x, span.own.clone()),
            _ => Tensor::cat(span.ranges().map(|range| rows(x, range)).collect(), 0),
        };
        all.swap_dims(0, 1)
    };
    let queries = rows(&heads.queries, span.own.clone()).swap_dims(0, 1);
    Sequence {
        queries: queries.reshape([kv_heads, query_heads / kv_heads, span.own.len(), dim]),
        keys: all(&heads.keys),
        values: all(&heads.values),
    }
}

/// `total`, of all rows, with `part`, that of the rows of `span` in order, added.
fn add_rows(mut total: Tensor<3>, span: &Span, part: &Tensor<3>) -> Tensor<3> {
    let [_, heads, dim] = total.dims();
    let mut start = 0;
    for rows in span.ranges() {
        let part = part.clone().narrow(0, start, rows.len());
        start += rows.len();
        total = add(total, [rows, 0..heads, 0..dim], part);
    }
    total
}

/// `total` with `part` added at `place`. Nothing is copied where nothing else holds `total`.
fn add(total: Tensor<3>, place: [Range<usize>; 3], part: Tensor<3>) -> Tensor<3> {
    let sum = total.clone().slice(place.clone()) + part;
    total.slice_assign(place, sum)
}

/// See [`Dense::mask`]. Made on the device: on a GPU, blocks are so large that their masks are slow to send.
fn mask(block: usize, longest: usize, device: &Device) -> Tensor<2> {
    let places = |count: usize| Tensor::<1, Int>::arange(0..count as i64, device);
    let last_seen = (places(block) + longest as i64)
        .reshape([block, 1])
        .expand([block, longest + block]);
    let columns = places(longest + block)
        .reshape([1, longest + block])
        .expand([block, longest + block]);
    Tensor::zeros([block, longest + block], device).mask_fill(columns.greater(last_seen), MASKED)
}

fn scale(dim: usize) -> f64 {
    1.0 / (dim as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use forage_contracts::seed::Seed;
    use rand::RngExt;

    use super::*;
    use crate::model::Architecture;

    fn numbers<const D: usize>(shape: [usize; D], seed: u64) -> Tensor<D> {
        let mut rng = Seed::root(seed).rng();
        let values: Vec<f32> = (0..shape.iter().product())
            .map(|_| rng.random::<f32>() - 0.5)
            .collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex())
    }

    fn assert_close<const D: usize>(found: &Tensor<D>, expected: &Tensor<D>, what: &str) {
        let gap = (found.clone() - expected.clone())
            .abs()
            .max()
            .into_scalar::<f32>();
        assert!(gap < 1e-6, "{what}: {gap}");
    }

    /// Values and derivatives in blocks of queries equal those of autodiff over whole sequences.
    #[test]
    fn blocks_of_queries_make_no_difference() {
        let config = ModelConfig {
            architecture: Architecture::named("qwen3").unwrap(),
            vocab_size: 10,
            hidden_size: 16,
            intermediate_size: 16,
            num_hidden_layers: 1,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 6,
            max_position_embeddings: 32,
            rope_theta: 100.0,
            rope_scaling: None,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
        };
        let ids: Vec<u32> = (0..23).collect();
        // The second begins like the first, the third like the second and further than that like the first.
        let [one, two]: [Vec<u32>; 2] = [
            [&ids[..7], &[30, 31]].concat(),
            [&ids[..7], &[30, 32, 33]].concat(),
        ];
        let batch = Batch::new(&[&ids, &one, &two, &[5], &[6, 7]]);
        let device = Device::flex();
        let rope = RopeTables::new(&config, 32, &device);
        let dense =
            |device: &Device| Dense::rotating(&rope, [4, 2], &batch, device, Kernels::of(device));
        let whole = dense(&device.clone().autodiff());
        let heads = Heads {
            queries: numbers([30, 4, 6], 1),
            keys: numbers([30, 2, 6], 2),
            values: numbers([30, 2, 6], 3),
        };
        let grad = numbers([30, 24], 4);
        let leaf = |x: &Tensor<3>| x.clone().autodiff().require_grad();
        let leaves = Heads {
            queries: leaf(&heads.queries),
            keys: leaf(&heads.keys),
            values: leaf(&heads.values),
        };
        let expected = whole.mix(&leaves);
        let expected = expected.values;
        let gradients = (expected.clone() * grad.clone().autodiff())
            .sum()
            .backward();
        for block in [1, 4, 5, 16] {
            let longest = whole.longest;
            let blocks = Dense {
                block,
                mask: mask(block, longest, &device),
                ..dense(&device)
            };
            let mixed = blocks.mix(&heads);
            assert_close(&mixed.values, &expected.clone().inner(), "values");
            let found = blocks.mix_backward(&heads, &mixed, &grad);
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

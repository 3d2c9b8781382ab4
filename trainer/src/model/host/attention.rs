//! Attention over a paged cache.
//!
//! Keys of a block are stored with the positions in the innermost place, values with the head's width there, so that both
//! products run over neighbouring numbers. A score, and the order in which values are added, depend on a query's own
//! sequence alone: never on the batch, nor on how the sequence was cut into passes or blocks shared with others.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::lanes::{exp, largest};

/// Positions of one block of the cache.
pub(in crate::model) const BLOCK: usize = 16;

/// One new token: which sequence's blocks it reads and how many positions of them, its own included.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Query<'a> {
    /// Blocks of the sequence, in order.
    pub(in crate::model) blocks: &'a [u32],
    /// Positions to attend to.
    pub(in crate::model) length: usize,
}

/// What attention reads: one layer of the cache and its shape.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Layer<'a> {
    /// `[blocks, kv_heads, head_dim, BLOCK]`.
    pub(in crate::model) keys: &'a [f32],
    /// `[blocks, kv_heads, BLOCK, head_dim]`.
    pub(in crate::model) values: &'a [f32],
    pub(in crate::model) kv_heads: usize,
    pub(in crate::model) head_dim: usize,
}

/// Work below which one thread does everything, in multiply-adds.
const TASK_WORK: usize = 1 << 17;

/// Softmax-weighted values for every query: `[n, heads, head_dim]` to the same shape. `heads` is a multiple of the
/// layer's `kv_heads`; `queries` are rotated already and scaled here.
pub(in crate::model) fn attend(rotated: &[f32], heads: usize, queries: &[Query<'_>], layer: &Layer<'_>) -> Vec<f32> {
    let width = heads / layer.kv_heads * layer.head_dim;
    let mut mixed = vec![0.0; rotated.len()];
    let work = queries.iter().map(|query| query.length).sum::<usize>() * heads * layer.head_dim * 2;
    let task = |(index, out): (usize, &mut [f32])| {
        let (query, kv_head) = (&queries[index / layer.kv_heads], index % layer.kv_heads);
        let rotated = &rotated[index * width..][..width];
        Arch::new().dispatch(Head { rotated, query, shared: kv_head, layer, out });
    };
    if work < TASK_WORK {
        mixed.chunks_exact_mut(width).enumerate().for_each(task);
    } else {
        mixed.par_chunks_exact_mut(width).enumerate().for_each(task);
    }
    mixed
}

/// The query heads that share one head of keys and values, of one token.
struct Head<'a> {
    rotated: &'a [f32],
    query: &'a Query<'a>,
    shared: usize,
    layer: &'a Layer<'a>,
    out: &'a mut [f32],
}

impl WithSimd for Head<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rotated, query, shared, layer, out } = self;
        let dim = layer.head_dim;
        let group = rotated.len() / dim;
        let padded = query.length.next_multiple_of(BLOCK);
        let mut weights = vec![0.0_f32; group * padded];
        let mut head = 0;
        while head < group {
            let (rotated, weights) = (&rotated[head * dim..], &mut weights[head * padded..]);
            head += match group - head {
                4.. => part::<S, 4>(simd, rotated, query, shared, layer, weights, &mut out[head * dim..]),
                2.. => part::<S, 2>(simd, rotated, query, shared, layer, weights, &mut out[head * dim..]),
                _ => part::<S, 1>(simd, rotated, query, shared, layer, weights, &mut out[head * dim..]),
            };
        }
    }
}

/// `G` of the group's heads; returns `G`.
#[inline(always)]
fn part<S: Simd, const G: usize>(
    simd: S,
    rotated: &[f32],
    query: &Query<'_>,
    kv_head: usize,
    layer: &Layer<'_>,
    weights: &mut [f32],
    out: &mut [f32],
) -> usize {
    let dim = layer.head_dim;
    let padded = query.length.next_multiple_of(BLOCK);
    let size = dim * BLOCK;
    let place = |block: u32| (block as usize * layer.kv_heads + kv_head) * size;
    let blocks = &query.blocks[..padded / BLOCK];
    for (index, &block) in blocks.iter().enumerate() {
        scores::<S, G>(simd, rotated, dim, &layer.keys[place(block)..][..size], &mut weights[index * BLOCK..], padded);
    }
    let scale = 1.0 / (dim as f32).sqrt();
    for line in weights.chunks_exact_mut(padded).take(G) {
        softmax(&mut line[..query.length], scale);
    }
    let per = size_of::<S::f32s>() / size_of::<f32>();
    let mut first = 0;
    while first < dim {
        // Two vectors at a time where they fit: with four heads that is enough sums to keep the multipliers busy.
        let step = if dim - first >= 2 * per { 2 } else { 1 };
        let run = Columns { first, dim, length: query.length, padded, size, kv_heads: layer.kv_heads, kv_head };
        match step {
            2 => mix::<S, G, 2>(simd, &run, blocks, layer.values, weights, out),
            _ => mix::<S, G, 1>(simd, &run, blocks, layer.values, weights, out),
        }
        first += step * per;
    }
    G
}

/// Products of `G` queries with the sixteen keys of a block.
#[inline(always)]
fn scores<S: Simd, const G: usize>(
    simd: S,
    rotated: &[f32],
    dim: usize,
    keys: &[f32],
    weights: &mut [f32],
    padded: usize,
) {
    let per = size_of::<S::f32s>() / size_of::<f32>();
    let queries: [&[f32]; G] = std::array::from_fn(|head| &rotated[head * dim..][..dim]);
    for part in 0..BLOCK / per {
        // Even and odd places of the head apart: twice as many sums in flight.
        let mut sums = [[simd.splat_f32s(0.0); G]; 2];
        for (place, pair) in keys.chunks_exact(2 * BLOCK).enumerate() {
            let even = S::as_simd_f32s(&pair[part * per..][..per]).0[0];
            let odd = S::as_simd_f32s(&pair[BLOCK + part * per..][..per]).0[0];
            sums = [
                std::array::from_fn(|g| simd.mul_add_f32s(simd.splat_f32s(queries[g][2 * place]), even, sums[0][g])),
                std::array::from_fn(|g| simd.mul_add_f32s(simd.splat_f32s(queries[g][2 * place + 1]), odd, sums[1][g])),
            ];
        }
        let total: [S::f32s; G] = std::array::from_fn(|g| simd.add_f32s(sums[0][g], sums[1][g]));
        for (g, total) in total.into_iter().enumerate() {
            let out = S::as_mut_simd_f32s(&mut weights[g * padded + part * per..][..per]).0;
            out[0] = total;
        }
    }
}

/// Where [`mix`] works.
struct Columns {
    first: usize,
    dim: usize,
    length: usize,
    padded: usize,
    size: usize,
    kv_heads: usize,
    kv_head: usize,
}

/// Adds up `V` vectors of the values, weighted, for `G` heads.
#[inline(always)]
fn mix<S: Simd, const G: usize, const V: usize>(
    simd: S,
    run: &Columns,
    blocks: &[u32],
    values: &[f32],
    weights: &[f32],
    out: &mut [f32],
) {
    let per = size_of::<S::f32s>() / size_of::<f32>();
    let mut sums = [[simd.splat_f32s(0.0); V]; G];
    for (index, &block) in blocks.iter().enumerate() {
        let values = &values[(block as usize * run.kv_heads + run.kv_head) * run.size..][..run.size];
        let first = index * BLOCK;
        let count = (run.length - first).min(BLOCK);
        let weights: [&[f32]; G] = std::array::from_fn(|g| &weights[g * run.padded + first..][..count]);
        for place in 0..count {
            let line = &values[place * run.dim + run.first..];
            let line: [S::f32s; V] = std::array::from_fn(|v| vector(simd, prefix(&line[v * per..], run, v, per)));
            sums = std::array::from_fn(|g| {
                let weight = simd.splat_f32s(weights[g][place]);
                std::array::from_fn(|v| simd.mul_add_f32s(weight, line[v], sums[g][v]))
            });
        }
    }
    let sums: [[S::f32s; V]; G] = sums.map(|line| line.map(|sum| simd.add_f32s(sum, simd.splat_f32s(0.0))));
    for (g, line) in sums.into_iter().enumerate() {
        for (v, sum) in line.into_iter().enumerate() {
            let start = g * run.dim + run.first + v * per;
            let end = (start + per).min((g + 1) * run.dim);
            simd.partial_store_f32s(&mut out[start..end], sum);
        }
    }
}

/// Loads a vector; fewer numbers than it holds are followed by zeros.
#[inline(always)]
fn vector<S: Simd>(simd: S, line: &[f32]) -> S::f32s {
    let (whole, part) = S::as_simd_f32s(line);
    whole.first().copied().unwrap_or_else(|| simd.partial_load_f32s(part))
}

/// The part of a vector that belongs to the head: all of it unless the head is narrower than a vector.
#[inline(always)]
fn prefix<'a>(line: &'a [f32], run: &Columns, vector: usize, per: usize) -> &'a [f32] {
    &line[..per.min(run.dim - run.first - vector * per)]
}

/// `softmax(scale * x)` in place.
#[inline(always)]
fn softmax(row: &mut [f32], scale: f32) {
    const LANES: usize = 16;
    let largest = largest(row);
    let mut sums = [0.0_f32; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *x = exp((*x - largest) * scale);
            *sum += *x;
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *x = exp((*x - largest) * scale);
        *sum += *x;
    }
    let inverse = 1.0 / sums.iter().sum::<f32>();
    for x in row {
        *x *= inverse;
    }
}

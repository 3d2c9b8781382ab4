//! Attention over a paged cache.
//!
//! Keys of a block are stored with the positions in the innermost place, values with the head's width there, so that both
//! products run over neighbouring numbers. Queries that read the same head of keys, of one token or of several that follow
//! each other, go through it together. A score, and the order in which values are added, depend on a query's own sequence
//! alone: never on the batch, nor on how the sequence was cut into passes or blocks shared with others.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::lanes::{exp, largest};

/// Positions of one block of the cache.
pub(in crate::model) const BLOCK: usize = 16;

/// New tokens of one sequence, one after another.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Run<'a> {
    /// Blocks of the sequence, in order.
    pub(in crate::model) blocks: &'a [u32],
    /// Position of the first token; each attends to all positions up to its own.
    pub(in crate::model) start: usize,
    /// Number of tokens.
    pub(in crate::model) count: usize,
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
/// Most tokens of a task.
const TASK_TOKENS: usize = 16;

/// Softmax-weighted values for every query: `[n, heads, head_dim]` to the same shape, the tokens of all runs one after
/// another. `heads` is a multiple of the layer's `kv_heads`; `queries` are rotated already and scaled here.
pub(in crate::model) fn attend(
    queries: &[f32],
    heads: usize,
    runs: &[Run<'_>],
    layer: &Layer<'_>,
) -> Vec<f32> {
    let row = heads * layer.head_dim;
    let mut mixed = vec![0.0; queries.len()];
    let mut outs = mixed.chunks_exact_mut(row / layer.kv_heads);
    let mut tasks = Vec::new();
    let (mut token, mut work) = (0, 0);
    for run in runs {
        for first in (0..run.count).step_by(TASK_TOKENS) {
            let count = TASK_TOKENS.min(run.count - first);
            let run = Run {
                start: run.start + first,
                count,
                ..*run
            };
            work += count * (run.start + count) * row * 2;
            let queries = &queries[token * row..][..count * row];
            let mut of_head: Vec<Vec<&mut [f32]>> = (0..layer.kv_heads)
                .map(|_| Vec::with_capacity(count))
                .collect();
            for _ in 0..count {
                of_head
                    .iter_mut()
                    .zip(&mut outs)
                    .for_each(|(outs, out)| outs.push(out));
            }
            let heads = of_head.into_iter().enumerate();
            tasks.extend(heads.map(|(kv_head, outs)| Task {
                queries,
                row,
                run,
                kv_head,
                layer,
                outs,
            }));
            token += count;
        }
    }
    let work_off = |task| Arch::new().dispatch(task);
    if work < TASK_WORK {
        tasks.into_iter().for_each(work_off);
    } else {
        tasks.into_par_iter().for_each(work_off);
    }
    mixed
}

/// The query heads of some tokens that share one head of keys and values.
struct Task<'a, 'out> {
    /// `[tokens, heads, head_dim]`, of all heads; `row` numbers per token.
    queries: &'a [f32],
    row: usize,
    run: Run<'a>,
    kv_head: usize,
    layer: &'a Layer<'a>,
    /// Output of each token, `[group, head_dim]`.
    outs: Vec<&'out mut [f32]>,
}

impl WithSimd for Task<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let rows = self.run.count * self.group();
        let padded = (self.run.start + self.run.count).next_multiple_of(BLOCK);
        // Half of the registers hold sums.
        let widest = S::REGISTER_COUNT.min(32) / 4;
        let mut weights = vec![0.0; widest.min(rows) * padded];
        let mut first = 0;
        while first < rows {
            let weights = weights.as_mut_slice();
            first += match (rows - first).min(widest) {
                1 => self.tile::<S, 1>(simd, first, weights),
                2 => self.tile::<S, 2>(simd, first, weights),
                3 => self.tile::<S, 3>(simd, first, weights),
                4 => self.tile::<S, 4>(simd, first, weights),
                5 => self.tile::<S, 5>(simd, first, weights),
                6 => self.tile::<S, 6>(simd, first, weights),
                7 => self.tile::<S, 7>(simd, first, weights),
                _ => self.tile::<S, 8>(simd, first, weights),
            };
        }
    }
}

impl Task<'_, '_> {
    /// Query heads per head of keys.
    fn group(&self) -> usize {
        self.row / self.layer.head_dim / self.layer.kv_heads
    }

    /// Does `R` rows from `first` on, and returns `R`.
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        first: usize,
        weights: &mut [f32],
    ) -> usize {
        simd.vectorize(Tile::<S, R> {
            simd,
            task: self,
            first,
            weights,
        })
    }

    /// Numbers of this head in block `index` of the sequence.
    #[inline(always)]
    fn place(&self, index: usize) -> std::ops::Range<usize> {
        let size = self.layer.head_dim * BLOCK;
        let start = (self.run.blocks[index] as usize * self.layer.kv_heads + self.kv_head) * size;
        start..start + size
    }
}

/// `R` rows of a task, a row being one head of one token, from `first` on.
struct Tile<'t, 'a, 'out, S, const R: usize> {
    simd: S,
    task: &'t mut Task<'a, 'out>,
    first: usize,
    weights: &'t mut [f32],
}

impl<S: Simd, const R: usize> pulp::NullaryFnOnce for Tile<'_, '_, '_, S, R> {
    type Output = usize;

    #[inline(always)]
    fn call(self) -> usize {
        let Self {
            simd,
            task,
            first,
            weights,
        } = self;
        let (group, dim) = (task.group(), task.layer.head_dim);
        let lengths: [usize; R] = std::array::from_fn(|r| task.run.start + (first + r) / group + 1);
        let padded = lengths[R - 1].next_multiple_of(BLOCK);
        let queries: [&[f32]; R] = std::array::from_fn(|r| {
            let (token, head) = ((first + r) / group, (first + r) % group);
            &task.queries[token * task.row + (task.kv_head * group + head) * dim..][..dim]
        });
        for index in 0..padded / BLOCK {
            let keys = &task.layer.keys[task.place(index)];
            scores::<S, R>(simd, &queries, keys, &mut weights[index * BLOCK..], padded);
        }
        let scale = 1.0 / (dim as f32).sqrt();
        for (line, length) in weights.chunks_exact_mut(padded).zip(lengths) {
            simd.vectorize(Softmax {
                row: &mut line[..length],
                scale,
            });
            // What later tokens of the tile see weighs nothing here.
            line[length..].fill(0.0);
        }
        let mut mix = Mix {
            simd,
            task,
            first,
            weights,
            padded,
            length: lengths[R - 1],
        };
        let per = size_of::<S::f32s>() / size_of::<f32>();
        let vectors = S::REGISTER_COUNT.min(32) / 2 / R;
        let mut column = 0;
        while column < dim {
            column += per
                * match ((dim - column) / per).min(vectors) {
                    0 if column + per > dim => mix.partial::<R>(column),
                    0 | 1 => mix.whole::<R, 1>(column),
                    2 | 3 => mix.whole::<R, 2>(column),
                    _ => mix.whole::<R, 4>(column),
                };
        }
        R
    }
}

/// Products of `R` queries with the sixteen keys of a block.
#[inline(always)]
fn scores<S: Simd, const R: usize>(
    simd: S,
    queries: &[&[f32]; R],
    keys: &[f32],
    weights: &mut [f32],
    padded: usize,
) {
    let per = size_of::<S::f32s>() / size_of::<f32>();
    let pairs = keys.as_chunks::<{ 2 * BLOCK }>().0;
    let queries: [&[[f32; 2]]; R] =
        std::array::from_fn(|r| &queries[r].as_chunks::<2>().0[..pairs.len()]);
    for part in 0..BLOCK / per {
        // Even and odd places of the head apart: twice as many sums in flight.
        let mut sums = [[simd.splat_f32s(0.0); R]; 2];
        for (place, pair) in pairs.iter().enumerate() {
            let even = S::as_simd_f32s(&pair[part * per..][..per]).0[0];
            let odd = S::as_simd_f32s(&pair[BLOCK + part * per..][..per]).0[0];
            for r in 0..R {
                let [left, right] = queries[r][place];
                sums[0][r] = simd.mul_add_f32s(simd.splat_f32s(left), even, sums[0][r]);
                sums[1][r] = simd.mul_add_f32s(simd.splat_f32s(right), odd, sums[1][r]);
            }
        }
        for r in 0..R {
            let out = S::as_mut_simd_f32s(&mut weights[r * padded + part * per..][..per]).0;
            out[0] = simd.add_f32s(sums[0][r], sums[1][r]);
        }
    }
}

/// Adds up weighted values, some columns at a time; each returns how many vectors it did.
struct Mix<'t, 'a, 'out, S> {
    simd: S,
    task: &'t mut Task<'a, 'out>,
    first: usize,
    /// `[R, padded]`.
    weights: &'t [f32],
    padded: usize,
    /// Positions to add up.
    length: usize,
}

impl<S: Simd> Mix<'_, '_, '_, S> {
    /// `V` whole vectors.
    #[inline(always)]
    fn whole<const R: usize, const V: usize>(&mut self, column: usize) -> usize {
        let (simd, dim) = (self.simd, self.task.layer.head_dim);
        let width = V * size_of::<S::f32s>() / size_of::<f32>();
        let mut sums = [[simd.splat_f32s(0.0); V]; R];
        for first in (0..self.length).step_by(BLOCK) {
            let values = &self.task.layer.values[self.task.place(first / BLOCK)];
            let count = BLOCK.min(self.length - first);
            let weights: [&[f32]; R] =
                std::array::from_fn(|r| &self.weights[r * self.padded + first..][..count]);
            for place in 0..count {
                let line = S::as_simd_f32s(&values[place * dim + column..][..width]).0;
                for r in 0..R {
                    let weight = simd.splat_f32s(weights[r][place]);
                    for v in 0..V {
                        sums[r][v] = simd.mul_add_f32s(weight, line[v], sums[r][v]);
                    }
                }
            }
        }
        for r in 0..R {
            let out = S::as_mut_simd_f32s(&mut self.out(r)[column..][..width]).0;
            for v in 0..V {
                out[v] = sums[r][v];
            }
        }
        V
    }

    /// The last columns of a head that does not end with a vector.
    #[inline(always)]
    fn partial<const R: usize>(&mut self, column: usize) -> usize {
        let (simd, dim) = (self.simd, self.task.layer.head_dim);
        let mut sums = [simd.splat_f32s(0.0); R];
        for position in 0..self.length {
            let values = &self.task.layer.values[self.task.place(position / BLOCK)];
            let line = simd.partial_load_f32s(&values[position % BLOCK * dim..][column..dim]);
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = simd.mul_add_f32s(
                    simd.splat_f32s(self.weights[r * self.padded + position]),
                    line,
                    *sum,
                );
            }
        }
        for (r, sum) in sums.into_iter().enumerate() {
            simd.partial_store_f32s(&mut self.out(r)[column..], sum);
        }
        1
    }

    /// Output of row `r` of the tile, `[head_dim]`.
    #[inline(always)]
    fn out(&mut self, r: usize) -> &mut [f32] {
        let (group, dim) = (self.task.group(), self.task.layer.head_dim);
        &mut self.task.outs[(self.first + r) / group][(self.first + r) % group * dim..][..dim]
    }
}

/// `softmax(scale * x)` in place.
struct Softmax<'a> {
    row: &'a mut [f32],
    scale: f32,
}

impl pulp::NullaryFnOnce for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        const LANES: usize = 16;
        let Self { row, scale } = self;
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
}

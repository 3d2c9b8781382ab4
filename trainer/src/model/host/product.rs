//! Matrix products with weights as checkpoints store them: one row of memory per output.
//!
//! Each output is one dot product whose terms are added in an order that depends on its length alone. So a token's
//! numbers have the same bits whatever else is in the batch, and however a prompt was cut into chunks.

use std::ops::Range;

use half::bf16;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::model::quantised::BLOCK_INPUTS;

/// Outputs of one task: enough work to be worth a task, few enough to share a small layer among cores.
const TASK_OUTPUTS: usize = 48;
/// Multiply-adds below which one thread does everything.
const TASK_WORK: usize = 1 << 18;

/// Weights `[outputs, inputs]`, row-major.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rows<'a> {
    /// Single precision.
    Full(&'a [f32]),
    /// Half precision: widened, exactly, as it is used.
    Half(&'a [bf16]),
    /// 8-bit integers, [`BLOCK_INPUTS`] of which share a scale: widened, exactly, as they are used.
    Quantised(&'a [i8], &'a [f32]),
}

impl Rows<'_> {
    /// Writes the weights at `range`, all of one output, as f32. The range of quantised ones begins with a block.
    #[inline(always)]
    fn widen(self, range: Range<usize>, to: &mut [f32]) {
        match self {
            Self::Full(weights) => to[..range.len()].copy_from_slice(&weights[range]),
            Self::Half(weights) => {
                for (to, from) in to.iter_mut().zip(&weights[range]) {
                    *to = f32::from_bits(u32::from(from.to_bits()) << 16);
                }
            }
            Self::Quantised(numbers, scales) => {
                widen_blocks(
                    &numbers[range.clone()],
                    &scales[range.start / BLOCK_INPUTS..],
                    to,
                );
            }
        }
    }
}

/// Whole blocks as f32.
#[inline(always)]
pub(super) fn widen_blocks(numbers: &[i8], scales: &[f32], to: &mut [f32]) {
    let blocks = to
        .chunks_exact_mut(BLOCK_INPUTS)
        .zip(numbers.chunks_exact(BLOCK_INPUTS));
    for ((to, numbers), scale) in blocks.zip(scales) {
        for (to, number) in to.iter_mut().zip(numbers) {
            *to = f32::from(*number) * scale;
        }
    }
}

/// `x W^T` for `x` of shape `[rows, inputs]` and `weights` of shape `[outputs, inputs]`: `[rows, outputs]`, row-major.
pub(super) fn product(x: &[f32], weights: Rows<'_>, inputs: usize, outputs: usize) -> Vec<f32> {
    let rows = x.len() / inputs;
    let mut y = vec![0.0; rows * outputs];
    let mut parts: Vec<Vec<&mut [f32]>> = (0..outputs)
        .step_by(TASK_OUTPUTS)
        .map(|_| Vec::with_capacity(rows))
        .collect();
    for line in y.chunks_exact_mut(outputs) {
        parts
            .iter_mut()
            .zip(line.chunks_mut(TASK_OUTPUTS))
            .for_each(|(part, line)| part.push(line));
    }
    let task = |(part, out): (usize, Vec<&mut [f32]>)| {
        Arch::new().dispatch(Product {
            x,
            weights,
            inputs,
            first: part * TASK_OUTPUTS,
            out,
        });
    };
    if rows * inputs * outputs < TASK_WORK {
        parts.into_iter().enumerate().for_each(task);
    } else {
        parts.into_par_iter().enumerate().for_each(task);
    }
    y
}

struct Product<'a, 'y> {
    x: &'a [f32],
    weights: Rows<'a>,
    inputs: usize,
    /// First output.
    first: usize,
    /// The outputs of this task, of each row.
    out: Vec<&'y mut [f32]>,
}

/// Outputs computed together; with four rows of `x` their sums fill the registers.
const TILE: usize = 6;
/// Inputs summed at a stretch: a tile of weights of this length stays in the first cache.
const STRETCH: usize = 1024;
/// Rows of `x` that all tiles of a task go through before the next ones: a stretch of them stays in the second cache.
const BLOCK_ROWS: usize = 128;

impl WithSimd for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self {
            x,
            weights,
            inputs,
            first,
            mut out,
        } = self;
        let (rows, outputs) = (out.len(), out.first().map_or(0, |line| line.len()));
        let mut widened = vec![
            0.0_f32;
            if matches!(weights, Rows::Full(_)) {
                0
            } else {
                TILE * STRETCH
            }
        ];
        for (start, block) in
            stretches(inputs).flat_map(|start| blocks(rows).map(move |block| (start, block)))
        {
            let length = STRETCH.min(inputs - start);
            let columns = Columns {
                x,
                width: inputs,
                start,
            };
            for tile in (0..outputs).step_by(TILE) {
                let count = TILE.min(outputs - tile);
                let begin = |line: usize| (first + tile + line) * inputs + start;
                let at = |line: usize| begin(line)..begin(line) + length;
                // There is no buffer where nothing is to be widened.
                for (line, widened) in widened.chunks_exact_mut(STRETCH).take(count).enumerate() {
                    weights.widen(at(line), widened);
                }
                let line = |line: usize| match weights {
                    Rows::Full(weights) => &weights[at(line)],
                    _ => &widened[line * STRETCH..][..length],
                };
                if count == TILE {
                    sweep::<S, TILE>(
                        simd,
                        &columns,
                        block.clone(),
                        std::array::from_fn(line),
                        &mut out,
                        tile,
                    );
                } else {
                    for index in 0..count {
                        sweep(
                            simd,
                            &columns,
                            block.clone(),
                            [line(index)],
                            &mut out,
                            tile + index,
                        );
                    }
                }
            }
        }
    }
}

fn stretches(inputs: usize) -> impl Iterator<Item = usize> {
    (0..inputs).step_by(STRETCH)
}

fn blocks(rows: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows)
        .step_by(BLOCK_ROWS)
        .map(move |first| first..(first + BLOCK_ROWS).min(rows))
}

/// Some columns of `x`.
struct Columns<'a> {
    x: &'a [f32],
    width: usize,
    start: usize,
}

impl<'a> Columns<'a> {
    #[inline(always)]
    fn row(&self, row: usize, length: usize) -> &'a [f32] {
        &self.x[row * self.width + self.start..][..length]
    }
}

/// Adds the products of some rows of `x` with some lines of weights to `out`, in all rows from place `first` on.
#[inline(always)]
fn sweep<S: Simd, const N: usize>(
    simd: S,
    x: &Columns<'_>,
    rows: Range<usize>,
    lines: [&[f32]; N],
    out: &mut [&mut [f32]],
    first: usize,
) {
    let mut row = rows.start;
    while row + 4 <= rows.end {
        dots::<S, 4, N>(simd, x, row, lines, out, first);
        row += 4;
    }
    while row < rows.end {
        dots::<S, 1, N>(simd, x, row, lines, out, first);
        row += 1;
    }
}

/// `M` rows of `x` from `row` on against `N` lines.
#[inline(always)]
fn dots<S: Simd, const M: usize, const N: usize>(
    simd: S,
    x: &Columns<'_>,
    row: usize,
    lines: [&[f32]; N],
    out: &mut [&mut [f32]],
    first: usize,
) {
    let length = lines[0].len();
    let x: [_; M] = std::array::from_fn(|m| S::as_simd_f32s(x.row(row + m, length)));
    let lines = lines.map(|line| S::as_simd_f32s(line));
    let whole = lines[0].0.len();
    let xs: [&[S::f32s]; M] = std::array::from_fn(|m| &x[m].0[..whole]);
    let ws: [&[S::f32s]; N] = std::array::from_fn(|n| &lines[n].0[..whole]);
    let mut sums = [[simd.splat_f32s(0.0); M]; N];
    for i in 0..whole {
        for n in 0..N {
            let w = ws[n][i];
            for m in 0..M {
                sums[n][m] = simd.mul_add_f32s(xs[m][i], w, sums[n][m]);
            }
        }
    }
    if !lines[0].1.is_empty() {
        for n in 0..N {
            let w = simd.partial_load_f32s(lines[n].1);
            for m in 0..M {
                sums[n][m] = simd.mul_add_f32s(simd.partial_load_f32s(x[m].1), w, sums[n][m]);
            }
        }
    }
    for m in 0..M {
        let out = &mut out[row + m][first..first + N];
        for n in 0..N {
            out[n] += simd.reduce_sum_f32s(sums[n][m]);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use forage_contracts::seed::Seed;
    use proptest::prelude::*;
    use rand::RngExt;

    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_processor_with_vectors_uses_them() {
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            assert_ne!(format!("{:?}", Arch::new()), "Scalar");
        }
    }

    pub(in crate::model::host) fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut rng = Seed::root(seed).rng();
        (0..count).map(|_| rng.random::<f32>() - 0.5).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn products_are_right_and_rows_do_not_know_each_other(
            rows in 1_usize..20, inputs in 1_usize..2300, outputs in 1_usize..120, seed in 0_u64..1000,
        ) {
            let (x, full) = (numbers(rows * inputs, seed), numbers(outputs * inputs, seed + 1));
            let half: Vec<bf16> = full.iter().map(|&weight| bf16::from_f32(weight)).collect();
            let widened: Vec<f32> = half.iter().map(|weight| weight.to_f32()).collect();
            for (weights, exact) in [(Rows::Full(&full), &full), (Rows::Half(&half), &widened)] {
                let together = product(&x, weights, inputs, outputs);
                for row in 0..rows {
                    let line = &x[row * inputs..][..inputs];
                    let alone = product(line, weights, inputs, outputs);
                    for (output, alone) in alone.iter().enumerate() {
                        prop_assert_eq!(alone.to_bits(), together[row * outputs + output].to_bits());
                        let terms = line.iter().zip(&exact[output * inputs..]);
                        let expected: f64 = terms.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                        prop_assert!((f64::from(*alone) - expected).abs() < 1e-6 * inputs as f64);
                    }
                }
            }
        }
    }
}

//! Matrix products with weights whose rows belong to inputs, as trained layers keep them.
//!
//! Outputs side by side are summed in the lanes of a vector, input after input. So a token's numbers have the same bits
//! whatever else is in the batch, and no sum of lanes is needed at the end, which short rows would notice.

use pulp::{Arch, NullaryFnOnce, Simd, WithSimd};
use rayon::prelude::*;

/// Rows and outputs of one task: enough work to be worth a task, few enough to share a small layer among cores.
const TASK: (usize, usize) = (32, 96);
/// Multiply-adds below which one thread does everything.
const TASK_WORK: usize = 1 << 17;

/// `x W` for `x` of shape `[rows, inputs]` and `weights` of shape `[inputs, outputs]`: `[rows, outputs]`, row-major.
pub(super) fn product(x: &[f32], weights: &[f32], inputs: usize, outputs: usize) -> Vec<f32> {
    let rows = x.len() / inputs;
    let mut y = vec![0.0; rows * outputs];
    let mut tasks = Vec::new();
    for (x, y) in x
        .chunks(TASK.0 * inputs)
        .zip(y.chunks_mut(TASK.0 * outputs))
    {
        let mut parts: Vec<Vec<&mut [f32]>> =
            (0..outputs).step_by(TASK.1).map(|_| Vec::new()).collect();
        for line in y.chunks_exact_mut(outputs) {
            parts
                .iter_mut()
                .zip(line.chunks_mut(TASK.1))
                .for_each(|(part, line)| part.push(line));
        }
        let parts = parts.into_iter().enumerate();
        tasks.extend(parts.map(|(part, y)| Task {
            x,
            weights,
            inputs,
            outputs,
            first: part * TASK.1,
            y,
        }));
    }
    let work_off = |task| Arch::new().dispatch(task);
    if rows * inputs * outputs < TASK_WORK {
        tasks.into_iter().for_each(work_off);
    } else {
        tasks.into_par_iter().for_each(work_off);
    }
    y
}

/// Some rows times some columns of the weights.
struct Task<'a, 'y> {
    x: &'a [f32],
    weights: &'a [f32],
    inputs: usize,
    outputs: usize,
    /// First column.
    first: usize,
    /// The columns of each row.
    y: Vec<&'y mut [f32]>,
}

impl WithSimd for Task<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let per = size_of::<S::f32s>() / size_of::<f32>();
        let width = self.y[0].len();
        let mut column = 0;
        while column < width {
            // Three quarters of the registers hold sums.
            column += per
                * match (width - column) / per {
                    0 => self.partial(simd, column),
                    3.. if S::REGISTER_COUNT >= 32 => self.whole::<S, 3>(simd, column, 8),
                    2.. if S::REGISTER_COUNT < 32 => self.whole::<S, 2>(simd, column, 4),
                    _ => self.whole::<S, 1>(simd, column, 8),
                };
        }
    }
}

impl Task<'_, '_> {
    /// `V` vectors of outputs for every row, at most `tallest` rows at a time; returns `V`.
    #[inline(always)]
    fn whole<S: Simd, const V: usize>(&mut self, simd: S, column: usize, tallest: usize) -> usize {
        let mut row = 0;
        while row < self.y.len() {
            let task = &mut *self;
            row += match (task.y.len() - row).min(tallest) {
                8.. => simd.vectorize(Tile::<S, 8, V> {
                    simd,
                    task,
                    row,
                    column,
                }),
                4.. => simd.vectorize(Tile::<S, 4, V> {
                    simd,
                    task,
                    row,
                    column,
                }),
                2.. => simd.vectorize(Tile::<S, 2, V> {
                    simd,
                    task,
                    row,
                    column,
                }),
                _ => simd.vectorize(Tile::<S, 1, V> {
                    simd,
                    task,
                    row,
                    column,
                }),
            };
        }
        V
    }

    /// The last outputs, fewer than a vector; returns 1 for the vector they are in.
    #[inline(always)]
    fn partial<S: Simd>(&mut self, simd: S, column: usize) -> usize {
        for (x, y) in self.x.chunks_exact(self.inputs).zip(&mut self.y) {
            let y = &mut y[column..];
            let weights = self.weights[self.first + column..].chunks(self.outputs);
            let sum = x
                .iter()
                .zip(weights)
                .fold(simd.splat_f32s(0.0), |sum, (&x, weights)| {
                    simd.mul_add_f32s(
                        simd.splat_f32s(x),
                        simd.partial_load_f32s(&weights[..y.len()]),
                        sum,
                    )
                });
            simd.partial_store_f32s(y, sum);
        }
        1
    }
}

/// `R` rows times `V` vectors of outputs.
struct Tile<'t, 'a, 'y, S, const R: usize, const V: usize> {
    simd: S,
    task: &'t mut Task<'a, 'y>,
    row: usize,
    column: usize,
}

impl<S: Simd, const R: usize, const V: usize> NullaryFnOnce for Tile<'_, '_, '_, S, R, V> {
    type Output = usize;

    #[inline(always)]
    fn call(self) -> usize {
        let Self {
            simd,
            task,
            row,
            column,
        } = self;
        let width = V * size_of::<S::f32s>() / size_of::<f32>();
        let x: [&[f32]; R] =
            std::array::from_fn(|r| &task.x[(row + r) * task.inputs..][..task.inputs]);
        let weights = &task.weights[task.first + column..];
        let mut sums = [[simd.splat_f32s(0.0); V]; R];
        for input in 0..task.inputs {
            let line = S::as_simd_f32s(&weights[input * task.outputs..][..width]).0;
            for r in 0..R {
                let x = simd.splat_f32s(x[r][input]);
                for v in 0..V {
                    sums[r][v] = simd.mul_add_f32s(x, line[v], sums[r][v]);
                }
            }
        }
        for r in 0..R {
            let y = S::as_mut_simd_f32s(&mut task.y[row + r][column..][..width]).0;
            for v in 0..V {
                y[v] = sums[r][v];
            }
        }
        R
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::product::tests::numbers;
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn products_are_right_and_rows_do_not_know_each_other(
            rows in 1_usize..80, inputs in 1_usize..600, outputs in 1_usize..300, seed in 0_u64..1000,
        ) {
            let (x, weights) = (numbers(rows * inputs, seed), numbers(inputs * outputs, seed + 1));
            let together = product(&x, &weights, inputs, outputs);
            for (x, y) in x.chunks_exact(inputs).zip(together.chunks_exact(outputs)) {
                let alone = product(x, &weights, inputs, outputs);
                for (output, (alone, together)) in alone.iter().zip(y).enumerate() {
                    prop_assert_eq!(alone.to_bits(), together.to_bits());
                    let column = weights[output..].iter().step_by(outputs);
                    let expected: f64 = x.iter().zip(column).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                    prop_assert!((f64::from(*alone) - expected).abs() < 1e-6 * inputs as f64);
                }
            }
        }
    }
}

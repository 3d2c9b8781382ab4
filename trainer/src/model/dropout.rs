//! Dropout on what an adapter reads (Srivastava et al. 2014; PEFT's `lora_dropout`), in passes that are learned from and no others.
//!
//! Whether a number is dropped is a function of the update's seed, the map, the tokens up to its own in its sequence, and its
//! place. So layers that are computed again for their derivative, another cut into micro-batches, other ranks and a run that is
//! resumed have the same masks, and what sequences have in common at their beginning has one.

use std::sync::Arc;

use burn::tensor::{DType, Tensor, TensorData};
use forage_contracts::seed::Seed;
use rayon::prelude::*;

/// Increment of `SplitMix64` (Steele et al. 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scatters the bits of a number, as `SplitMix64` does.
const fn scatter(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The key of a token that stands behind one with the key `before`: it depends on all tokens up to this one.
pub(super) fn key_after(before: u64, id: u32) -> u64 {
    scatter(before.wrapping_add(STEP) ^ u64::from(id))
}

/// Dropout of an update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dropout {
    /// Share of numbers that are dropped, in [0, 1).
    pub(crate) rate: f64,
    /// Start of the masks.
    pub(crate) seed: Seed,
}

/// Dropout of what one map reads, for the rows of one batch.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    rate: f64,
    seed: u64,
    /// A key of each row.
    rows: Arc<[u64]>,
}

impl Mask {
    /// The mask of the map called `name`.
    pub(super) fn new(dropout: Dropout, name: &str, rows: &Arc<[u64]>) -> Self {
        Self {
            rate: dropout.rate,
            seed: dropout.seed.child(name, &[]).0,
            rows: Arc::clone(rows),
        }
    }

    /// The factor of what is not dropped, which keeps the mean as it is.
    pub(super) fn gain(&self) -> f64 {
        1.0 / (1.0 - self.rate)
    }

    /// 1 where a number of `x`, `[rows, inputs]`, is kept and 0 where it is dropped.
    pub(super) fn of(&self, x: &Tensor<2>) -> Tensor<2> {
        let [rows, inputs] = x.dims();
        let data = TensorData::new(self.numbers(inputs), [rows, inputs]);
        let device = x.device().without_autodiff();
        Tensor::<2>::from_data(data, (&device, DType::F32)).cast(x.dtype())
    }

    /// `[rows, inputs]`.
    pub(super) fn numbers(&self, inputs: usize) -> Vec<f32> {
        let least = (self.rate * f64::from(u32::MAX)) as u32;
        let mut numbers = vec![1.0; self.rows.len() * inputs];
        let lines = numbers.par_chunks_mut(inputs).zip(self.rows.par_iter());
        lines.for_each(|(line, row)| {
            let mut state = scatter(self.seed ^ row);
            for pair in line.chunks_mut(2) {
                state = state.wrapping_add(STEP);
                let drawn = scatter(state);
                for (number, drawn) in pair.iter_mut().zip([drawn as u32, (drawn >> 32) as u32]) {
                    if drawn < least {
                        *number = 0.0;
                    }
                }
            }
        });
        numbers
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::lora::{self, LoraConfig, Targets};
    use crate::model::{Kernels, Linear, ParameterGrads};

    const INPUTS: usize = 6;
    const OUTPUTS: usize = 4;
    const RANK: usize = 2;

    fn mask(name: &str, rows: &[u64]) -> Mask {
        let dropout = Dropout {
            rate: 0.3,
            seed: Seed::root(7),
        };
        Mask::new(dropout, name, &Arc::from(rows))
    }

    #[test]
    fn a_mask_drops_its_share_and_a_row_keeps_its_own_wherever_it_stands() {
        let rows: Vec<u64> = (0..200).map(|row| key_after(row, 9)).collect();
        let numbers = mask("q_proj", &rows).numbers(101);
        let kept = numbers.iter().sum::<f32>() / numbers.len() as f32;
        assert!((kept - 0.7).abs() < 0.02, "{kept}");
        assert!(numbers.iter().all(|number| [0.0, 1.0].contains(number)));
        let last = mask("q_proj", &rows[199..]).numbers(101);
        assert_eq!(numbers[199 * 101..], last);
        assert_ne!(mask("k_proj", &rows[199..]).numbers(101), last);
        assert_ne!(mask("q_proj", &rows[198..199]).numbers(101), last);
    }

    fn wave(count: usize, phase: f32) -> Vec<f32> {
        (0..count)
            .map(|place| (place as f32 * 0.7 + phase).sin())
            .collect()
    }

    fn matrix(values: &[f32], width: usize) -> Tensor<2> {
        let data = TensorData::new(values.to_vec(), [values.len() / width, width]);
        Tensor::from_data(data, (&Device::flex(), DType::F32))
    }

    fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().unwrap()
    }

    /// `a b` for row-major matrices, `[_, inner]` and `[inner, columns]`.
    fn times(a: &[f32], b: &[f32], inner: usize, columns: usize) -> Vec<f32> {
        let cell = |index: usize| {
            let (row, column) = (index / columns, index % columns);
            (0..inner).map(move |at| a[row * inner + at] * b[at * columns + column])
        };
        (0..a.len() / inner * columns)
            .map(|index| cell(index).sum())
            .collect()
    }

    /// x W + s / (1 - p) ((x m) A) B in plain loops, and central differences of it for the derivatives.
    #[test]
    fn the_change_of_a_map_and_its_derivatives_are_those_of_the_formula() {
        let rows = [3, 5, 8];
        let parts = [
            wave(3 * INPUTS, 0.1),
            wave(INPUTS * OUTPUTS, 0.2),
            wave(INPUTS * RANK, 0.3),
            wave(RANK * OUTPUTS, 0.4),
        ];
        let mask = mask("q_proj", &rows);
        let kept = mask.numbers(INPUTS);
        assert!(kept.contains(&0.0) && kept.contains(&1.0));
        let config = LoraConfig {
            rank: RANK,
            alpha: 3.0,
            rank_stabilised: false,
            dropout: 0.3,
            targets: Targets::AllLinear,
            base: String::new(),
        };
        let formula = |[x, w, a, b]: &[Vec<f32>; 4]| -> Vec<f32> {
            let seen: Vec<f32> = x.iter().zip(&kept).map(|(x, m)| x * m).collect();
            let narrow = times(&seen, a, INPUTS, RANK);
            let change = times(&narrow, b, RANK, OUTPUTS);
            let plain = times(x, w, INPUTS, OUTPUTS);
            let sum = plain.iter().zip(&change);
            sum.map(|(plain, change)| plain + 1.5 / 0.7 * change)
                .collect()
        };
        let [x, w, a, b] = parts.clone();
        let mut map = Linear::new(INPUTS, OUTPUTS, false, &Device::flex());
        map.set_matrix(matrix(&w, OUTPUTS));
        lora::set(&mut map, &config, (a, b), &Device::flex());
        map.low_rank.as_mut().unwrap().mask = Some(mask);
        let found = numbers(map.forward(Kernels::Processor, matrix(&x, INPUTS)));
        let close = |found: &[f32], expected: &[f32], off: f32| {
            let pairs = || found.iter().zip(expected);
            assert_eq!(found.len(), expected.len());
            assert!(
                pairs().all(|(found, expected)| (found - expected).abs() < off),
                "{found:?} {expected:?}"
            );
        };
        close(&found, &formula(&parts), 1e-5);

        let by_output = wave(3 * OUTPUTS, 0.5);
        let loss = |parts: &[Vec<f32>; 4]| -> f32 {
            formula(parts)
                .iter()
                .zip(&by_output)
                .map(|(y, g)| y * g)
                .sum()
        };
        let by_differences = |part: usize| -> Vec<f32> {
            let shifted = |at: usize, by: f32| {
                let mut parts = parts.clone();
                parts[part][at] += by;
                loss(&parts)
            };
            (0..parts[part].len())
                .map(|at| (shifted(at, 0.05) - shifted(at, -0.05)) / 0.1)
                .collect()
        };
        let mut grads = ParameterGrads::of_adapter(Kernels::Processor);
        let by_x = grads.linear("map", &map, matrix(&x, INPUTS), matrix(&by_output, OUTPUTS));
        close(&numbers(by_x), &by_differences(0), 1e-3);
        for (name, part) in [("map.low_rank.a", 2), ("map.low_rank.b", 3)] {
            let found = numbers(grads.total[name].clone());
            close(&found, &by_differences(part), 1e-3);
        }
    }
}

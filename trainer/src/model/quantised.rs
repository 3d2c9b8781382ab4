//! Matrices of 8 bits, for a frozen base beside an adapter.
//!
//! Blocks of [`BLOCK_INPUTS`] inputs of one output share a scale `s = max |w| / 127`, and a weight is kept as `round(w / s)`: the
//! format that GGML calls `Q8_0`, with scales in f32. A weight is off by at most `s / 2`. Products widen blocks as they are
//! used, so what is computed is exactly the product with the widened matrix.

use burn::module::Module;
use burn::tensor::{DType, Int, Tensor, TensorData};
use rayon::prelude::*;

use super::{Kernels, host};

/// Inputs that share a scale.
pub(crate) const BLOCK_INPUTS: usize = 32;

/// Rows up to which a device multiplies by the bytes themselves. Where there are more, widening the matrix once costs little beside
/// the product, which the device's tensor cores then do.
#[cfg(feature = "gpu")]
const MOST_ROWS: usize = 256;

/// Bytes that matrices of so many numbers take in 8 bits, with their scales.
pub(crate) fn bytes_of_8_bits(numbers: usize) -> usize {
    numbers + numbers / BLOCK_INPUTS * size_of::<f32>()
}

/// A matrix `[inputs, outputs]` as 8-bit integers and scales.
#[derive(Module, Debug)]
pub(super) struct Quantised {
    /// `[outputs, inputs]` of 8 bits on the processor. On a device words of four of them, the first lowest, `[outputs, inputs / 4]`:
    /// not every shader has integers of 8 bits.
    numbers: Tensor<2, Int>,
    /// `[outputs, inputs / BLOCK_INPUTS]`
    scales: Tensor<2>,
}

impl Quantised {
    /// The nearest to `weight`, `[inputs, outputs]` of any float type. Inputs are a multiple of [`BLOCK_INPUTS`].
    pub(super) fn nearest(weight: Tensor<2>) -> Self {
        let [inputs, outputs] = weight.dims();
        let device = weight.device();
        let data = weight.swap_dims(0, 1).into_data().convert::<f32>();
        let values = data.as_slice::<f32>().expect("converted to f32");
        let (numbers, scales) = quantise(values);
        let (data, dtype) = if Kernels::of(&device) == Kernels::Processor {
            let count = numbers.len();
            (TensorData::new(numbers, [count]), DType::I8)
        } else {
            let word = |bytes: &[i8]| i32::from_le_bytes([0, 1, 2, 3].map(|at| bytes[at] as u8));
            let words: Vec<i32> = numbers.chunks_exact(4).map(word).collect();
            let count = words.len();
            (TensorData::new(words, [count]), DType::I32)
        };
        let width = data.num_elements() / outputs;
        let blocks = inputs / BLOCK_INPUTS;
        let scales = TensorData::new(scales, [outputs * blocks]);
        // Flat, since CUDA pads the rows of a new matrix, and kernels would have to copy them together at every launch.
        Self {
            numbers: Tensor::<1, Int>::from_data(data, (&device, dtype)).reshape([outputs, width]),
            scales: Tensor::<1>::from_data(scales, (&device, DType::F32))
                .reshape([outputs, blocks]),
        }
    }

    /// `[inputs, outputs]`
    pub(crate) fn shape(&self) -> [usize; 2] {
        let [outputs, blocks] = self.scales.dims();
        [blocks * BLOCK_INPUTS, outputs]
    }

    /// Matrices with the same inputs, their outputs side by side.
    #[cfg(feature = "gpu")]
    pub(super) fn joined(parts: &[&Self]) -> Self {
        let outputs: usize = parts.iter().map(|part| part.shape()[1]).sum();
        let ([_, width], [_, blocks]) = (parts[0].numbers.dims(), parts[0].scales.dims());
        // Flat, as in [`Self::nearest`].
        let numbers = parts
            .iter()
            .map(|part| part.numbers.clone().flatten::<1>(0, 1));
        let scales = parts
            .iter()
            .map(|part| part.scales.clone().flatten::<1>(0, 1));
        Self {
            numbers: Tensor::<1, Int>::cat(numbers.collect(), 0).reshape([outputs, width]),
            scales: Tensor::<1>::cat(scales.collect(), 0).reshape([outputs, blocks]),
        }
    }

    /// The part with `count` outputs from `first` on.
    #[cfg(feature = "gpu")]
    pub(super) fn outputs(&self, first: usize, count: usize) -> Self {
        Self {
            numbers: self.numbers.clone().narrow(0, first, count),
            scales: self.scales.clone().narrow(0, first, count),
        }
    }

    /// `x W` for `x` of shape `[n, inputs]`.
    pub(super) fn product(&self, kernels: Kernels, x: Tensor<2>) -> Tensor<2> {
        if kernels == Kernels::Processor {
            return host::quantised_product(x, self.numbers.clone(), self.scales.clone());
        }
        #[cfg(feature = "gpu")]
        if kernels == Kernels::Cube && x.dims()[0] <= MOST_ROWS {
            return super::cube::product_of_8_bits(x, self.numbers.clone(), self.scales.clone());
        }
        let weight = self.widened_to(x.dtype());
        #[cfg(feature = "gpu")]
        if kernels == Kernels::Cube {
            return super::cube::product(x, weight);
        }
        let weight = if x.device().is_autodiff() {
            weight.autodiff()
        } else {
            weight
        };
        x.matmul(weight)
    }

    /// The matrix it stands for, `[inputs, outputs]` in f32, stored row by output.
    pub(crate) fn widened(&self) -> Tensor<2> {
        self.widened_to(DType::F32)
    }

    /// The matrix in floats of type `dtype`.
    pub(super) fn widened_to(&self, dtype: DType) -> Tensor<2> {
        let (numbers, scales) = (self.numbers.clone(), self.scales.clone());
        #[cfg(feature = "gpu")]
        if Kernels::of(&scales.device()) == Kernels::Cube {
            return super::cube::widened(numbers, scales, dtype).swap_dims(0, 1);
        }
        host::widened(numbers, scales).swap_dims(0, 1).cast(dtype)
    }
}

/// Numbers and scales of `values`, a whole number of blocks.
fn quantise(values: &[f32]) -> (Vec<i8>, Vec<f32>) {
    let mut numbers = vec![0; values.len()];
    let mut scales = vec![0.0; values.len() / BLOCK_INPUTS];
    let blocks = values
        .par_chunks_exact(BLOCK_INPUTS)
        .zip(numbers.par_chunks_exact_mut(BLOCK_INPUTS))
        .zip(&mut scales);
    blocks.for_each(|((values, numbers), scale)| {
        *scale = values
            .iter()
            .fold(0.0_f32, |most, value| most.max(value.abs()))
            / 127.0;
        // A block of zeros has no scale to divide by.
        let inverse = if *scale > 0.0 { 1.0 / *scale } else { 0.0 };
        for (number, value) in numbers.iter_mut().zip(values) {
            *number = (value * inverse).round().clamp(-127.0, 127.0) as i8;
        }
    });
    (numbers, scales)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn matrix(inputs: usize, outputs: usize) -> Tensor<2> {
        let values: Vec<f32> = (0..inputs * outputs)
            .map(|n| ((n * 37 % 101) as f32 - 50.0) * 1e-3 * (n % 7) as f32)
            .collect();
        Tensor::from_data(TensorData::new(values, [inputs, outputs]), &Device::flex())
    }

    fn numbers(x: Tensor<2>) -> Vec<f32> {
        x.into_data().convert::<f32>().try_into_vec().unwrap()
    }

    #[test]
    fn weights_are_off_by_half_a_step_at_most_and_zeros_are_zeros() {
        let weight = matrix(96, 10);
        let kept = Quantised::nearest(weight.clone());
        assert_eq!(kept.shape(), [96, 10]);
        let (found, expected) = (numbers(kept.widened()), numbers(weight));
        for output in 0..10 {
            for block in 0..96 / BLOCK_INPUTS {
                let at = |input: usize| (block * BLOCK_INPUTS + input) * 10 + output;
                let most = (0..BLOCK_INPUTS)
                    .map(|input| expected[at(input)].abs())
                    .fold(0.0, f32::max);
                for input in 0..BLOCK_INPUTS {
                    let off = (found[at(input)] - expected[at(input)]).abs();
                    assert!(off <= most / 254.0 * 1.0001, "{off} of {most}");
                }
            }
        }
        let zeros = Quantised::nearest(Tensor::zeros([32, 4], &Device::flex()));
        assert!(numbers(zeros.widened()).iter().all(|&value| value == 0.0));
    }

    #[test]
    fn what_is_kept_is_kept_again_without_loss() {
        let once = Quantised::nearest(matrix(64, 12)).widened();
        let twice = Quantised::nearest(once.clone()).widened();
        for (once, twice) in numbers(once).into_iter().zip(numbers(twice)) {
            assert!((once - twice).abs() <= 1e-6 * once.abs(), "{once} {twice}");
        }
    }

    #[test]
    fn products_are_those_of_the_widened_matrix_to_the_bit() {
        // 1,056 inputs are more than one stretch of the kernel; 13 outputs are not a whole number of its tiles.
        for (rows, inputs, outputs) in [(1, 64, 13), (5, 1056, 13), (130, 96, 50)] {
            let kept = Quantised::nearest(matrix(inputs, outputs));
            let x = matrix(rows, inputs);
            let expected = Kernels::Processor.matmul(x.clone(), kept.widened());
            assert!(
                numbers(kept.product(Kernels::Processor, x)) == numbers(expected),
                "{rows} {inputs} {outputs}"
            );
        }
    }
}

//! Element-wise work on the processor, vectorised for the machine at hand.
//!
//! Burn's processor backend computes GELU and the softmax of attention one number at a time, which takes as long as the
//! matrix products around them. These loops are compiled for several instruction sets and chosen at run time by `pulp`.

#![allow(
    clippy::inline_always,
    reason = "a kernel is compiled for an instruction set only where it is inlined"
)]

use burn::tensor::{Tensor, TensorData};
use pulp::Arch;
use rayon::prelude::*;

use crate::model::host::{exp, largest};

const LANES: usize = 16;
/// Numbers per task: small enough to share a layer among cores, large enough to be worth a task.
const TASK: usize = 16 * 1024;

/// `gelu(x + bias)` with the exact error function; `bias` has the width of `x`.
pub(super) fn bias_gelu(x: Tensor<2>, bias: &[f32]) -> Tensor<2> {
    let rows = (TASK / bias.len()).max(1);
    in_place(x, |data| {
        data.par_chunks_mut(rows * bias.len())
            .for_each(|rows| Arch::new().dispatch(|| bias_gelu_rows(rows, bias)));
    })
}

/// `softmax(scale * x)` over the last dimension.
pub(super) fn scaled_softmax(x: Tensor<4>, scale: f32) -> Tensor<4> {
    let [.., width] = x.dims();
    let rows = (TASK / width).max(1);
    in_place(x, |data| {
        data.par_chunks_mut(rows * width)
            .for_each(|rows| Arch::new().dispatch(|| softmax_rows(rows, width, scale)));
    })
}

/// Changes a tensor on the processor; its memory is reused when nothing else holds it.
fn in_place<const D: usize>(x: Tensor<D>, change: impl FnOnce(&mut [f32])) -> Tensor<D> {
    let device = x.device();
    let mut data: TensorData = x.into_data();
    change(
        data.as_mut_slice::<f32>()
            .expect("the processor computes in f32"),
    );
    Tensor::from_data(data, &device)
}

#[inline(always)]
fn bias_gelu_rows(data: &mut [f32], bias: &[f32]) {
    for row in data.chunks_exact_mut(bias.len()) {
        for (x, &bias) in row.iter_mut().zip(bias) {
            *x = gelu(*x + bias);
        }
    }
}

/// `x / 2 * (1 + erf(x / sqrt 2))`, written with the complement so that neither tail loses digits.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    let size = x.abs();
    let positive = if x > 0.0 { x } else { 0.0 };
    positive - 0.5 * size * erfc(size * std::f32::consts::FRAC_1_SQRT_2)
}

/// The complementary error function of `z >= 0` to a relative 2e-7 plus the rounding of the exponent (Numerical Recipes,
/// `erfcc`, a Chebyshev fit).
#[inline(always)]
fn erfc(z: f32) -> f32 {
    const FIT: [f32; 10] = [
        0.170_872_76,
        -0.822_152_26,
        1.488_515_9,
        -1.135_204,
        0.278_868_08,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_95,
        1.000_023_7,
        -1.265_512_2,
    ];
    let t = 1.0 / (1.0 + 0.5 * z);
    let mut fit = FIT[0];
    for coefficient in &FIT[1..] {
        fit = fit * t + coefficient;
    }
    t * exp(fit - z * z)
}

#[inline(always)]
fn softmax_rows(data: &mut [f32], width: usize, scale: f32) {
    for row in data.chunks_exact_mut(width) {
        let largest = largest(row);
        let (chunks, rest) = row.as_chunks_mut::<LANES>();
        let mut sums = [0.0_f32; LANES];
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

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use burn::tensor::activation::softmax;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gelu_is_within_4e7_of_the_exact_one() {
        let points: Vec<f32> = (-150_000..=150_000)
            .map(|step| step as f32 * 2e-4)
            .collect();
        let tensor = Tensor::<1>::from_floats(points.as_slice(), &Device::flex());
        let expected: Vec<f32> = burn::tensor::activation::gelu(tensor)
            .into_data()
            .try_into_vec()
            .unwrap();
        for (&x, expected) in points.iter().zip(expected) {
            assert!(
                (gelu(x) - expected).abs() < 4e-7 * x.max(1.0),
                "{x}: {} is not {expected}",
                gelu(x)
            );
        }
    }

    fn close(a: Vec<f32>, b: Vec<f32>) -> bool {
        a.len() == b.len()
            && a.into_iter()
                .zip(b)
                .all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0))
    }

    proptest! {
        #[test]
        fn kernels_equal_burns(values in prop::collection::vec(-30_f32..30.0, 37 * 3), columns in 1_usize..38) {
            let rows = values.len() / columns;
            let device = Device::flex();
            let x = Tensor::<2>::from_data(TensorData::new(values[..rows * columns].to_vec(), [rows, columns]), &device);
            let bias = &values[..columns];
            let with_bias = x.clone() + Tensor::<1>::from_floats(bias, &device).unsqueeze();
            let expected: Vec<f32> = burn::tensor::activation::gelu(with_bias).into_data().try_into_vec().unwrap();
            prop_assert!(close(bias_gelu(x.clone(), bias).into_data().try_into_vec().unwrap(), expected));
            let x = x.reshape([1, 1, rows, columns]);
            let expected: Vec<f32> = softmax(x.clone() * 0.25, 3).into_data().try_into_vec().unwrap();
            prop_assert!(close(scaled_softmax(x, 0.25).into_data().try_into_vec().unwrap(), expected));
        }
    }
}

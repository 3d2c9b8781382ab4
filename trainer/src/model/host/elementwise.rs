//! Work on each number or row, in one pass over memory where Burn takes several and computes exponentials one by one.

use burn::tensor::{Tensor, TensorData};
use pulp::Arch;
use rayon::prelude::*;

use super::lanes::exp;
use super::read;

const LANES: usize = 16;
/// Numbers per task: large enough to be worth one.
const TASK: usize = 8 * 1024;

/// `silu(gate) * up` (`SwiGLU`, Shazeer 2020).
pub(in crate::model) fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    let (device, shape) = (gate.device(), gate.shape());
    let mut gate: Vec<f32> = gate.into_data().try_into_vec().expect("the processor computes in f32");
    read(up, |up| {
        let task = |(gate, up): (&mut [f32], &[f32])| Arch::new().dispatch(|| swiglu_part(gate, up));
        if gate.len() < 2 * TASK {
            task((&mut gate, up));
        } else {
            gate.par_chunks_mut(TASK).zip(up.par_chunks(TASK)).for_each(task);
        }
    });
    Tensor::from_data(TensorData::new(gate, shape), &device)
}

/// Derivatives by `gate` and `up` of a loss whose derivative by [`swiglu`]'s result is `slope`.
pub(in crate::model) fn swiglu_backward(gate: Tensor<2>, up: Tensor<2>, slope: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    let (device, shape) = (gate.device(), gate.shape());
    let numbers = |x: Tensor<2>| -> Vec<f32> { x.into_data().try_into_vec().expect("the processor computes in f32") };
    let (mut gate, mut slope) = (numbers(gate), numbers(slope));
    read(up, |up| {
        let task = |((gate, slope), up): ((&mut [f32], &mut [f32]), &[f32])| {
            Arch::new().dispatch(|| swiglu_backward_part(gate, slope, up));
        };
        if gate.len() < 2 * TASK {
            task(((&mut gate, &mut slope), up));
        } else {
            gate.par_chunks_mut(TASK).zip(slope.par_chunks_mut(TASK)).zip(up.par_chunks(TASK)).for_each(task);
        }
    });
    let tensor = |numbers: Vec<f32>| Tensor::from_data(TensorData::new(numbers, shape.clone()), &device);
    (tensor(gate), tensor(slope))
}

/// `gate` becomes the derivative by it, `slope` the one by `up`.
#[inline(always)]
fn swiglu_backward_part(gate: &mut [f32], slope: &mut [f32], up: &[f32]) {
    for ((gate, slope), up) in gate.iter_mut().zip(slope).zip(up) {
        let x = *gate;
        let small = exp(if x > 0.0 { -x } else { x });
        let weight = if x > 0.0 { 1.0 } else { small } / (1.0 + small);
        *gate = *slope * up * weight * (1.0 + x * (1.0 - weight));
        *slope *= x * weight;
    }
}

#[inline(always)]
fn swiglu_part(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        let x = *gate;
        // The exponential of what is never positive does not overflow.
        let small = exp(if x > 0.0 { -x } else { x });
        let weight = if x > 0.0 { 1.0 } else { small } / (1.0 + small);
        *gate = x * weight * up;
    }
}

/// `x / sqrt(mean(x^2) + epsilon) * gamma` over the last dimension (Zhang and Sennrich 2019).
pub(in crate::model) fn rms_norm<const D: usize>(x: Tensor<D>, gamma: &Tensor<1>, epsilon: f64) -> Tensor<D> {
    let (device, shape) = (x.device(), x.shape());
    let [width] = gamma.dims();
    let normed = read(x, |x| {
        let mut normed = vec![0.0; x.len()];
        read(gamma.clone(), |gamma| {
            let rows = (TASK / width).max(1) * width;
            let task = |(to, from): (&mut [f32], &[f32])| {
                Arch::new().dispatch(|| norm_rows(to, from, gamma, epsilon as f32));
            };
            if x.len() < 2 * TASK {
                task((&mut normed, x));
            } else {
                normed.par_chunks_mut(rows).zip(x.par_chunks(rows)).for_each(task);
            }
        });
        normed
    });
    Tensor::from_data(TensorData::new(normed, shape), &device)
}

#[inline(always)]
fn norm_rows(to: &mut [f32], from: &[f32], gamma: &[f32], epsilon: f32) {
    for (to, from) in to.chunks_exact_mut(gamma.len()).zip(from.chunks_exact(gamma.len())) {
        let (chunks, rest) = from.as_chunks::<LANES>();
        let mut sums = [0.0_f32; LANES];
        for chunk in chunks {
            for (sum, x) in sums.iter_mut().zip(chunk) {
                *sum += x * x;
            }
        }
        for (sum, x) in sums.iter_mut().zip(rest) {
            *sum += x * x;
        }
        let scale = 1.0 / (sums.iter().sum::<f32>() / gamma.len() as f32 + epsilon).sqrt();
        for ((to, from), gamma) in to.iter_mut().zip(from).zip(gamma) {
            *to = from * scale * gamma;
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::RmsNormConfig;
    use burn::tensor::activation::silu;
    use burn::tensor::{Device, Distribution};

    use super::*;

    fn worst<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
        (a - b).abs().max().into_scalar::<f32>()
    }

    #[test]
    fn they_equal_burns() {
        let device = Device::flex();
        for (rows, width) in [(1, 1), (3, 17), (5, 192), (40, 897)] {
            let draw = |spread: f64| Tensor::<2>::random([rows, width], Distribution::Normal(0.0, spread), &device);
            let (gate, up) = (draw(8.0), draw(1.0));
            let expected = silu(gate.clone()) * up.clone();
            assert!(worst(swiglu(gate.clone(), up.clone()), expected) < 1e-5, "{rows} {width}");
            let slope = draw(1.0);
            let leaves = [&gate, &up].map(|x| x.clone().autodiff().require_grad());
            let result = silu(leaves[0].clone()) * leaves[1].clone();
            let gradients = (result * slope.clone().autodiff()).sum().backward();
            let (by_gate, by_up) = swiglu_backward(gate.clone(), up, slope);
            assert!(worst(by_gate, leaves[0].grad(&gradients).unwrap()) < 2e-5, "{rows} {width}");
            assert!(worst(by_up, leaves[1].grad(&gradients).unwrap()) < 2e-5, "{rows} {width}");
            let norm = RmsNormConfig::new(width).with_epsilon(1e-6).init(&device);
            let found = rms_norm(gate.clone(), &norm.gamma.val(), 1e-6);
            assert!(worst(found, norm.forward(gate)) < 1e-5, "{rows} {width}");
        }
    }
}

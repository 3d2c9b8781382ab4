//! Inference on the processor: kernels that read tensors in place.
//!
//! Burn's processor backend has no fused attention over a paged cache, widens half-precision weights as a whole, and
//! multiplies few rows slowly. These kernels do what the decoder needs there; they carry no gradient: where a graph is built,
//! Burn's operations stand in their place, which tests hold equal to them.

#![allow(
    clippy::inline_always,
    reason = "a kernel is compiled for an instruction set only where it is inlined"
)]
#![allow(
    clippy::needless_range_loop,
    clippy::manual_memcpy,
    reason = "sums stay in registers only where every index is a constant once loops are unrolled"
)]

mod attention;
mod elementwise;
mod gemm;
mod lanes;
mod outer;
mod product;
mod softmax;

use burn::backend::Flex;
use burn::tensor::{DType, Int, Tensor, TensorData};
use half::bf16;
use rayon::prelude::*;

use super::quantised::BLOCK_INPUTS;

pub(super) use attention::{BLOCK, Layer, Run, attend};
pub(super) use elementwise::{
    rms_norm, rms_norm_backward, rotate, rotate_heads, swiglu, swiglu_backward,
};
pub(super) use gemm::matmul;
pub(crate) use lanes::{exp, largest};
use product::Rows;
pub(super) use softmax::{causal_softmax, softmax_backward};
pub(crate) use softmax::{logit_grads, token_scores};

/// `x W` for a weight of logical shape `[inputs, outputs]`, in single or half precision. A row of the result has the same
/// bits whatever other rows there are; Burn's own product has no such property.
pub(super) fn product(x: Tensor<2>, weight: &Tensor<2>) -> Tensor<2> {
    let ([rows, _], [inputs, outputs], device) = (x.dims(), weight.dims(), x.device());
    let stored = |weight: &Tensor<2>| {
        let weight = weight
            .clone()
            .try_into_primitive::<Flex>()
            .expect("the caller checked that x is on the processor");
        let layout = weight.layout();
        let (first, strides) = (
            layout.start_offset(),
            (layout.strides()[0], layout.strides()[1]),
        );
        (weight, first..first + inputs * outputs, strides)
    };
    let (mut numbers, mut range, mut strides) = stored(weight);
    let by_output = |strides: (isize, isize)| strides.0 == 1 && strides.1 == inputs as isize;
    let by_input = |strides: (isize, isize)| strides.1 == 1 && strides.0 == outputs as isize;
    let half = numbers.dtype() == DType::BF16;
    if !by_output(strides) && (half || !by_input(strides)) {
        (numbers, range, strides) = stored(&self::by_output(weight.clone()));
    }
    let y = read(x, |x| match (half, by_output(strides)) {
        (true, _) => product::product(
            x,
            Rows::Half(&numbers.storage::<bf16>()[range]),
            inputs,
            outputs,
        ),
        (false, true) => product::product(
            x,
            Rows::Full(&numbers.storage::<f32>()[range]),
            inputs,
            outputs,
        ),
        (false, false) => outer::product(x, &numbers.storage::<f32>()[range], inputs, outputs),
    });
    Tensor::from_data(TensorData::new(y, [rows, outputs]), &device)
}

/// `x W` for a weight of 8 bits: `numbers` of shape `[outputs, inputs]`, `scales` of shape `[outputs, inputs / BLOCK_INPUTS]`. A
/// row of the result has the same bits whatever other rows there are.
pub(super) fn quantised_product(
    x: Tensor<2>,
    numbers: Tensor<2, Int>,
    scales: Tensor<2>,
) -> Tensor<2> {
    let ([rows, _], [outputs, inputs], device) = (x.dims(), numbers.dims(), x.device());
    let y = read(x, |x| {
        of_blocks(numbers, scales, |numbers, scales| {
            product::product(x, Rows::Quantised(numbers, scales), inputs, outputs)
        })
    });
    Tensor::from_data(TensorData::new(y, [rows, outputs]), &device)
}

/// A weight of 8 bits as f32, `[outputs, inputs]`.
pub(super) fn widened(numbers: Tensor<2, Int>, scales: Tensor<2>) -> Tensor<2> {
    let ([outputs, inputs], device) = (numbers.dims(), scales.device());
    let mut values = vec![0.0; outputs * inputs];
    of_blocks(numbers, scales, |numbers, scales| {
        let lines = values
            .par_chunks_mut(inputs)
            .zip(numbers.par_chunks(inputs));
        let lines = lines.zip(scales.par_chunks(inputs / BLOCK_INPUTS));
        lines.for_each(|((to, numbers), scales)| product::widen_blocks(numbers, scales, to));
    });
    Tensor::from_data(TensorData::new(values, [outputs, inputs]), &device)
}

/// Hands out the numbers and scales of a weight of 8 bits.
fn of_blocks<T>(
    numbers: Tensor<2, Int>,
    scales: Tensor<2>,
    use_them: impl FnOnce(&[i8], &[f32]) -> T,
) -> T {
    let numbers = numbers
        .try_into_primitive::<Flex>()
        .expect("the caller checked that it is on the processor");
    let first = numbers.layout().start_offset();
    let count = numbers.layout().num_elements();
    read(scales, |scales| {
        use_them(&numbers.storage::<i8>()[first..first + count], scales)
    })
}

/// The same matrix, `[inputs, outputs]`, stored row by output.
pub(super) fn by_output<const D: usize>(weight: Tensor<D>) -> Tensor<D> {
    let outputs_first = weight.swap_dims(0, 1);
    let contiguous = outputs_first
        .clone()
        .try_into_primitive::<Flex>()
        .is_ok_and(|stored| stored.is_contiguous());
    if contiguous {
        return outputs_first.swap_dims(0, 1);
    }
    let device = outputs_first.device();
    Tensor::from_data(outputs_first.into_data(), &device).swap_dims(0, 1)
}

/// Hands a tensor's numbers, row-major, to `use_them`; copied only when they are stored otherwise.
pub(crate) fn read<const D: usize, T>(x: Tensor<D>, use_them: impl FnOnce(&[f32]) -> T) -> T {
    let count = x.shape().num_elements();
    let x = x
        .try_into_primitive::<Flex>()
        .expect("the caller checked that the tensor is on the processor");
    let x = if x.is_contiguous() {
        x
    } else {
        x.to_contiguous()
    };
    let first = x.layout().start_offset();
    use_them(&x.storage::<f32>()[first..first + count])
}

/// Changes a tensor's numbers, row-major, in place; those that another tensor shares are copied first.
pub(crate) fn change<const D: usize>(
    x: Tensor<D>,
    change_them: impl FnOnce(&mut [f32]),
) -> Tensor<D> {
    let (shape, device) = (x.shape(), x.device());
    let primitive = |x: Tensor<D>| {
        x.try_into_primitive::<Flex>()
            .expect("the caller checked that the tensor is on the processor")
    };
    let mut stored = primitive(x);
    let whole = stored.is_contiguous() && stored.storage::<f32>().len() == shape.num_elements();
    if !whole {
        let numbers = read(Tensor::<D>::from_primitive::<Flex>(stored), <[f32]>::to_vec);
        stored = primitive(Tensor::from_data(TensorData::new(numbers, shape), &device));
    }
    change_them(stored.storage_mut::<f32>());
    Tensor::from_primitive::<Flex>(stored)
}

//! Inference on the processor: kernels that read tensors in place.
//!
//! Burn's processor backend has no fused attention over a paged cache, widens half-precision weights as a whole, and
//! multiplies few rows slowly. These kernels do what the decoder needs there; they carry no gradient, so training uses
//! Burn's operations, which tests hold equal to them.

#![allow(clippy::inline_always, reason = "a kernel is compiled for an instruction set only where it is inlined")]

mod attention;
mod elementwise;
mod lanes;
mod product;

use burn::backend::Flex;
use burn::tensor::{DType, Tensor, TensorData};
use half::bf16;
use rayon::prelude::*;

pub(super) use attention::{BLOCK, Layer, Query, attend};
pub(super) use elementwise::{rms_norm, swiglu};
pub(crate) use lanes::{exp, largest};
use product::Rows;

/// Whether a tensor lives on the processor and carries no graph.
pub(crate) fn runs_on<const D: usize>(x: &Tensor<D>) -> bool {
    x.clone().try_into_primitive::<Flex>().is_ok()
}

/// `x W` for a weight of logical shape `[inputs, outputs]` that is stored row by output, as in checkpoint files, in
/// single or half precision; `None` for any other order.
pub(super) fn product(x: &Tensor<2>, weight: &Tensor<2>) -> Option<Tensor<2>> {
    let [rows, inputs] = x.dims();
    let [_, outputs] = weight.dims();
    let device = x.device();
    let weight = weight.clone().try_into_primitive::<Flex>().ok()?;
    let layout = weight.layout();
    if layout.strides() != [1, inputs as isize] || inputs == 1 || outputs == 1 {
        return None;
    }
    let range = layout.start_offset()..layout.start_offset() + inputs * outputs;
    let stored = match weight.dtype() {
        DType::F32 => Rows::Full(&weight.storage::<f32>()[range]),
        DType::BF16 => Rows::Half(&weight.storage::<bf16>()[range]),
        _ => return None,
    };
    let y = read(x.clone(), |x| product::product(x, stored, inputs, outputs));
    Some(Tensor::from_data(TensorData::new(y, [rows, outputs]), &device))
}

/// Burn's product of at least two rows, on all threads where it would use one: its own threshold is above the layers of
/// small models. Rows do not know each other, so parts of them have the bits of the whole.
pub(super) fn product_by_rows(x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    /// Multiply-adds worth a second thread, and those from which on Burn takes all threads itself.
    const WORK: std::ops::Range<usize> = 1 << 18..192 * 192 * 192;
    /// Rows of a part, so that none has a single one.
    const ROWS: usize = 4;
    let ([rows, inputs], [_, outputs]) = (x.dims(), weight.dims());
    let parts = (rows / ROWS).min(rayon::current_num_threads());
    if parts < 2 || !WORK.contains(&(rows * inputs * outputs)) {
        return x.matmul(weight);
    }
    let part = |part: usize| {
        let (start, end) = (part * rows / parts, (part + 1) * rows / parts);
        x.clone().narrow(0, start, end - start).matmul(weight.clone())
    };
    Tensor::cat((0..parts).into_par_iter().map(part).collect(), 0)
}

/// The same matrix, `[inputs, outputs]`, stored row by output.
pub(super) fn by_output<const D: usize>(weight: Tensor<D>) -> Tensor<D> {
    let outputs_first = weight.swap_dims(0, 1);
    let contiguous = outputs_first.clone().try_into_primitive::<Flex>().is_ok_and(|stored| stored.is_contiguous());
    if contiguous {
        return outputs_first.swap_dims(0, 1);
    }
    let device = outputs_first.device();
    Tensor::from_data(outputs_first.into_data(), &device).swap_dims(0, 1)
}

/// Hands a tensor's numbers, row-major, to `use_them`; copied only when they are stored otherwise.
pub(crate) fn read<const D: usize, T>(x: Tensor<D>, use_them: impl FnOnce(&[f32]) -> T) -> T {
    let count = x.shape().num_elements();
    let x = x.try_into_primitive::<Flex>().expect("the caller checked that the tensor is on the processor");
    let x = if x.is_contiguous() { x } else { x.to_contiguous() };
    let first = x.layout().start_offset();
    use_them(&x.storage::<f32>()[first..first + count])
}

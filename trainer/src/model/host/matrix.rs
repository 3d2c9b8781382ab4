//! Products with weights as they are stored.

use burn::backend::Flex;
use burn::tensor::{DType, Int, Tensor, TensorData};
use half::bf16;
use rayon::prelude::*;

use super::product::{Rows, product as product_of_rows, widen_blocks};
use super::{outer, read};
use crate::model::quantised::BLOCK_INPUTS;

/// `x W` for a weight of logical shape `[inputs, outputs]`, in single or half precision. A row of the result has the same
/// bits whatever other rows there are; Burn's own product has no such property.
pub(in crate::model) fn product(x: Tensor<2>, weight: &Tensor<2>) -> Tensor<2> {
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
        (true, _) => product_of_rows(
            x,
            Rows::Half(&numbers.storage::<bf16>()[range]),
            inputs,
            outputs,
        ),
        (false, true) => product_of_rows(
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
pub(in crate::model) fn quantised_product(
    x: Tensor<2>,
    numbers: Tensor<2, Int>,
    scales: Tensor<2>,
) -> Tensor<2> {
    let ([rows, _], [outputs, inputs], device) = (x.dims(), numbers.dims(), x.device());
    let y = read(x, |x| {
        of_blocks(numbers, scales, |numbers, scales| {
            product_of_rows(x, Rows::Quantised(numbers, scales), inputs, outputs)
        })
    });
    Tensor::from_data(TensorData::new(y, [rows, outputs]), &device)
}

/// A weight of 8 bits as f32, `[outputs, inputs]`.
pub(in crate::model) fn widened(numbers: Tensor<2, Int>, scales: Tensor<2>) -> Tensor<2> {
    let ([outputs, inputs], device) = (numbers.dims(), scales.device());
    let mut values = vec![0.0; outputs * inputs];
    of_blocks(numbers, scales, |numbers, scales| {
        let lines = values
            .par_chunks_mut(inputs)
            .zip(numbers.par_chunks(inputs));
        let lines = lines.zip(scales.par_chunks(inputs / BLOCK_INPUTS));
        lines.for_each(|((to, numbers), scales)| widen_blocks(numbers, scales, to));
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
pub(in crate::model) fn by_output<const D: usize>(weight: Tensor<D>) -> Tensor<D> {
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

//! Launches over matrices of 8 bits: they are widened, or multiplied as they are.

use burn::tensor::{DType, Int, Tensor};

use super::kernels::bytes;
use super::launch::{
    UNITS, argument, cubes, element, elementwise, empty, numbers, stored, tensor, units,
};

/// A matrix of 8 bits, `[outputs, inputs]` in floats of type `dtype`, from four numbers per word and a scale per 32 of them.
pub(crate) fn widened(words: Tensor<2, Int>, scales: Tensor<2>, dtype: DType) -> Tensor<2> {
    let [outputs, width] = words.dims();
    let (words, scales) = (numbers(words), stored(scales));
    let out = empty(&scales, [outputs, width * 4], dtype);
    bytes::widen::launch(
        &scales.client,
        elementwise(outputs * width),
        units(UNITS),
        argument(&words),
        argument(&scales),
        argument(&out),
        (outputs * width) as u32,
        element(&out),
    );
    tensor(out)
}

/// `x W`, `[n, outputs]`, for `x`, `[n, inputs]`, and a matrix of 8 bits as [`widened`] takes it.
pub(crate) fn product_of_8_bits(
    x: Tensor<2>,
    words: Tensor<2, Int>,
    scales: Tensor<2>,
) -> Tensor<2> {
    let ([rows, inputs], [outputs, _]) = (x.dims(), words.dims());
    let (x, scales, words) = (stored(x), stored(scales), numbers(words));
    let out = empty(&x, [rows, outputs], x.dtype);
    // Rows of a unit; how many there are changes no sum.
    let each = (rows.div_ceil(bytes::TILE_PARTS))
        .next_power_of_two()
        .min(16);
    bytes::product_of_8_bits::launch(
        &x.client,
        cubes(
            outputs.div_ceil(bytes::TILE_OUTPUTS),
            rows.div_ceil(bytes::TILE_PARTS * each),
            1,
        ),
        units(bytes::TILE_OUTPUTS * bytes::TILE_PARTS),
        argument(&x),
        argument(&words),
        argument(&scales),
        argument(&out),
        rows as u32,
        inputs as u32,
        outputs as u32,
        each,
        element(&x),
    );
    tensor(out)
}

//! Products of matrices stored in any order, for attention and for derivatives.
//!
//! They are the kernels that Burn's processor backend calls (the `gemm` crate), with the same bits; there a result is cleared
//! before and copied after, which costs as much as many a product of short sequences.

use std::mem::MaybeUninit;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Tensor, TensorData};
use gemm::Parallelism;
use rayon::prelude::*;

/// Multiply-adds from which on one product is split over threads.
const SPLIT: usize = 192 * 192 * 192;
/// Multiply-adds from which on several products are shared among threads.
const SHARE: usize = 128 * 128 * 128;

/// `a b`, `[rows, inner]` and `[inner, columns]`.
pub(in crate::model) fn matmul<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    let (mut shape, device) = (a.dims(), a.device());
    let (left, right) = (Matrices::of(a), Matrices::of(b));
    assert!(
        left.count == right.count && left.columns == right.rows,
        "the factors fit"
    );
    shape[D - 1] = right.columns;
    let work = left.rows * left.columns * right.columns;
    let size = left.rows * right.columns;
    let mut numbers = Vec::with_capacity(left.count * size);
    let room = &mut numbers.spare_capacity_mut()[..left.count * size];
    let one = |(index, to): (usize, &mut [MaybeUninit<f32>])| {
        let split = left.count == 1 && work >= SPLIT;
        product(
            left.at(index),
            right.at(index),
            to,
            if split {
                Parallelism::Rayon(0)
            } else {
                Parallelism::None
            },
        );
    };
    if left.count > 1 && left.count * work >= SHARE {
        room.par_chunks_mut(size).enumerate().for_each(one);
    } else {
        room.chunks_mut(size.max(1)).enumerate().for_each(one);
    }
    // SAFETY: every number of the room was written.
    #[expect(
        unsafe_code,
        reason = "what a product is about to fill need not be cleared"
    )]
    unsafe {
        numbers.set_len(left.count * size);
    }
    Tensor::from_data(TensorData::new(numbers, shape), &device)
}

/// `a b`, written to all of `to`, row by row.
fn product(a: Matrix<'_>, b: Matrix<'_>, to: &mut [MaybeUninit<f32>], parallelism: Parallelism) {
    assert!(to.len() == a.rows * b.columns && a.columns == b.rows);
    if a.columns == 0 {
        to.fill(MaybeUninit::new(0.0));
        return;
    }
    if to.is_empty() {
        return;
    }
    let ((a_numbers, a_row, a_column), (b_numbers, b_row, b_column)) = (a.checked(), b.checked());
    // SAFETY: `checked` asserts that every element of the factors lies within their numbers, and `to` has as many places as the
    // result has elements, row after row; they are written, not read.
    #[expect(unsafe_code, reason = "the crate's one entry point takes pointers")]
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            to.as_mut_ptr().cast::<f32>(),
            1,
            b.columns as isize,
            false,
            a_numbers.as_ptr(),
            a_column,
            a_row,
            b_numbers.as_ptr(),
            b_column,
            b_row,
            0.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// One matrix: element (i, j) is `numbers[i * row + j * column]`.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    row: usize,
    column: usize,
}

impl<'a> Matrix<'a> {
    /// The numbers with both strides, once the last element is known to be there.
    fn checked(&self) -> (&'a [f32], isize, isize) {
        let last = (self.rows - 1) * self.row + (self.columns - 1) * self.column;
        assert!(last < self.numbers.len(), "a matrix is within its numbers");
        (self.numbers, self.row as isize, self.column as isize)
    }
}

/// The matrices of a tensor: one, or as many as its first dimension says.
struct Matrices {
    stored: FlexTensor,
    first: usize,
    count: usize,
    /// Numbers from one matrix to the next.
    step: usize,
    rows: usize,
    columns: usize,
    row: usize,
    column: usize,
}

impl Matrices {
    fn of<const D: usize>(x: Tensor<D>) -> Self {
        let shape = x.dims();
        let stored = x
            .try_into_primitive::<Flex>()
            .expect("the caller checked that the tensor is on the processor");
        let strides = stored
            .layout()
            .strides()
            .iter()
            .map(|&stride| usize::try_from(stride));
        let strides: Vec<usize> = strides
            .collect::<Result<_, _>>()
            .expect("nothing here is flipped");
        let (count, step) = match D {
            2 => (1, 0),
            3 => (shape[0], strides[0]),
            _ => panic!("matrices or stacks of them, not {D} dimensions"),
        };
        let [rows, columns, row, column] =
            [shape[D - 2], shape[D - 1], strides[D - 2], strides[D - 1]];
        Self {
            first: stored.layout().start_offset(),
            stored,
            count,
            step,
            rows,
            columns,
            row,
            column,
        }
    }

    fn at(&self, index: usize) -> Matrix<'_> {
        let Self {
            rows,
            columns,
            row,
            column,
            ..
        } = *self;
        Matrix {
            numbers: &self.stored.storage::<f32>()[self.first + index * self.step..],
            rows,
            columns,
            row,
            column,
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution};

    use super::*;

    /// To the bit, in every order of memory, alone and several at a time, small and large.
    #[test]
    fn products_are_those_of_burn() {
        let draw =
            |shape: [usize; 3]| Tensor::<3>::random(shape, Distribution::Default, &Device::flex());
        let same = |a: Tensor<3>, b: Tensor<3>| {
            let numbers = |x: Tensor<3>| x.into_data().try_into_vec::<f32>().unwrap();
            let shape = [a.dims()[0], a.dims()[1], b.dims()[2]];
            assert_eq!(matmul(a.clone(), b.clone()).dims(), shape);
            assert!(
                numbers(matmul(a.clone(), b.clone())) == numbers(a.clone().matmul(b.clone())),
                "{shape:?}"
            );
            let first = |x: &Tensor<3>| x.clone().narrow(0, 0, 1).squeeze_dim::<2>(0);
            let flat = |x: Tensor<2>| x.into_data().try_into_vec::<f32>().unwrap();
            assert!(
                flat(matmul(first(&a), first(&b))) == flat(first(&a).matmul(first(&b))),
                "{shape:?}"
            );
        };
        for (n, rows, inner, columns) in [
            (1, 1, 1, 1),
            (2, 3, 5, 4),
            (3, 70, 33, 130),
            (2, 200, 210, 220),
        ] {
            let (a, b) = (draw([n, rows, inner]), draw([n, inner, columns]));
            same(a.clone(), b.clone());
            same(
                draw([n, inner, rows]).swap_dims(1, 2),
                draw([n, columns, inner]).swap_dims(1, 2),
            );
            same(
                draw([rows, n, inner]).swap_dims(0, 1),
                draw([n, inner + 3, columns]).narrow(1, 2, inner),
            );
        }
        let nothing = matmul(draw([2, 4, 0]), draw([2, 0, 3]));
        assert_eq!(
            nothing.into_data().try_into_vec::<f32>().unwrap(),
            [0.0; 24]
        );
    }
}

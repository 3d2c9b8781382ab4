//! What stands between the products of a layer: norms, the activation, sums with the residual stream, and derivatives.

use cubecl::prelude::*;

use super::sum::sum_of_units;

/// `1 / sqrt(mean(x^2) + epsilon)` of the `width` numbers from `first` on, the same in all units of the cube.
#[cube]
fn scale_of_row<F: Float>(
    x: &[F],
    first: usize,
    width: usize,
    epsilon: f32,
    #[comptime] units: usize,
) -> f32 {
    let mut squares = 0.0f32;
    let mut place = UNIT_POS as usize;
    while place < width {
        let value = f32::cast_from(x[first + place]);
        squares += value * value;
        place += units;
    }
    let total = sum_of_units(squares, units);
    1.0f32 / (total / f32::cast_from(width as u32) + epsilon).sqrt()
}

/// The number of `x` at `place`; where something `adds`, with that of `more` added to it.
#[cube]
fn number_at<F: Float>(x: &[F], more: &[F], place: usize, #[comptime] adds: bool) -> f32 {
    let mut number = f32::cast_from(x[place]);
    if comptime!(adds) {
        number += f32::cast_from(more[place]);
    }
    number
}

/// `x / sqrt(mean(x^2) + epsilon) * gamma` (Zhang and Sennrich 2019), a row of `width` numbers per cube.
#[cube(launch)]
pub(in super::super) fn rms_norm<F: Float>(
    x: &[F],
    gamma: &[F],
    out: &mut [F],
    width: u32,
    epsilon: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let width = width as usize;
    let first = CUBE_POS_X as usize * width;
    let unit = UNIT_POS as usize;
    let scale = scale_of_row::<F>(x, first, width, epsilon, units);
    let mut place = unit;
    while place < width {
        let value = f32::cast_from(x[first + place]) * scale;
        out[first + place] = F::cast_from(value * f32::cast_from(gamma[place]));
        place += units;
    }
}

/// `sum = x + y`, or `x + y + more`, and the norm of the sum: the end of one part of a layer and the beginning of the next.
#[cube(launch)]
pub(in super::super) fn add_rms_norm<F: Float>(
    x: &[F],
    y: &[F],
    more: &[F],
    gamma: &[F],
    sum: &mut [F],
    out: &mut [F],
    width: u32,
    epsilon: f32,
    #[comptime] units: usize,
    #[comptime] adds: bool,
    #[define(F)] _dtype: ElemType,
) {
    let width = width as usize;
    let first = CUBE_POS_X as usize * width;
    let unit = UNIT_POS as usize;
    let mut squares = 0.0f32;
    let mut place = unit;
    while place < width {
        let stored = x[first + place] + F::cast_from(number_at::<F>(y, more, first + place, adds));
        sum[first + place] = stored;
        let value = f32::cast_from(stored);
        squares += value * value;
        place += units;
    }
    let total = sum_of_units(squares, units);
    let scale = 1.0f32 / (total / f32::cast_from(width as u32) + epsilon).sqrt();
    place = unit;
    while place < width {
        // Each unit reads what it wrote itself.
        let value = f32::cast_from(sum[first + place]) * scale;
        out[first + place] = F::cast_from(value * f32::cast_from(gamma[place]));
        place += units;
    }
}

/// `x + y`, or `x + y + more`, a number per unit.
#[cube(launch)]
pub(in super::super) fn add_more<F: Float>(
    x: &[F],
    y: &[F],
    more: &[F],
    out: &mut [F],
    count: u32,
    #[comptime] adds: bool,
    #[define(F)] _dtype: ElemType,
) {
    let place = ABSOLUTE_POS;
    if place < count as usize {
        out[place] = x[place] + F::cast_from(number_at::<F>(y, more, place, adds));
    }
}

/// `x + norm(y)`: a part of a layer whose norm stands behind it.
#[cube(launch)]
pub(in super::super) fn rms_norm_add<F: Float>(
    x: &[F],
    y: &[F],
    gamma: &[F],
    out: &mut [F],
    width: u32,
    epsilon: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let width = width as usize;
    let first = CUBE_POS_X as usize * width;
    let unit = UNIT_POS as usize;
    let scale = scale_of_row::<F>(y, first, width, epsilon, units);
    let mut place = unit;
    while place < width {
        let value = f32::cast_from(y[first + place]) * scale;
        let normed = value * f32::cast_from(gamma[place]);
        out[first + place] = F::cast_from(f32::cast_from(x[first + place]) + normed);
        place += units;
    }
}

/// `silu(gate) * up` (Shazeer 2020), a number of the result per unit. Rows of `gate` and `up` are `stride` numbers apart, and those
/// of `up` begin `offset` numbers later: both may lie in one matrix.
#[cube(launch)]
pub(in super::super) fn swiglu<F: Float>(
    gate: &[F],
    up: &[F],
    out: &mut [F],
    width: u32,
    stride: u32,
    offset: u32,
    count: u32,
    #[define(F)] _dtype: ElemType,
) {
    let place = ABSOLUTE_POS;
    if place < count as usize {
        let width = width as usize;
        let from = place / width * stride as usize + place % width;
        let gate = f32::cast_from(gate[from]);
        let up = f32::cast_from(up[from + offset as usize]);
        out[place] = F::cast_from(gate / (1.0f32 + (-gate).exp()) * up);
    }
}

/// Derivatives of `silu(gate) * up` by both, a number of each per unit.
#[cube(launch)]
pub(in super::super) fn swiglu_backward<F: Float>(
    gate: &[F],
    up: &[F],
    grad: &[F],
    by_gate: &mut [F],
    by_up: &mut [F],
    count: u32,
    #[define(F)] _dtype: ElemType,
) {
    let place = ABSOLUTE_POS;
    if place < count as usize {
        let number = f32::cast_from(gate[place]);
        let above = f32::cast_from(grad[place]);
        let share = 1.0f32 / (1.0f32 + (-number).exp());
        let rise = share * (1.0f32 + number * (1.0f32 - share));
        by_gate[place] = F::cast_from(above * f32::cast_from(up[place]) * rise);
        by_up[place] = F::cast_from(above * number * share);
    }
}

/// Derivatives of `silu(gate) * up` where both stand side by side in rows of `2 width` numbers, and the value itself, which the
/// derivative of the next product needs. Where something `adds`, `more` is added to `grad`.
#[cube(launch)]
pub(in super::super) fn swiglu_joined_backward<F: Float>(
    both: &[F],
    grad: &[F],
    more: &[F],
    by_both: &mut [F],
    out: &mut [F],
    width: u32,
    count: u32,
    #[comptime] adds: bool,
    #[define(F)] _dtype: ElemType,
) {
    let place = ABSOLUTE_POS;
    if place < count as usize {
        let width = width as usize;
        let gate = place / width * width * 2 + place % width;
        let number = f32::cast_from(both[gate]);
        let up = f32::cast_from(both[gate + width]);
        let above = number_at::<F>(grad, more, place, adds);
        let share = 1.0f32 / (1.0f32 + (-number).exp());
        let rise = share * (1.0f32 + number * (1.0f32 - share));
        by_both[gate] = F::cast_from(above * up * rise);
        by_both[gate + width] = F::cast_from(above * number * share);
        out[place] = F::cast_from(number * share * up);
    }
}

/// Derivatives of [`rms_norm`]: by `x`, and by gamma the sums over the `each` rows of a cube, which are written to `partial`, a row of
/// `partial_width` numbers per cube, from `offset` on. With r = 1 / sqrt(mean(x^2) + epsilon) and u = gamma grad, these are
/// r u - x r^3 mean(u x) and the sum of grad x r. With `residual`, `upper` is added to the former and the norm itself made again. Where
/// something `adds`, `more` is added to `grad` first.
#[cube(launch)]
pub(in super::super) fn rms_norm_backward<F: Float>(
    x: &[F],
    gamma: &[F],
    grad: &[F],
    more: &[F],
    upper: &[F],
    by_x: &mut [F],
    normed: &mut [F],
    partial: &mut [f32],
    rows: u32,
    width: u32,
    each: u32,
    partial_width: u32,
    offset: u32,
    epsilon: f32,
    #[comptime] units: usize,
    #[comptime] columns: usize,
    #[comptime] residual: bool,
    #[comptime] adds: bool,
    #[define(F)] _dtype: ElemType,
) {
    let width = width as usize;
    let unit = UNIT_POS as usize;
    let cube = CUBE_POS_X as usize;
    let mut sums = Array::<f32>::new(columns);
    #[unroll]
    for column in 0..columns {
        sums[column] = 0.0f32;
    }
    let mut row = cube * each as usize;
    let end = min(row + each as usize, rows as usize);
    while row < end {
        let first = row * width;
        let mut squares = 0.0f32;
        let mut products = 0.0f32;
        let mut place = unit;
        while place < width {
            let value = f32::cast_from(x[first + place]);
            squares += value * value;
            let above = number_at::<F>(grad, more, first + place, adds);
            products += value * above * f32::cast_from(gamma[place]);
            place += units;
        }
        let squares = sum_of_units(squares, units);
        let products = sum_of_units(products, units);
        let count = f32::cast_from(width as u32);
        let scale = 1.0f32 / (squares / count + epsilon).sqrt();
        let level = products * scale * scale * scale / count;
        #[unroll]
        for column in 0..columns {
            let place = comptime!(column * units) + unit;
            if place < width {
                let value = f32::cast_from(x[first + place]);
                let above = number_at::<F>(grad, more, first + place, adds);
                let gain = f32::cast_from(gamma[place]);
                let mut change = above * gain * scale - value * level;
                if comptime!(residual) {
                    change += f32::cast_from(upper[first + place]);
                    normed[first + place] = F::cast_from(value * scale * gain);
                }
                by_x[first + place] = F::cast_from(change);
                sums[column] = sums[column] + above * value * scale;
            }
        }
        row += 1;
    }
    #[unroll]
    for column in 0..columns {
        let place = comptime!(column * units) + unit;
        if place < width {
            partial[cube * partial_width as usize + offset as usize + place] = sums[column];
        }
    }
}

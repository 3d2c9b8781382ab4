//! What stands between the products of a layer: norms, activation, rotation and the write into the cache, and derivatives.

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

/// Rotation of heads, `[n, heads, 2 half]`, by the angles of their rows, `[n, half]`; a unit takes a pair of numbers that turn
/// together.
#[cube(launch)]
pub(in super::super) fn rotate<F: Float>(
    x: &[F],
    cos: &[f32],
    sin: &[f32],
    out: &mut [F],
    heads: u32,
    half: u32,
    count: u32,
    #[define(F)] _dtype: ElemType,
) {
    let place = ABSOLUTE_POS;
    if place < count as usize {
        let half = half as usize;
        let head = place / half;
        let pair = place % half;
        let angle = head / heads as usize * half + pair;
        let at = head * half * 2 + pair;
        let first = f32::cast_from(x[at]);
        let second = f32::cast_from(x[at + half]);
        let cos = cos[angle];
        let sin = sin[angle];
        out[at] = F::cast_from(first * cos - second * sin);
        out[at + half] = F::cast_from(second * cos + first * sin);
    }
}

/// A step of `AdamW` (Loshchilov and Hutter 2019) for a parameter and its moments, in place: `rest` is 1 - `beta`, `bias` the bias of
/// a moment, `decay` the factor of the parameter.
#[cube(launch)]
pub(in super::super) fn adamw(
    gradient: &[f32],
    parameter: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    bias1: f32,
    bias2: f32,
    epsilon: f32,
    rate: f32,
    decay: f32,
    count: u32,
) {
    let place = ABSOLUTE_POS;
    if place < count as usize {
        let change = gradient[place];
        let mean = first[place] * beta1 + change * rest1;
        let square = second[place] * beta2 + change * change * rest2;
        first[place] = mean;
        second[place] = square;
        let direction = (mean / bias1) / ((square / bias2).sqrt() + epsilon);
        parameter[place] = parameter[place] * decay - direction * rate;
    }
}

/// Queries, keys and values of a pass from one product: bias, norm of the head, rotation, and into the cache.
///
/// A cube takes one head of one row, a unit a pair of numbers that turn together (the rotation of Su et al. 2021 in the form of
/// two halves). `both` holds rows of `heads + 2 kv_heads` heads; `extra` the biases of all heads, then the norm of queries, then
/// that of keys; `angles` a row of cosines and one of sines per position; `places` the position of each row, then its slot in the
/// cache.
#[cube(launch)]
pub(in super::super) fn rotate_and_store<F: Float>(
    both: &[F],
    extra: &[F],
    angles: &[f32],
    places: &[i32],
    queries: &mut [F],
    keys: &mut [F],
    values: &mut [F],
    heads: u32,
    kv_heads: u32,
    epsilon: f32,
    #[comptime] dim: usize,
    #[comptime] normed: bool,
    #[define(F)] _dtype: ElemType,
) {
    let half = comptime!(dim / 2);
    let heads = heads as usize;
    let kv_heads = kv_heads as usize;
    let all = heads + 2 * kv_heads;
    let row = CUBE_POS_X as usize;
    let head = CUBE_POS_Y as usize;
    let unit = UNIT_POS as usize;
    let from = (row * all + head) * dim;
    let bias = head * dim;
    let mut first = f32::cast_from(both[from + unit]) + f32::cast_from(extra[bias + unit]);
    let mut second =
        f32::cast_from(both[from + unit + half]) + f32::cast_from(extra[bias + unit + half]);
    if comptime!(normed) {
        // Values take part in the sum, which all units of a cube reach, and keep what they are.
        let squares = sum_of_units(first * first + second * second, half);
        if head < heads + kv_heads {
            let scale = 1.0f32 / (squares / f32::cast_from(dim as u32) + epsilon).sqrt();
            let mut gamma = all * dim;
            if head >= heads {
                gamma += dim;
            }
            first = first * scale * f32::cast_from(extra[gamma + unit]);
            second = second * scale * f32::cast_from(extra[gamma + unit + half]);
        }
    }
    let slot = places[CUBE_COUNT_X as usize + row] as usize * kv_heads;
    if head < heads + kv_heads {
        let angle = places[row] as usize * dim + unit;
        let cos = angles[angle];
        let sin = angles[angle + half];
        let turned_first = F::cast_from(first * cos - second * sin);
        let turned_second = F::cast_from(second * cos + first * sin);
        if head < heads {
            let to = (row * heads + head) * dim + unit;
            queries[to] = turned_first;
            queries[to + half] = turned_second;
        } else {
            let to = (slot + head - heads) * dim + unit;
            keys[to] = turned_first;
            keys[to + half] = turned_second;
        }
    } else {
        let to = (slot + head - heads - kv_heads) * dim + unit;
        values[to] = F::cast_from(first);
        values[to + half] = F::cast_from(second);
    }
}

/// Back through [`rotate_and_store`]: from derivatives by rotated queries, keys and values, `[row, head, dim]`, that by the product,
/// `by_both`. A cube takes one head of `each` rows; their sums by the bias, and with `normed` those by the gain of the head's norm
/// after the biases of all heads, go to `partial` as those of [`rms_norm_backward`] do.
#[cube(launch)]
pub(in super::super) fn rotate_backward<F: Float>(
    by_queries: &[F],
    by_keys: &[F],
    by_values: &[F],
    both: &[F],
    extra: &[F],
    angles: &[f32],
    places: &[i32],
    by_both: &mut [F],
    partial: &mut [f32],
    heads: u32,
    kv_heads: u32,
    rows: u32,
    each: u32,
    partial_width: u32,
    offset: u32,
    epsilon: f32,
    #[comptime] dim: usize,
    #[comptime] normed: bool,
    #[define(F)] _dtype: ElemType,
) {
    let half = comptime!(dim / 2);
    let heads = heads as usize;
    let kv_heads = kv_heads as usize;
    let all = heads + 2 * kv_heads;
    let cube = CUBE_POS_X as usize;
    let head = CUBE_POS_Y as usize;
    let unit = UNIT_POS as usize;
    let bias = head * dim + unit;
    let mut gain = all * dim + unit;
    if head >= heads {
        gain += dim;
    }
    let mut first_sum = 0.0f32;
    let mut second_sum = 0.0f32;
    let mut first_gain = 0.0f32;
    let mut second_gain = 0.0f32;
    let mut row = cube * each as usize;
    let end = min(row + each as usize, rows as usize);
    while row < end {
        let mut from = (row * heads + head) * dim + unit;
        let mut first = 0.0f32;
        let mut second = 0.0f32;
        if head < heads {
            first += f32::cast_from(by_queries[from]);
            second += f32::cast_from(by_queries[from + half]);
        } else if head < heads + kv_heads {
            from = (row * kv_heads + head - heads) * dim + unit;
            first += f32::cast_from(by_keys[from]);
            second += f32::cast_from(by_keys[from + half]);
        } else {
            from = (row * kv_heads + head - heads - kv_heads) * dim + unit;
            first += f32::cast_from(by_values[from]);
            second += f32::cast_from(by_values[from + half]);
        }
        let to = (row * all + head) * dim + unit;
        if head < heads + kv_heads {
            let angle = places[row] as usize * dim + unit;
            let cos = angles[angle];
            let sin = angles[angle + half];
            let turned = first * cos + second * sin;
            second = second * cos - first * sin;
            first = turned;
        }
        if comptime!(normed) {
            // Values take part in the sums, which all units of a cube reach, and keep what they are.
            let one = f32::cast_from(both[to]) + f32::cast_from(extra[bias]);
            let two = f32::cast_from(both[to + half]) + f32::cast_from(extra[bias + half]);
            let one_gain = f32::cast_from(extra[gain]);
            let two_gain = f32::cast_from(extra[gain + half]);
            let squares = sum_of_units(one * one + two * two, half);
            let products = sum_of_units(one * first * one_gain + two * second * two_gain, half);
            if head < heads + kv_heads {
                let count = f32::cast_from(dim as u32);
                let scale = 1.0f32 / (squares / count + epsilon).sqrt();
                let level = products * scale * scale * scale / count;
                first_gain += first * one * scale;
                second_gain += second * two * scale;
                first = first * one_gain * scale - one * level;
                second = second * two_gain * scale - two * level;
            }
        }
        by_both[to] = F::cast_from(first);
        by_both[to + half] = F::cast_from(second);
        first_sum += first;
        second_sum += second;
        row += 1;
    }
    let to = cube * partial_width as usize + offset as usize + bias;
    partial[to] = first_sum;
    partial[to + half] = second_sum;
    if comptime!(normed) {
        partial[to + all * dim] = first_gain;
        partial[to + all * dim + half] = second_gain;
    }
}

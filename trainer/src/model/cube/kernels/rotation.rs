//! Rotation of heads: alone, between a product and the cache, and back.

use cubecl::prelude::*;

use super::sum::sum_of_units;

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
/// after the biases of all heads, go to `partial` as those of [`super::pointwise::rms_norm_backward`] do.
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

//! The kernels, in the language of `CubeCL`: no tensor of Burn, no shape that is not passed in.
//!
//! A cube (a block of threads in CUDA) works on one row, one head or one tile of queries; its units (threads) share sums through
//! shared memory. Sums are taken in f32 whatever the type `F` that numbers are stored in. No kernel depends on how many rows
//! there are, so that a row has the same bits in any company.

#![allow(
    clippy::cast_possible_truncation,
    clippy::too_many_arguments,
    clippy::explicit_counter_loop,
    missing_docs,
    reason = "the attribute writes functions around each kernel that take its arguments one by one"
)]

use cubecl::prelude::*;

/// Positions of a block of the cache.
pub(super) const BLOCK: usize = 16;
/// Score of a position that a query does not see.
const UNSEEN: f32 = -1e30;
/// Scores below are of unseen positions.
const HARDLY_SEEN: f32 = -1e29;

/// The sum of a number of each unit, the same in all of them.
#[cube]
fn sum_of_units(value: f32, #[comptime] units: usize) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    let mut left = units.runtime();
    while left > 1 {
        let half = (left + 1) / 2;
        if unit + half < left {
            shared[unit] = shared[unit] + shared[unit + half];
        }
        sync_cube();
        left = half;
    }
    let sum = shared[0];
    sync_cube();
    sum
}

/// `x / sqrt(mean(x^2) + epsilon) * gamma` (Zhang and Sennrich 2019), a row of `width` numbers per cube.
#[cube(launch)]
pub(super) fn rms_norm<F: Float>(
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
    let mut squares = 0.0f32;
    let mut place = unit;
    while place < width {
        let value = f32::cast_from(x[first + place]);
        squares += value * value;
        place += units;
    }
    let total = sum_of_units(squares, units);
    let scale = 1.0f32 / (total / f32::cast_from(width as u32) + epsilon).sqrt();
    place = unit;
    while place < width {
        let value = f32::cast_from(x[first + place]) * scale;
        out[first + place] = F::cast_from(value * f32::cast_from(gamma[place]));
        place += units;
    }
}

/// `sum = x + y` and the norm of the sum: the end of one part of a layer and the beginning of the next.
#[cube(launch)]
pub(super) fn add_rms_norm<F: Float>(
    x: &[F],
    y: &[F],
    gamma: &[F],
    sum: &mut [F],
    out: &mut [F],
    width: u32,
    epsilon: f32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let width = width as usize;
    let first = CUBE_POS_X as usize * width;
    let unit = UNIT_POS as usize;
    let mut squares = 0.0f32;
    let mut place = unit;
    while place < width {
        let stored = x[first + place] + y[first + place];
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

/// `x + norm(y)`: a part of a layer whose norm stands behind it.
#[cube(launch)]
pub(super) fn rms_norm_add<F: Float>(
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
    let mut squares = 0.0f32;
    let mut place = unit;
    while place < width {
        let value = f32::cast_from(y[first + place]);
        squares += value * value;
        place += units;
    }
    let total = sum_of_units(squares, units);
    let scale = 1.0f32 / (total / f32::cast_from(width as u32) + epsilon).sqrt();
    place = unit;
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
pub(super) fn swiglu<F: Float>(
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

/// Queries, keys and values of a pass from one product: bias, norm of the head, rotation, and into the cache.
///
/// A cube takes one head of one row, a unit a pair of numbers that turn together (the rotation of Su et al. 2021 in the form of
/// two halves). `both` holds rows of `heads + 2 kv_heads` heads; `extra` the biases of all heads, then the norm of queries, then
/// that of keys; `angles` a row of cosines and one of sines per position; `places` the position of each row, then its slot in the
/// cache.
#[cube(launch)]
pub(super) fn rotate_and_store<F: Float>(
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

/// Causal attention of tiles of queries over the paged cache, with a softmax that is carried along (Milakov and Gimelshein 2018;
/// Dao et al. 2022). A cube takes one tile, one key head with all query heads of its group, and one span of positions; a unit one
/// number of the head. Every key and value of a sequence is read once for all queries of a tile.
///
/// `items` has four numbers per tile: its first row, its number of rows, the row of `tables` with its blocks, the position of its
/// first query. Where one span is the whole sequence, the result goes to `out`, `[row, head, dim]`. Else [`merge_spans`] makes it
/// from `mixed`, `[row, head, span, dim]`, sums weighed by `exp(score - largest)`, and `stats`, `[row, head, span, 2]`, the largest
/// score and the sum of weights; spans that begin after the last position are not written.
#[cube(launch)]
pub(super) fn attend<F: Float>(
    queries: &[F],
    keys: &[F],
    values: &[F],
    items: &[i32],
    tables: &[i32],
    out: &mut [F],
    mixed: &mut [f32],
    stats: &mut [f32],
    table_width: u32,
    kv_heads: u32,
    span: u32,
    scale: f32,
    #[comptime] dim: usize,
    #[comptime] group: usize,
    #[comptime] tile: usize,
    #[comptime] whole: bool,
    #[define(F)] _dtype: ElemType,
) {
    let rows = comptime!(tile * group);
    let stride = comptime!(dim + 1);
    let kv_heads = kv_heads as usize;
    let unit = UNIT_POS as usize;
    let item = CUBE_POS_X as usize * 4;
    let kv = CUBE_POS_Y as usize;
    let part = CUBE_POS_Z as usize;
    let parts = CUBE_COUNT_Z as usize;
    let first = items[item] as usize;
    let count = items[item + 1] as usize;
    let table = items[item + 2] as usize * table_width as usize;
    let start = items[item + 3] as usize;

    let mut query = Shared::<[f32]>::new_slice(comptime!(rows * dim));
    let mut key = Shared::<[f32]>::new_slice(comptime!(BLOCK * stride));
    let mut weight = Shared::<[f32]>::new_slice(comptime!(rows * BLOCK));
    let mut largest = Shared::<[f32]>::new_slice(rows);
    let mut total = Shared::<[f32]>::new_slice(rows);
    let mut factor = Shared::<[f32]>::new_slice(rows);
    let mut sums = Array::<f32>::new(rows);
    #[unroll]
    for row in 0..rows {
        let token = comptime!(row / group);
        let head = kv * group + comptime!(row % group);
        let mut value = 0.0f32;
        if token < count {
            let from = ((first + token) * kv_heads * group + head) * dim + unit;
            value = f32::cast_from(queries[from]) * scale;
        }
        query[row * dim + unit] = value;
        sums[row] = 0.0f32;
    }
    let mut row = unit;
    while row < rows {
        largest[row] = UNSEEN;
        total[row] = 0.0f32;
        row += dim;
    }
    sync_cube();

    let begin = part * span as usize;
    let end = min(begin + span as usize, start + count);
    let mut base = begin;
    while base < end {
        let block = tables[table + base / BLOCK] as usize * BLOCK;
        let seen = min(end - base, BLOCK);
        let mut place = 0usize.runtime();
        while place < seen {
            key[place * stride + unit] =
                f32::cast_from(keys[((block + place) * kv_heads + kv) * dim + unit]);
            place += 1;
        }
        sync_cube();
        let mut pair = unit;
        while pair < comptime!(rows * BLOCK) {
            let row = pair / BLOCK;
            let place = pair % BLOCK;
            let mut score = UNSEEN.runtime();
            if place < seen && base + place <= start + row / group {
                let mut product = 0.0f32;
                for index in 0..dim {
                    product += query[row * dim + index] * key[place * stride + index];
                }
                score = product;
            }
            weight[pair] = score;
            pair += dim;
        }
        sync_cube();
        let mut row = unit;
        while row < rows {
            let before = largest[row];
            let mut top = before;
            for place in 0..BLOCK {
                top = max(top, weight[row * BLOCK + place]);
            }
            let mut sum = 0.0f32;
            for place in 0..BLOCK {
                let score = weight[row * BLOCK + place];
                let mut share = 0.0f32;
                if score > HARDLY_SEEN {
                    share = (score - top).exp();
                }
                weight[row * BLOCK + place] = share;
                sum += share;
            }
            let fade = (before - top).exp();
            factor[row] = fade;
            total[row] = total[row] * fade + sum;
            largest[row] = top;
            row += dim;
        }
        sync_cube();
        #[unroll]
        for row in 0..rows {
            sums[row] = sums[row] * factor[row];
        }
        let mut place = 0usize.runtime();
        while place < seen {
            let value = f32::cast_from(values[((block + place) * kv_heads + kv) * dim + unit]);
            #[unroll]
            for row in 0..rows {
                sums[row] = sums[row] + weight[row * BLOCK + place] * value;
            }
            place += 1;
        }
        sync_cube();
        base += BLOCK;
    }
    #[unroll]
    for row in 0..rows {
        let token = comptime!(row / group);
        let head = kv * group + comptime!(row % group);
        if token < count {
            let from = (first + token) * kv_heads * group + head;
            if comptime!(whole) {
                out[from * dim + unit] = F::cast_from(sums[row] / total[row]);
            } else if begin < end {
                let to = from * parts + part;
                mixed[to * dim + unit] = sums[row];
                if unit == 0 {
                    stats[to * 2] = largest[row];
                    stats[to * 2 + 1] = total[row];
                }
            }
        }
    }
}

/// Adds up what [`attend`] found in the spans of positions of single tokens, which stand in the rows in the order of `items`. A cube
/// takes one head of one row, a unit one number.
#[cube(launch)]
pub(super) fn merge_spans<F: Float>(
    mixed: &[f32],
    stats: &[f32],
    items: &[i32],
    out: &mut [F],
    heads: u32,
    parts: u32,
    span: u32,
    #[comptime] dim: usize,
    #[define(F)] _dtype: ElemType,
) {
    let row = CUBE_POS_X as usize;
    let head = row * heads as usize + CUBE_POS_Y as usize;
    let unit = UNIT_POS as usize;
    let from = head * parts as usize;
    // Those that there are for the row's length.
    let parts = items[row * 4 + 3] as usize / span as usize + 1;
    let mut largest = UNSEEN.runtime();
    for part in 0..parts {
        largest = max(largest, stats[(from + part) * 2]);
    }
    let mut total = 0.0f32;
    let mut sum = 0.0f32;
    for part in 0..parts {
        let fade = (stats[(from + part) * 2] - largest).exp();
        total += stats[(from + part) * 2 + 1] * fade;
        sum += mixed[(from + part) * dim + unit] * fade;
    }
    out[head * dim + unit] = F::cast_from(sum / total);
}

/// Outputs of a tile of [`product_of_8_bits`], and the parts that its rows are dealt in.
pub(super) const TILE_OUTPUTS: usize = 64;
pub(super) const TILE_PARTS: usize = 4;
/// Inputs of a matrix of 8 bits that share a scale.
pub(super) const SCALED: usize = 32;

/// One of the four signed bytes of a word, the lowest first.
#[cube]
fn number_of(packed: u32, #[comptime] byte: usize) -> f32 {
    // Flipping the sign bit of a byte adds 128 to it.
    let raised = ((packed ^ 0x8080_8080u32) >> comptime!(8 * byte as u32)) & 0xffu32;
    f32::cast_from(raised) - 128.0f32
}

/// A matrix of 8 bits in floats; a unit widens a word.
#[cube(launch)]
pub(super) fn widen<F: Float>(
    numbers: &[u32],
    scales: &[f32],
    out: &mut [F],
    words: u32,
    #[define(F)] _dtype: ElemType,
) {
    let place = ABSOLUTE_POS;
    if place < words as usize {
        let scale = scales[place / comptime!(SCALED / 4)];
        #[unroll]
        for byte in 0..4 {
            out[place * 4 + byte] = F::cast_from(number_of(numbers[place], byte) * scale);
        }
    }
}

/// `x W` for rows of `x` and a matrix of 8 bits, of which a tile at a time is widened, in shared memory.
///
/// A cube takes `TILE_PARTS * each` rows and [`TILE_OUTPUTS`] outputs, a unit one output of `each` rows. `numbers` holds four
/// signed bytes per word, the inputs of one output side by side; `scales` one number per [`SCALED`] inputs.
#[cube(launch)]
pub(super) fn product_of_8_bits<F: Float>(
    x: &[F],
    numbers: &[u32],
    scales: &[f32],
    out: &mut [F],
    rows: u32,
    inputs: u32,
    outputs: u32,
    #[comptime] each: usize,
    #[define(F)] _dtype: ElemType,
) {
    let units = comptime!(TILE_OUTPUTS * TILE_PARTS);
    let stride = comptime!(SCALED + 1);
    let words = comptime!(SCALED / 4);
    let rows = rows as usize;
    let inputs = inputs as usize;
    let outputs = outputs as usize;
    let blocks = inputs / SCALED;
    let unit = UNIT_POS as usize;
    let column = unit % TILE_OUTPUTS;
    let own = unit / TILE_OUTPUTS * each;
    let first_output = CUBE_POS_X as usize * TILE_OUTPUTS;
    let first_row = CUBE_POS_Y as usize * comptime!(TILE_PARTS * each);

    let mut values = Shared::<[f32]>::new_slice(comptime!(TILE_PARTS * each * SCALED));
    let mut weights = Shared::<[f32]>::new_slice(comptime!(TILE_OUTPUTS * (SCALED + 1)));
    let mut sums = Array::<f32>::new(each);
    #[unroll]
    for row in 0..each {
        sums[row] = 0.0f32;
    }
    for block in 0..blocks {
        let mut place = unit;
        while place < comptime!(TILE_PARTS * each * SCALED) {
            let row = first_row + place / SCALED;
            let mut value = 0.0f32;
            if row < rows {
                value = f32::cast_from(x[row * inputs + block * SCALED + place % SCALED]);
            }
            values[place] = value;
            place += units;
        }
        let mut place = unit;
        while place < comptime!(TILE_OUTPUTS * SCALED / 4) {
            let output = place / words;
            let word = place % words;
            let mut packed = 0u32.runtime();
            let mut scale = 0.0f32;
            if first_output + output < outputs {
                let from = (first_output + output) * blocks + block;
                packed = numbers[from * words + word];
                scale = scales[from];
            }
            let to = output * stride + word * 4;
            #[unroll]
            for byte in 0..4 {
                weights[to + byte] = number_of(packed, byte) * scale;
            }
            place += units;
        }
        sync_cube();
        for input in 0..SCALED {
            let weight = weights[column * stride + input];
            #[unroll]
            for row in 0..each {
                sums[row] = sums[row] + values[(own + row) * SCALED + input] * weight;
            }
        }
        sync_cube();
    }
    let output = first_output + column;
    if output < outputs {
        #[unroll]
        for row in 0..each {
            let row_of_x = first_row + own + row;
            if row_of_x < rows {
                out[row_of_x * outputs + output] = F::cast_from(sums[row]);
            }
        }
    }
}

/// Logits of a stretch of the vocabulary, which a cube sums up.
pub(super) const STRETCH: usize = 2048;

/// Largest logit, sum of `exp((logit - largest) / temperature)` and number of logits that are not finite, of one stretch of the
/// vocabulary per cube: `stats` is `[row, stretch, 3]`.
#[cube(launch)]
pub(super) fn softmax_stats<F: Float>(
    logits: &[F],
    table: &[f32],
    stats: &mut [f32],
    vocabulary: u32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let vocabulary = vocabulary as usize;
    let row = CUBE_POS_X as usize;
    let unit = UNIT_POS as usize;
    let begin = CUBE_POS_Y as usize * STRETCH;
    let end = min(begin + STRETCH, vocabulary);
    let sharpness = table[CUBE_COUNT_X as usize * ANSWER + row * SETTINGS];
    let mut tops = Shared::<[f32]>::new_slice(units);
    let mut largest = UNSEEN.runtime();
    let mut faults = 0.0f32;
    let mut place = begin + unit;
    while place < end {
        let logit = f32::cast_from(logits[row * vocabulary + place]);
        // Neither infinities nor numbers that are none pass this test.
        if logit > UNSEEN && logit < -UNSEEN {
            largest = max(largest, logit);
        } else {
            faults += 1.0f32;
        }
        place += units;
    }
    tops[unit] = largest;
    sync_cube();
    let mut left = units.runtime();
    while left > 1 {
        let half = (left + 1) / 2;
        if unit + half < left {
            tops[unit] = max(tops[unit], tops[unit + half]);
        }
        sync_cube();
        left = half;
    }
    let top = tops[0];
    let mut sum = 0.0f32;
    place = begin + unit;
    while place < end {
        let logit = f32::cast_from(logits[row * vocabulary + place]);
        sum += ((logit - top) * sharpness).exp();
        place += units;
    }
    let total = sum_of_units(sum, units);
    let bad = sum_of_units(faults, units);
    if unit == 0 {
        let to = (row * CUBE_COUNT_Y as usize + CUBE_POS_Y as usize) * 3;
        stats[to] = top;
        stats[to + 1] = total;
        stats[to + 2] = bad;
    }
}

/// Numbers per row of an answer: the token, its log-probability, and how many logits are not finite.
pub(super) const ANSWER: usize = 3;
/// Numbers per row of what is to be chosen, which stand behind the answers of all rows in one table: the inverse of the temperature; the uniform number of the draw; the token, or
/// [`DRAW`] or [`BEST`]; top-k (0 for all), top-p and min-p.
pub(super) const SETTINGS: usize = 6;
/// In place of a token that was not found.
const NONE: f32 = -1.0;
/// The token is drawn.
pub(super) const DRAW: f32 = -1.0;
/// The token is the most likely one, the first of equals.
pub(super) const BEST: f32 = -2.0;

/// A token per row and its log-probability from logits and their [`softmax_stats`]: the first token at which the cumulative
/// probability exceeds the uniform number of the row. A cube takes one row; see [`ANSWER`] and [`SETTINGS`] for `table`.
#[cube(launch)]
pub(super) fn draw<F: Float>(
    logits: &[F],
    table: &mut [f32],
    stats: &[f32],
    vocabulary: u32,
    stretches: u32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let vocabulary = vocabulary as usize;
    let stretches = stretches as usize;
    let row = CUBE_POS_X as usize;
    let unit = UNIT_POS as usize;
    let own_settings = CUBE_COUNT_X as usize * ANSWER + row * SETTINGS;
    let sharpness = table[own_settings];
    let uniform = table[own_settings + 1];
    let wanted = table[own_settings + 2];
    // The summary of the stretches is short: every unit reads it for itself.
    let mut largest = UNSEEN.runtime();
    let mut faults = 0.0f32;
    for index in 0..stretches {
        let from = (row * stretches + index) * 3;
        largest = max(largest, stats[from]);
        faults += stats[from + 2];
    }
    let mut total = 0.0f32;
    for index in 0..stretches {
        let from = (row * stretches + index) * 3;
        total += stats[from + 1] * ((stats[from] - largest) * sharpness).exp();
    }
    // Where the draw falls: the stretch, and what is left of the uniform number there.
    let mut left = uniform * total;
    let mut chosen = 0usize.runtime();
    let mut found = false;
    for index in 0..stretches {
        let from = (row * stretches + index) * 3;
        if wanted == BEST {
            if !found && stats[from] >= largest {
                chosen = index;
                found = true;
            }
        } else if !found {
            let mass = stats[from + 1] * ((stats[from] - largest) * sharpness).exp();
            // The last stretch with any mass takes what rounding leaves over.
            if mass > 0.0f32 {
                chosen = index;
                if left < mass {
                    found = true;
                } else if index + 1 < stretches {
                    left -= mass;
                }
            }
        }
    }
    let begin = chosen * STRETCH;
    let end = min(begin + STRETCH, vocabulary);
    let own = comptime!(STRETCH / units);
    // Each unit adds up neighbours; the masses before it say whether the draw is in its part.
    let mut masses = Shared::<[f32]>::new_slice(units);
    let mut tokens = Shared::<[f32]>::new_slice(units);
    let mut mass = 0.0f32;
    let mut place = begin + unit * own;
    let stop = min(begin + (unit + 1) * own, end);
    while place < stop {
        let logit = f32::cast_from(logits[row * vocabulary + place]);
        mass += ((logit - largest) * sharpness).exp();
        place += 1;
    }
    masses[unit] = mass;
    sync_cube();
    let mut before = 0.0f32;
    for index in 0..unit {
        before += masses[index];
    }
    // Others may still read the masses.
    sync_cube();
    // The first hit of the unit, or the last token of any weight for the case that rounding leaves the draw beyond the end.
    let mut hit = NONE.runtime();
    let mut last = NONE.runtime();
    let mut sum = before;
    place = begin + unit * own;
    while place < stop {
        let logit = f32::cast_from(logits[row * vocabulary + place]);
        let weight = ((logit - largest) * sharpness).exp();
        if wanted == BEST {
            if hit < 0.0f32 && logit >= largest {
                hit = f32::cast_from(place as u32);
            }
        } else if weight > 0.0f32 {
            sum += weight;
            last = f32::cast_from(place as u32);
            if hit < 0.0f32 && left < sum {
                hit = f32::cast_from(place as u32);
            }
        }
        place += 1;
    }
    masses[unit] = hit;
    tokens[unit] = last;
    sync_cube();
    if unit == 0 {
        let mut token = wanted;
        if wanted < 0.0f32 {
            let mut first_hit = NONE.runtime();
            let mut last_any = 0.0f32;
            for index in 0..units {
                if first_hit < 0.0f32 && masses[index] >= 0.0f32 {
                    first_hit = masses[index];
                }
                if tokens[index] >= 0.0f32 {
                    last_any = tokens[index];
                }
            }
            token = first_hit;
            if first_hit < 0.0f32 {
                token = last_any;
            }
        }
        let logit = f32::cast_from(logits[row * vocabulary + u32::cast_from(token) as usize]);
        table[row * ANSWER] = token;
        table[row * ANSWER + 1] = (logit - largest) * sharpness - total.ln();
        table[row * ANSWER + 2] = faults;
    }
}

/// A number that orders logits as they are ordered, larger for larger ones.
#[cube]
fn rank(logit: f32) -> u32 {
    let bits = u32::reinterpret(logit);
    let mut key = bits | 0x8000_0000u32;
    if bits >= 0x8000_0000u32 {
        key = !bits;
    }
    key
}

/// Sum over the tokens that stand before a place in the order by logits, larger first, equal ones by id: those above `key`, and of
/// those at it the ones with an id below `below`. Counts the tokens, or adds up their weights `exp((logit - largest) * sharpness)`.
#[cube]
fn sum_before<F: Float>(
    logits: &[F],
    first: usize,
    vocabulary: usize,
    key: u32,
    below: u32,
    largest: f32,
    sharpness: f32,
    counted: bool,
    #[comptime] units: usize,
) -> f32 {
    let mut sum = 0.0f32;
    let mut place = UNIT_POS as usize;
    while place < vocabulary {
        let logit = f32::cast_from(logits[first + place]);
        let own = rank(logit);
        if own > key || (own == key && (place as u32) < below) {
            if counted {
                sum += 1.0f32;
            } else {
                sum += ((logit - largest) * sharpness).exp();
            }
        }
        place += units;
    }
    sum_of_units(sum, units)
}

/// The place in that order at which the sum reaches `target` (exceeds it, where `beyond`): the rank and the id of the token there.
#[cube]
fn place_of<F: Float>(
    logits: &[F],
    first: usize,
    vocabulary: usize,
    target: f32,
    beyond: bool,
    largest: f32,
    sharpness: f32,
    counted: bool,
    #[comptime] units: usize,
) -> (u32, u32) {
    let all = vocabulary as u32;
    // The largest key whose tokens, with those above, reach the target; bit by bit.
    let mut key = 0u32.runtime();
    for step in 0u32..32u32 {
        let candidate = key | (0x8000_0000u32 >> step);
        let sum = sum_before::<F>(
            logits, first, vocabulary, candidate, all, largest, sharpness, counted, units,
        );
        if sum > target || (!beyond && sum >= target) {
            key = candidate;
        }
    }
    // Among equals, the last id before which the target is not reached. Ids have 20 bits at most.
    let mut token = 0u32.runtime();
    for step in 0u32..20u32 {
        let candidate = token | (0x8_0000u32 >> step);
        if candidate < all {
            let sum = sum_before::<F>(
                logits, first, vocabulary, key, candidate, largest, sharpness, counted, units,
            );
            if sum < target || (beyond && sum <= target) {
                token = candidate;
            }
        }
    }
    (key, token)
}

/// Draws again where top-k, then top-p among those, then min-p cut the vocabulary: the first token, in the order by logits, at which
/// the cumulative weight exceeds the uniform number's share. A cube takes one row; `table` is that of
/// [`draw`], whose log-probabilities are of the whole vocabulary too.
#[cube(launch)]
pub(super) fn draw_cut<F: Float>(
    logits: &[F],
    table: &mut [f32],
    stats: &[f32],
    vocabulary: u32,
    stretches: u32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let vocabulary = vocabulary as usize;
    let stretches = stretches as usize;
    let row = CUBE_POS_X as usize;
    let first = row * vocabulary;
    let own_settings = CUBE_COUNT_X as usize * ANSWER + row * SETTINGS;
    let sharpness = table[own_settings];
    let uniform = table[own_settings + 1];
    let top_k = table[own_settings + 3];
    let top_p = table[own_settings + 4];
    let min_p = table[own_settings + 5];
    let cut =
        table[own_settings + 2] == DRAW && (top_k > 0.0f32 || top_p < 1.0f32 || min_p > 0.0f32);
    if cut {
        let mut largest = UNSEEN.runtime();
        for index in 0..stretches {
            largest = max(largest, stats[(row * stretches + index) * 3]);
        }
        let mut total = 0.0f32;
        for index in 0..stretches {
            let from = (row * stretches + index) * 3;
            total += stats[from + 1] * ((stats[from] - largest) * sharpness).exp();
        }
        // The last place that is left, as a rank and an id.
        let mut key = 0u32.runtime();
        let mut last = vocabulary as u32 - 1;
        if top_k > 0.0f32 && top_k < f32::cast_from(vocabulary as u32) {
            let (k_key, k_last) = place_of::<F>(
                logits, first, vocabulary, top_k, false, largest, sharpness, true, units,
            );
            key = k_key;
            last = k_last;
        }
        if top_p < 1.0f32 {
            let mass = sum_before::<F>(
                logits,
                first,
                vocabulary,
                key,
                last + 1,
                largest,
                sharpness,
                false,
                units,
            );
            let (p_key, p_last) = place_of::<F>(
                logits,
                first,
                vocabulary,
                top_p * mass,
                false,
                largest,
                sharpness,
                false,
                units,
            );
            if p_key > key || (p_key == key && p_last < last) {
                key = p_key;
                last = p_last;
            }
        }
        if min_p > 0.0f32 {
            let least = rank(largest + min_p.ln() / sharpness);
            if least > key {
                key = least;
                last = vocabulary as u32 - 1;
            }
        }
        let mass = sum_before::<F>(
            logits,
            first,
            vocabulary,
            key,
            last + 1,
            largest,
            sharpness,
            false,
            units,
        );
        let (drawn, at) = place_of::<F>(
            logits,
            first,
            vocabulary,
            uniform * mass,
            true,
            largest,
            sharpness,
            false,
            units,
        );
        // Rounding may leave the draw a place beyond the last.
        let mut token = at;
        if drawn < key || (drawn == key && at > last) {
            let (_, edge) = place_of::<F>(
                logits, first, vocabulary, mass, false, largest, sharpness, false, units,
            );
            token = edge;
        }
        if UNIT_POS == 0 {
            let logit = f32::cast_from(logits[first + token as usize]);
            table[row * ANSWER] = f32::cast_from(token);
            table[row * ANSWER + 1] = (logit - largest) * sharpness - total.ln();
        }
    }
}

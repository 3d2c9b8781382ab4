//! Derivatives of attention over whole sequences, what they share held once (Dao 2023, `FlashAttention-2`, algorithm 2).
//!
//! With weights P = exp(scores - level), where a query's level is the logarithm of its sum of exponentiated scores, and the dot
//! products D = sum(dO O): dS = P (dO V' - D), dQ = scale dS K, dK = scale dS' Q, dV = P' dO. Weights are made again from the
//! levels; nothing of the size of a sequence's square is kept. Every number of a derivative is added up by one unit in one order.

use cubecl::prelude::*;

/// Pairs of a query and a head in a tile of queries.
pub(in super::super) const TILE_ROWS: usize = 16;
/// Keys of a tile of keys.
pub(in super::super) const TILE_KEYS: usize = 16;
/// Keys, or pairs of a query and a head, that a cube takes up at a time.
const STEP: usize = 8;

/// Derivative by the queries. A cube takes one tile of queries and one key head with all query heads of its group, a unit one
/// number of the head.
///
/// `places` has four numbers per tile: its first row, its number of rows, the place in `places` of the rows of its sequence's tokens
/// in order, the position of its first query. `stats` has two numbers for each row and head: the level, and the dot product, which
/// is written here. All else is `[row, head, dim]`.
#[cube(launch)]
pub(in super::super) fn attend_back_to_queries<F: Float>(
    queries: &[F],
    keys: &[F],
    values: &[F],
    out: &[F],
    grad: &[F],
    places: &[i32],
    stats: &mut [f32],
    by_queries: &mut [F],
    kv_heads: u32,
    scale: f32,
    #[comptime] dim: usize,
    #[comptime] group: usize,
    #[comptime] tile: usize,
    #[define(F)] _dtype: ElemType,
) {
    let rows = comptime!(tile * group);
    let stride = comptime!(dim + 1);
    let kv_heads = kv_heads as usize;
    let unit = UNIT_POS as usize;
    let item = CUBE_POS_X as usize * 4;
    let kv = CUBE_POS_Y as usize;
    let first = places[item] as usize;
    let count = places[item + 1] as usize;
    let tokens = places[item + 2] as usize;
    let start = places[item + 3] as usize;

    let mut query = Shared::<[f32]>::new_slice(comptime!(rows * dim));
    let mut upper = Shared::<[f32]>::new_slice(comptime!(rows * dim));
    let mut key = Shared::<[f32]>::new_slice(comptime!(STEP * stride));
    let mut value = Shared::<[f32]>::new_slice(comptime!(STEP * stride));
    let mut by_score = Shared::<[f32]>::new_slice(comptime!(rows * STEP));
    let mut level = Shared::<[f32]>::new_slice(rows);
    let mut dot = Shared::<[f32]>::new_slice(rows);
    let mut sums = Array::<f32>::new(rows);
    #[unroll]
    for row in 0..rows {
        let token = comptime!(row / group);
        let head = kv * group + comptime!(row % group);
        let mut number = 0.0f32;
        let mut above = 0.0f32;
        if token < count {
            let from = ((first + token) * kv_heads * group + head) * dim + unit;
            number = f32::cast_from(queries[from]) * scale;
            above = f32::cast_from(grad[from]);
        }
        query[row * dim + unit] = number;
        upper[row * dim + unit] = above;
        sums[row] = 0.0f32;
    }
    sync_cube();
    let mut row = unit;
    while row < rows {
        let token = row / group;
        level[row] = 0.0f32;
        dot[row] = 0.0f32;
        if token < count {
            let from = (first + token) * kv_heads * group + kv * group + row % group;
            let mut sum = 0.0f32;
            for index in 0..dim {
                sum += upper[row * dim + index] * f32::cast_from(out[from * dim + index]);
            }
            level[row] = stats[from * 2];
            dot[row] = sum;
            stats[from * 2 + 1] = sum;
        }
        row += dim;
    }
    sync_cube();

    let end = start + count;
    let mut base = 0usize.runtime();
    while base < end {
        let seen = min(end - base, STEP);
        let mut place = 0usize.runtime();
        while place < seen {
            let token = places[tokens + base + place] as usize;
            let from = (token * kv_heads + kv) * dim + unit;
            key[place * stride + unit] = f32::cast_from(keys[from]);
            value[place * stride + unit] = f32::cast_from(values[from]);
            place += 1;
        }
        sync_cube();
        let mut pair = unit;
        while pair < comptime!(rows * STEP) {
            let row = pair / STEP;
            let place = pair % STEP;
            let token = row / group;
            let mut share = 0.0f32;
            if place < seen && token < count && base + place <= start + token {
                let mut score = 0.0f32;
                let mut by_weight = 0.0f32;
                for index in 0..dim {
                    score += query[row * dim + index] * key[place * stride + index];
                    by_weight += upper[row * dim + index] * value[place * stride + index];
                }
                share = (score - level[row]).exp() * (by_weight - dot[row]);
            }
            by_score[pair] = share;
            pair += dim;
        }
        sync_cube();
        let mut place = 0usize.runtime();
        while place < seen {
            let number = key[place * stride + unit];
            #[unroll]
            for row in 0..rows {
                sums[row] = sums[row] + by_score[row * STEP + place] * number;
            }
            place += 1;
        }
        sync_cube();
        base += STEP;
    }
    #[unroll]
    for row in 0..rows {
        let token = comptime!(row / group);
        let head = kv * group + comptime!(row % group);
        if token < count {
            let to = ((first + token) * kv_heads * group + head) * dim + unit;
            by_queries[to] = F::cast_from(sums[row] * scale);
        }
    }
}

/// Derivatives by keys and values, after [`attend_back_to_queries`]. A cube takes one tile of keys of one head, a unit one number of
/// the head.
///
/// `places` has five numbers per tile: its first row, its number of rows, the position of its first token, the place in `places` of
/// those who see it and their number. Of each of these there are four numbers: its first row, its number of rows, the position
/// of the first, and the row from which on it sees no keys.
#[cube(launch)]
pub(in super::super) fn attend_back_to_keys<F: Float>(
    queries: &[F],
    keys: &[F],
    values: &[F],
    grad: &[F],
    places: &[i32],
    stats: &[f32],
    by_keys: &mut [F],
    by_values: &mut [F],
    kv_heads: u32,
    scale: f32,
    #[comptime] dim: usize,
    #[comptime] group: usize,
    #[define(F)] _dtype: ElemType,
) {
    let stride = comptime!(dim + 1);
    let kv_heads = kv_heads as usize;
    let unit = UNIT_POS as usize;
    let item = CUBE_POS_X as usize * 5;
    let kv = CUBE_POS_Y as usize;
    let first = places[item] as usize;
    let count = places[item + 1] as usize;
    let start = places[item + 2] as usize;
    let viewers = places[item + 3] as usize;
    let viewers_end = viewers + places[item + 4] as usize * 4;

    let mut key = Shared::<[f32]>::new_slice(comptime!(TILE_KEYS * stride));
    let mut value = Shared::<[f32]>::new_slice(comptime!(TILE_KEYS * stride));
    let mut query = Shared::<[f32]>::new_slice(comptime!(STEP * stride));
    let mut upper = Shared::<[f32]>::new_slice(comptime!(STEP * stride));
    let mut weight = Shared::<[f32]>::new_slice(comptime!(TILE_KEYS * STEP));
    let mut by_score = Shared::<[f32]>::new_slice(comptime!(TILE_KEYS * STEP));
    let mut level = Shared::<[f32]>::new_slice(STEP);
    let mut dot = Shared::<[f32]>::new_slice(STEP);
    let mut key_sums = Array::<f32>::new(TILE_KEYS);
    let mut value_sums = Array::<f32>::new(TILE_KEYS);
    #[unroll]
    for place in 0..TILE_KEYS {
        let mut number = 0.0f32;
        let mut other = 0.0f32;
        if place < count {
            let from = ((first + place) * kv_heads + kv) * dim + unit;
            number = f32::cast_from(keys[from]);
            other = f32::cast_from(values[from]);
        }
        key[place * stride + unit] = number;
        value[place * stride + unit] = other;
        key_sums[place] = 0.0f32;
        value_sums[place] = 0.0f32;
    }
    sync_cube();

    let mut viewer = viewers;
    while viewer < viewers_end {
        let row = places[viewer] as usize;
        let pairs = places[viewer + 1] as usize * group;
        let position = places[viewer + 2] as usize;
        let limit = places[viewer + 3] as usize;
        // Queries before the first key see none of them.
        let mut base = 0usize.runtime();
        if start > position {
            base = (start - position) * group;
        }
        while base < pairs {
            let taken = min(pairs - base, STEP);
            let mut turn = 0usize.runtime();
            while turn < taken {
                let pair = base + turn;
                let from = ((row + pair / group) * kv_heads + kv) * group + pair % group;
                query[turn * stride + unit] = f32::cast_from(queries[from * dim + unit]) * scale;
                upper[turn * stride + unit] = f32::cast_from(grad[from * dim + unit]);
                turn += 1;
            }
            let mut turn = unit;
            while turn < taken {
                let pair = base + turn;
                let from = ((row + pair / group) * kv_heads + kv) * group + pair % group;
                level[turn] = stats[from * 2];
                dot[turn] = stats[from * 2 + 1];
                turn += dim;
            }
            sync_cube();
            let mut cell = unit;
            while cell < comptime!(TILE_KEYS * STEP) {
                let place = cell / STEP;
                let turn = cell % STEP;
                let seen_from = position + (base + turn) / group;
                let mut share = 0.0f32;
                let mut change = 0.0f32;
                if place < count
                    && turn < taken
                    && first + place < limit
                    && start + place <= seen_from
                {
                    let mut score = 0.0f32;
                    let mut by_weight = 0.0f32;
                    for index in 0..dim {
                        score += query[turn * stride + index] * key[place * stride + index];
                        by_weight += upper[turn * stride + index] * value[place * stride + index];
                    }
                    share = (score - level[turn]).exp();
                    change = share * (by_weight - dot[turn]);
                }
                weight[cell] = share;
                by_score[cell] = change;
                cell += dim;
            }
            sync_cube();
            let mut turn = 0usize.runtime();
            while turn < taken {
                let number = query[turn * stride + unit];
                let above = upper[turn * stride + unit];
                #[unroll]
                for place in 0..TILE_KEYS {
                    key_sums[place] = key_sums[place] + by_score[place * STEP + turn] * number;
                    value_sums[place] = value_sums[place] + weight[place * STEP + turn] * above;
                }
                turn += 1;
            }
            sync_cube();
            base += STEP;
        }
        viewer += 4;
    }
    #[unroll]
    for place in 0..TILE_KEYS {
        if place < count {
            let to = ((first + place) * kv_heads + kv) * dim + unit;
            by_keys[to] = F::cast_from(key_sums[place]);
            by_values[to] = F::cast_from(value_sums[place]);
        }
    }
}

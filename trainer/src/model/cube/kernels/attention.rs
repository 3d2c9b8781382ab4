//! Attention over the paged cache, and over the rows of a batch of whole sequences.

use cubecl::prelude::*;

/// Positions of a block of the cache.
pub(in super::super) const BLOCK: usize = 16;
/// Score of a position that a query does not see.
pub(super) const UNSEEN: f32 = -1e30;
/// Scores below are of unseen positions.
const HARDLY_SEEN: f32 = -1e29;

/// Causal attention of tiles of queries over the paged cache, with a softmax that is carried along (Milakov and Gimelshein 2018;
/// Dao et al. 2022). A cube takes one tile, one key head with all query heads of its group, and one span of positions; a unit one
/// number of the head. Every key and value of a sequence is read once for all queries of a tile.
///
/// `items` has four numbers per tile: its first row, its number of rows, the row of `tables` with its blocks, the position of its
/// first query. Where one span is the whole sequence, the result goes to `out`, `[row, head, dim]`. Else [`merge_spans`] makes it
/// from `mixed`, `[row, head, span, dim]`, sums weighed by `exp(score - largest)`, and `stats`, `[row, head, span, 2]`, the largest
/// score and the sum of weights; spans that begin after the last position are not written.
///
/// Where keys and values are not `paged` but rows of a batch, `tables` has a row for each position instead of a block for sixteen,
/// one span is the whole sequence, and `stats`, `[row, head, 2]`, gets the logarithm of the sum of exponentiated scores first:
/// derivatives make the weights again from it ([`super::packed`]).
#[cube(launch)]
pub(in super::super) fn attend<F: Float>(
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
    #[comptime] paged: bool,
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
        let mut block = 0usize.runtime();
        if comptime!(paged) {
            block = tables[table + base / BLOCK] as usize * BLOCK;
        }
        let seen = min(end - base, BLOCK);
        let mut place = 0usize.runtime();
        while place < seen {
            let mut slot = block + place;
            if comptime!(!paged) {
                slot = tables[table + base + place] as usize;
            }
            key[place * stride + unit] = f32::cast_from(keys[(slot * kv_heads + kv) * dim + unit]);
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
            let mut slot = block + place;
            if comptime!(!paged) {
                slot = tables[table + base + place] as usize;
            }
            let value = f32::cast_from(values[(slot * kv_heads + kv) * dim + unit]);
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
                if comptime!(!paged) {
                    if unit == 0 {
                        stats[from * 2] = largest[row] + total[row].ln();
                    }
                }
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
pub(in super::super) fn merge_spans<F: Float>(
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

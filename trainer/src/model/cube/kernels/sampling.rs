//! The softmax over the vocabulary, and the draw of tokens from it.

use cubecl::prelude::*;

use super::attention::UNSEEN;
use super::sum::{max_of_units, sum_of_units};

/// Logits of a stretch of the vocabulary, which a cube sums up.
pub(in super::super) const STRETCH: usize = 2048;

/// Largest logit, sum of `exp((logit - largest) / temperature)` and number of logits that are not finite, of one stretch of the
/// vocabulary per cube: `stats` is `[row, stretch, 3]`.
#[cube(launch)]
pub(in super::super) fn softmax_stats<F: Float>(
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
    let top = max_of_units(largest, units);
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
pub(in super::super) const ANSWER: usize = 3;
/// Numbers per row of what is to be chosen, which stand behind the answers of all rows in one table: the inverse of the temperature; the uniform number of the draw; the token, or
/// [`DRAW`] or [`BEST`]; top-k (0 for all), top-p and min-p.
pub(in super::super) const SETTINGS: usize = 6;
/// Marks a token that was not found.
const NONE: f32 = -1.0;
/// The token is drawn.
pub(in super::super) const DRAW: f32 = -1.0;
/// The token is the most likely one, the first of equals.
pub(in super::super) const BEST: f32 = -2.0;
/// The least mass that is looked for: the first token has more, and one of 0 is reached before any token.
const LEAST: f32 = 1e-30;

/// A token per row and its log-probability from logits and their [`softmax_stats`]: the first token at which the cumulative
/// probability exceeds the uniform number of the row. A cube takes one row; see [`ANSWER`] and [`SETTINGS`] for `table`.
#[cube(launch)]
pub(in super::super) fn draw<F: Float>(
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
    // Among equals, the last id before which the target is not reached. Ids have 22 bits at most.
    let mut token = 0u32.runtime();
    for step in 0u32..22u32 {
        let candidate = token | (0x20_0000u32 >> step);
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
pub(in super::super) fn draw_cut<F: Float>(
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
            let target = max(top_p * mass, LEAST.runtime());
            let (p_key, p_last) = place_of::<F>(
                logits, first, vocabulary, target, false, largest, sharpness, false, units,
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

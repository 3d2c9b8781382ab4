//! Steps of `AdamW` with moments in f32 and of 8 bits, as the processor takes them (`optim/eight_bit.rs` says what codes are).

use cubecl::prelude::*;

use super::sum::max_of_units;

/// Numbers of a block, which share a scale: those of a cube.
pub(in super::super) const BLOCK: usize = 256;
/// Codes of a word: those of a unit.
pub(in super::super) const WORD: usize = 4;
/// Where the parts of the tables begin: the values of roots, and the middles between neighbouring values of first moments and of roots.
const ROOTS: usize = 256;
const FIRST_MIDDLES: usize = 512;
const ROOT_MIDDLES: usize = 768;

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

/// One of the four codes of a word, the lowest first.
#[cube]
fn code_in(packed: u32, #[comptime] byte: usize) -> u32 {
    (packed >> comptime!(8 * byte as u32)) & 0xffu32
}

/// The code of the value nearest to `share`: the number of middles below it, of which there are 255.
#[cube]
fn nearest(tables: &[f32], share: f32, #[comptime] middles: usize) -> u32 {
    let mut code = 0u32.runtime();
    for step in 0u32..8u32 {
        let next = code + (0x80u32 >> step);
        if tables[next as usize + middles - 1] < share {
            code = next;
        }
    }
    code
}

/// As [`adamw`], for a parameter whose first moment and root of the second are codes, four to a word, with a scale
/// per [`BLOCK`] of them. A cube takes a block, a unit a word.
#[cube(launch)]
pub(in super::super) fn adamw_of_8_bits(
    gradient: &[f32],
    tables: &[f32],
    parameter: &mut [f32],
    firsts: &mut [u32],
    first_scales: &mut [f32],
    roots: &mut [u32],
    root_scales: &mut [f32],
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
    #[comptime] units: usize,
) {
    let count = count as usize;
    let unit = UNIT_POS as usize;
    let block = CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize;
    let word = block * units + unit;
    let place = word * WORD;
    let mut means = Array::<f32>::new(WORD);
    let mut levels = Array::<f32>::new(WORD);
    #[unroll]
    for byte in 0..WORD {
        means[byte] = 0.0f32;
        levels[byte] = 0.0f32;
    }
    let mut first_packed = 0u32.runtime();
    let mut root_packed = 0u32.runtime();
    let mut first_before = 0.0f32;
    let mut root_before = 0.0f32;
    if place < count {
        first_packed = firsts[word];
        root_packed = roots[word];
        first_before = first_scales[block];
        root_before = root_scales[block];
    }
    let mut first_largest = 0.0f32;
    let mut root_largest = 0.0f32;
    #[unroll]
    for byte in 0..WORD {
        let at = place + byte;
        if at < count {
            let change = gradient[at];
            let first = tables[code_in(first_packed, byte) as usize] * first_before;
            let root = tables[code_in(root_packed, byte) as usize + ROOTS] * root_before;
            let mean = first * beta1 + change * rest1;
            let square = root * root * beta2 + change * change * rest2;
            let direction = (mean / bias1) / ((square / bias2).sqrt() + epsilon);
            parameter[at] = parameter[at] * decay - direction * rate;
            let level = square.sqrt();
            means[byte] = mean;
            levels[byte] = level;
            first_largest = max(first_largest, max(mean, -mean));
            root_largest = max(root_largest, level);
        }
    }
    // All units have read the scales of before when the first of them writes those of after.
    let first_scale = max_of_units(first_largest, units);
    let root_scale = max_of_units(root_largest, units);
    let mut first_word = 0u32.runtime();
    let mut root_word = 0u32.runtime();
    #[unroll]
    for byte in 0..WORD {
        let mut first_share = 0.0f32;
        if first_scale > 0.0f32 {
            first_share = means[byte] / first_scale;
        }
        let mut root_share = 0.0f32;
        if root_scale > 0.0f32 {
            root_share = levels[byte] / root_scale;
        }
        let first_code = nearest(tables, first_share, FIRST_MIDDLES);
        let root_code = nearest(tables, root_share, ROOT_MIDDLES);
        first_word = first_word | (first_code << comptime!(8 * byte as u32));
        root_word = root_word | (root_code << comptime!(8 * byte as u32));
    }
    if place < count {
        firsts[word] = first_word;
        roots[word] = root_word;
        if unit == 0 {
            first_scales[block] = first_scale;
            root_scales[block] = root_scale;
        }
    }
}

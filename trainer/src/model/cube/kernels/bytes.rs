//! Matrices of 8 bits.

use cubecl::prelude::*;

/// Outputs of a tile of [`product_of_8_bits`], and the parts that its rows are dealt in.
pub(in super::super) const TILE_OUTPUTS: usize = 64;
pub(in super::super) const TILE_PARTS: usize = 4;
/// Inputs of a matrix of 8 bits that share a scale.
pub(in super::super) const SCALED: usize = 32;

/// One of the four signed bytes of a word, the lowest first.
#[cube]
fn number_of(packed: u32, #[comptime] byte: usize) -> f32 {
    // Flipping the sign bit of a byte adds 128 to it.
    let raised = ((packed ^ 0x8080_8080u32) >> comptime!(8 * byte as u32)) & 0xffu32;
    f32::cast_from(raised) - 128.0f32
}

/// A matrix of 8 bits in floats; a unit widens a word.
#[cube(launch)]
pub(in super::super) fn widen<F: Float>(
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
pub(in super::super) fn product_of_8_bits<F: Float>(
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

//! Sums and maxima over the units of a cube.

use cubecl::prelude::*;

/// Numbers of a stretch, whose squares a cube adds up.
pub(in super::super) const SQUARES: usize = 1 << 16;

/// The sum of squares of each stretch of `numbers`.
#[cube(launch)]
pub(in super::super) fn sums_of_squares<F: Float>(
    numbers: &[F],
    sums: &mut [f32],
    count: u32,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let count = count as usize;
    let stretch = CUBE_POS_X as usize;
    let unit = UNIT_POS as usize;
    let begin = stretch * SQUARES;
    let end = min(begin + SQUARES, count);
    let mut sum = 0.0f32;
    let mut place = begin + unit;
    while place < end {
        let number = f32::cast_from(numbers[place]);
        sum += number * number;
        place += units;
    }
    let total = sum_of_units(sum, units);
    if unit == 0 {
        sums[stretch] = total;
    }
}

/// The sum of a number of each unit, the same in all of them.
#[cube]
pub(super) fn sum_of_units(value: f32, #[comptime] units: usize) -> f32 {
    fold_of_units(value, units, false)
}

/// The largest of a number of each unit, the same in all of them.
#[cube]
pub(super) fn max_of_units(value: f32, #[comptime] units: usize) -> f32 {
    fold_of_units(value, units, true)
}

#[cube]
fn fold_of_units(value: f32, #[comptime] units: usize, #[comptime] largest: bool) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    let mut left = units.runtime();
    while left > 1 {
        let half = (left + 1) / 2;
        if unit + half < left {
            if comptime!(largest) {
                shared[unit] = max(shared[unit], shared[unit + half]);
            } else {
                shared[unit] = shared[unit] + shared[unit + half];
            }
        }
        sync_cube();
        left = half;
    }
    let folded = shared[0];
    sync_cube();
    folded
}

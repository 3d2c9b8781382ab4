//! Sums and maxima over the units of a cube.

use cubecl::prelude::*;

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

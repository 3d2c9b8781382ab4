//! Sums and maxima over the units of a cube.

use cubecl::prelude::*;

/// The sum of a number of each unit, the same in all of them.
#[cube]
pub(super) fn sum_of_units(value: f32, #[comptime] units: usize) -> f32 {
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

/// The largest of a number of each unit, the same in all of them.
#[cube]
pub(super) fn max_of_units(value: f32, #[comptime] units: usize) -> f32 {
    let mut shared = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    let mut left = units.runtime();
    while left > 1 {
        let half = (left + 1) / 2;
        if unit + half < left {
            shared[unit] = max(shared[unit], shared[unit + half]);
        }
        sync_cube();
        left = half;
    }
    let largest = shared[0];
    sync_cube();
    largest
}

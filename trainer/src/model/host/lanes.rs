//! Functions of numbers, written so that loops over them become vector code.

const LANES: usize = 16;

/// The largest of `row`, `f32::MIN` when it is empty.
#[inline(always)]
pub(crate) fn largest(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [f32::MIN; LANES];
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(
        f32::MIN,
        |largest, &x| if x > largest { x } else { largest },
    )
}

/// `e^x` for `x <= 0` to two units in the last place (Cephes `expf`); below -87 it stays at `e^-87`, about 1e-38.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// Adding it leaves the nearest integer in the low bits.
    const SHIFT: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    const TERMS: [f32; 6] = [
        1.987_569_1e-4,
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        0.166_666_65,
        0.5,
    ];
    let x = if x > -87.0 { x } else { -87.0 };
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let power = shifted - SHIFT;
    let rest = x - power * LN_2_HIGH - power * LN_2_LOW;
    let mut series = TERMS[0];
    for term in &TERMS[1..] {
        series = series * rest + term;
    }
    let fraction = series * rest * rest + rest + 1.0;
    fraction * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_that_of_the_standard_library() {
        for step in 0..87_000 {
            let x = step as f32 * -1e-3;
            let (found, expected) = (f64::from(exp(x)), f64::from(x).exp());
            assert!(
                (found - expected).abs() <= 3e-7 * expected,
                "{x}: {found} is not {expected}"
            );
        }
        assert!(exp(f32::MIN) < 1e-37);
    }
}

//! Permutation test of paired differences.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::{StatsError, mcnemar_exact};

/// Differences other than 0 up to which every assignment of signs is tried.
const EXACT: usize = 20;
/// Fewest signs that are drawn: a p-value of fewer than 20 is never below 5 %, whatever was found.
const LEAST_DRAWS: usize = 500;

/// Two-sided sign-flip test of `b - a` over the same questions: the probability, were both policies alike on every question
/// (each difference as likely with the other sign), of a mean difference at least as far from 0 as this one.
///
/// Exact over all `2^n` signs where at most 20 differences are not 0, and where all of those are of one size, as of right and wrong
/// answers, of which it is `McNemar`'s test; those that are 0 change nothing. Beyond that `resamples` random signs are drawn, 500 at
/// least, and the sample itself counts as one of them, `(hits + 1) / (draws + 1)`, so that a p-value is never 0 (Phipson & Smyth 2010).
///
/// # Errors
/// [`StatsError`] for no values, different lengths, values that are not finite and no resamples.
pub(crate) fn paired_permutation(
    a: &[f64],
    b: &[f64],
    resamples: usize,
    seed: u64,
) -> Result<f64, StatsError> {
    if a.len() != b.len() {
        return Err(StatsError::Lengths {
            a: a.len(),
            b: b.len(),
        });
    }
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
    if differences.is_empty() {
        return Err(StatsError::Empty);
    }
    if let Some(index) = differences
        .iter()
        .position(|difference| !difference.is_finite())
    {
        return Err(StatsError::NotFinite { index });
    }
    if resamples == 0 {
        return Err(StatsError::NoResamples);
    }
    let sizes: Vec<f64> = differences
        .iter()
        .map(|difference| difference.abs())
        .filter(|size| *size > 0.0)
        .collect();
    if sizes
        .windows(2)
        .all(|pair| pair[0].total_cmp(&pair[1]).is_eq())
    {
        let positive = differences.iter().filter(|difference| **difference > 0.0);
        let positive = positive.count();
        return Ok(mcnemar_exact(
            positive as u64,
            (sizes.len() - positive) as u64,
        ));
    }
    // Scores are recorded as f32: sums that differ by no more than their rounding are ties.
    let rounding =
        f64::from(f32::EPSILON) * a.iter().chain(b).map(|value| value.abs()).sum::<f64>();
    let bound = differences.iter().sum::<f64>().abs() - rounding;
    if sizes.len() <= EXACT {
        return Ok(extreme(&sizes, 0.0, bound) as f64 / 2_f64.powi(sizes.len() as i32));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let draws = resamples.max(LEAST_DRAWS);
    let hits = (0..draws)
        .filter(|_| flipped_sum(&sizes, &mut rng).abs() >= bound)
        .count();
    Ok((hits + 1) as f64 / (draws + 1) as f64)
}

/// Number of assignments of signs to `sizes` that bring `sum` to `bound` or beyond on either side.
fn extreme(sizes: &[f64], sum: f64, bound: f64) -> u64 {
    match sizes.split_first() {
        None => u64::from(sum.abs() >= bound),
        Some((size, rest)) => extreme(rest, sum + size, bound) + extreme(rest, sum - size, bound),
    }
}

fn flipped_sum(sizes: &[f64], rng: &mut ChaCha8Rng) -> f64 {
    let mut sum = 0.0;
    for chunk in sizes.chunks(64) {
        let mut signs = rng.next_u64();
        for size in chunk {
            sum += if signs & 1 == 1 { *size } else { -size };
            signs >>= 1;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_right_and_wrong_it_is_mcnemars_test() -> Result<(), StatsError> {
        // Of 32 that differ, 22 and 10: the p-value is 0.0501, and one of drawn signs is below 0.05 under half of the seeds.
        for (only_b, only_a) in [(0, 0), (1, 0), (5, 1), (9, 9), (15, 4), (22, 10), (140, 60)] {
            let differences = [vec![1.0; only_b], vec![-1.0; only_a], vec![0.0; 30]].concat();
            let p = paired_permutation(&vec![0.0; differences.len()], &differences, 1, 0)?;
            let expected = mcnemar_exact(only_a as u64, only_b as u64);
            assert!(
                (p - expected).abs() < 1e-12,
                "{only_b} {only_a}: {p} {expected}"
            );
        }
        Ok(())
    }

    #[test]
    fn many_differences_are_sampled_from_the_seed() -> Result<(), StatsError> {
        let difference = |index: u32| {
            let size = f64::from(1 + index % 2);
            if index % 5 < 3 { size } else { -size }
        };
        let b: Vec<f64> = (0..100).map(difference).collect();
        let a = vec![0.0; 100];
        let p = paired_permutation(&a, &b, 20_000, 1)?;
        // By counting the signs that bring 50 ones and 50 twos to 30 or beyond.
        let expected: f64 = 0.066_340_112_678;
        assert!(
            (p - expected).abs() < 4.0 * (expected / 20_000.0).sqrt(),
            "{p} {expected}"
        );
        assert!((p - paired_permutation(&b, &a, 20_000, 1)?).abs() < 1e-12);
        let rising: Vec<f64> = (1..=100).map(f64::from).collect();
        assert!((paired_permutation(&a, &rising, 1999, 1)? - 1.0 / 2000.0).abs() < 1e-12);
        // Intervals of few resamples leave the test room below 5 %.
        assert!(paired_permutation(&a, &rising, 1, 1)? < 0.05);
        Ok(())
    }

    /// Eight questions on which F1 differs by two thirds, from 0 to 2/3 on four, from 1/3 to 1 on the others, back on one of these. As f32
    /// 1 - 1/3 is less than 2/3 by 3e-8, and so would be the sums in which one of the first four is turned round.
    #[test]
    fn sums_that_differ_by_rounding_tie() -> Result<(), StatsError> {
        let [third, two_thirds] = [1.0_f32 / 3.0, 2.0_f32 / 3.0].map(f64::from);
        let a = [0.0, 0.0, 0.0, 0.0, third, third, third, 1.0];
        let b = [
            two_thirds, two_thirds, two_thirds, two_thirds, 1.0, 1.0, 1.0, third,
        ];
        let p = paired_permutation(&a, &b, 1, 0)?;
        assert!((p - 2.0 * 9.0 / 256.0).abs() < 1e-12, "{p}");
        Ok(())
    }

    #[test]
    fn bad_input_is_named() {
        assert_eq!(paired_permutation(&[], &[], 10, 0), Err(StatsError::Empty));
        assert_eq!(
            paired_permutation(&[1.0], &[], 10, 0),
            Err(StatsError::Lengths { a: 1, b: 0 })
        );
        assert_eq!(
            paired_permutation(&[1.0], &[f64::NAN], 10, 0),
            Err(StatsError::NotFinite { index: 0 })
        );
        assert_eq!(
            paired_permutation(&[1.0], &[2.0], 0, 0),
            Err(StatsError::NoResamples)
        );
    }
}

//! Bootstrap intervals of a mean: bias-corrected and accelerated (`BCa`, Efron 1987), percentile where that has no answer.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::normal::{normal_cdf, normal_quantile};
use super::{Bootstrap, Interval, StatsError, mean};

/// Mean with its `BCa` bootstrap interval, by resampling the values.
///
/// Falls back to the percentile interval where `BCa` is undefined (all values equal, or no resample on one side of the
/// estimate). Equal values give an interval of width 0: the bootstrap cannot see beyond its sample, so 0 of 20 correct
/// is not proof of an accuracy of 0.
///
/// # Errors
/// [`StatsError`] for no values, values that are not finite, and settings out of range.
pub(crate) fn bootstrap_mean(values: &[f64], settings: Bootstrap) -> Result<Interval, StatsError> {
    let means = sorted_resampled_means(values, settings)?;
    let estimate = mean(values);
    let tail = (1.0 - settings.confidence) / 2.0;
    let (low, high) = bca_levels(values, &means, tail).unwrap_or((tail, 1.0 - tail));
    Ok(Interval {
        estimate,
        low: quantile(&means, low),
        high: quantile(&means, high),
    })
}

/// Mean with its percentile bootstrap interval.
///
/// # Errors
/// As [`bootstrap_mean`].
pub(crate) fn percentile_mean(values: &[f64], settings: Bootstrap) -> Result<Interval, StatsError> {
    let means = sorted_resampled_means(values, settings)?;
    let tail = (1.0 - settings.confidence) / 2.0;
    Ok(Interval {
        estimate: mean(values),
        low: quantile(&means, tail),
        high: quantile(&means, 1.0 - tail),
    })
}

/// Mean over clusters of the cluster means, with an interval by resampling whole clusters.
///
/// A cluster is a question with its samples: samples of one question are not independent, questions are. Every question
/// weighs the same however many samples it has; empty clusters are left out.
///
/// # Errors
/// As [`bootstrap_mean`]; positions in errors count non-empty clusters.
pub(crate) fn bootstrap_clusters(
    clusters: &[Vec<f64>],
    settings: Bootstrap,
) -> Result<Interval, StatsError> {
    bootstrap_mean(&cluster_means(clusters), settings)
}

/// Means of the clusters that are not empty: one value per question, however many samples it has.
pub(crate) fn cluster_means(clusters: &[Vec<f64>]) -> Vec<f64> {
    clusters
        .iter()
        .filter(|cluster| !cluster.is_empty())
        .map(|cluster| mean(cluster))
        .collect()
}

/// A statistic of items with its percentile bootstrap interval, by resampling the items: `statistic` is told which of the
/// `count` items a resample holds, and gives `None` where it is undefined. Such resamples are left out; `None` where the
/// statistic of all items is undefined. A statistic may be infinite, and then so may an end.
///
/// # Errors
/// [`StatsError`] for no items and settings out of range.
pub(crate) fn bootstrap_statistic(
    count: usize,
    settings: Bootstrap,
    statistic: impl Fn(&[usize]) -> Option<f64>,
) -> Result<Option<Interval>, StatsError> {
    settings.check()?;
    if count == 0 {
        return Err(StatsError::Empty);
    }
    let mut items: Vec<usize> = (0..count).collect();
    let Some(estimate) = statistic(&items) else {
        return Ok(None);
    };
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let mut values = Vec::with_capacity(settings.resamples);
    for _ in 0..settings.resamples {
        items.fill_with(|| below(&mut rng, count));
        values.extend(statistic(&items));
    }
    if values.is_empty() {
        return Ok(None);
    }
    let [low, high] = percentile_ends(&mut values, settings.confidence);
    Ok(Some(Interval {
        estimate,
        low,
        high,
    }))
}

/// Sorts the values of resamples and gives the ends of the percentile interval. `values` is not empty.
pub(super) fn percentile_ends(values: &mut [f64], confidence: f64) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    [quantile(values, tail), quantile(values, 1.0 - tail)]
}

/// A position below `count`, which is above 0; its bias is below `count / 2^32`.
pub(crate) fn below(rng: &mut ChaCha8Rng, count: usize) -> usize {
    ((u64::from(rng.next_u32()) * count as u64) >> 32) as usize
}

fn sorted_resampled_means(values: &[f64], settings: Bootstrap) -> Result<Vec<f64>, StatsError> {
    settings.check()?;
    if values.is_empty() {
        return Err(StatsError::Empty);
    }
    if let Some(index) = values.iter().position(|value| !value.is_finite()) {
        return Err(StatsError::NotFinite { index });
    }
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let mut means: Vec<f64> = (0..settings.resamples)
        .map(|_| resampled_mean(values, &mut rng))
        .collect();
    means.sort_by(f64::total_cmp);
    Ok(means)
}

/// Mean of as many draws with replacement as there are values. Two draws per 64 random bits; the bias of the
/// multiply-shift is below `len / 2^32`.
fn resampled_mean(values: &[f64], rng: &mut ChaCha8Rng) -> f64 {
    let count = values.len() as u64;
    let draw = |bits: u32| values[((u64::from(bits) * count) >> 32) as usize];
    let mut sum = 0.0;
    for _ in 0..values.len() / 2 {
        let bits = rng.next_u64();
        sum += draw(bits as u32) + draw((bits >> 32) as u32);
    }
    if values.len() % 2 == 1 {
        sum += draw(rng.next_u32());
    }
    sum / values.len() as f64
}

/// The quantile levels `BCa` reads its ends at, or `None` where they are undefined.
///
/// `z0` (bias) is the normal quantile of the share of resamples below the estimate, ties counted half; `a`
/// (acceleration) is the jackknife skewness, which for a mean is `sum d^3 / (6 (sum d^2)^1.5)` with `d = x - mean`.
fn bca_levels(values: &[f64], sorted_means: &[f64], tail: f64) -> Option<(f64, f64)> {
    let estimate = mean(values);
    let squares: f64 = values.iter().map(|value| (value - estimate).powi(2)).sum();
    let largest = values
        .iter()
        .fold(0.0_f64, |most, value| most.max(value.abs()));
    if squares.sqrt() <= 1e-12 * largest * values.len() as f64 {
        return None;
    }
    let cubes: f64 = values.iter().map(|value| (value - estimate).powi(3)).sum();
    let acceleration = cubes / (6.0 * squares.powf(1.5));
    // Equal sums can differ in the last bit by the order of their terms; those are ties.
    let slack = 1e-12 * estimate.abs().max(squares.sqrt());
    let below = sorted_means.partition_point(|value| *value < estimate - slack);
    let not_above = sorted_means.partition_point(|value| *value <= estimate + slack);
    let bias = normal_quantile((below + not_above) as f64 / (2 * sorted_means.len()) as f64);
    if !bias.is_finite() {
        return None;
    }
    let level = |z: f64| {
        let shifted = bias + z;
        let denominator = 1.0 - acceleration * shifted;
        (denominator > 0.0).then(|| normal_cdf(bias + shifted / denominator))
    };
    let z = normal_quantile(1.0 - tail);
    level(-z).zip(level(z))
}

/// Linear interpolation between order statistics (`NumPy`'s default). `sorted` is not empty.
fn quantile(sorted: &[f64], level: f64) -> f64 {
    let position = level.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let [below, above] = [position.floor() as usize, position.ceil() as usize];
    if below == above || sorted[above].is_infinite() {
        return sorted[above];
    }
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SETTINGS: Bootstrap = Bootstrap {
        resamples: 500,
        confidence: 0.95,
        seed: 3,
    };

    #[test]
    fn equal_values_have_no_width() -> Result<(), StatsError> {
        let interval = bootstrap_mean(&[0.1; 30], SETTINGS)?;
        assert!((interval.low - 0.1).abs() < 1e-12 && (interval.high - 0.1).abs() < 1e-12);
        let single = bootstrap_mean(&[0.7], SETTINGS)?;
        assert!(single.ends().iter().all(|end| (end - 0.7).abs() < 1e-12));
        Ok(())
    }

    #[test]
    fn bad_input_is_named() {
        assert_eq!(bootstrap_mean(&[], SETTINGS), Err(StatsError::Empty));
        assert_eq!(
            bootstrap_mean(&[1.0, f64::NAN], SETTINGS),
            Err(StatsError::NotFinite { index: 1 })
        );
        assert_eq!(
            bootstrap_mean(
                &[1.0],
                Bootstrap {
                    resamples: 0,
                    ..SETTINGS
                }
            ),
            Err(StatsError::NoResamples)
        );
        assert!(
            bootstrap_mean(
                &[1.0],
                Bootstrap {
                    confidence: 1.0,
                    ..SETTINGS
                }
            )
            .is_err()
        );
    }

    #[test]
    fn samples_of_one_question_add_no_certainty() -> Result<(), StatsError> {
        let questions: Vec<f64> = (0..50).map(|index| f64::from(index % 3 == 0)).collect();
        let repeated: Vec<Vec<f64>> = questions.iter().map(|value| vec![*value; 8]).collect();
        let flat: Vec<f64> = repeated.concat();
        let clustered = bootstrap_clusters(&repeated, SETTINGS)?;
        assert_eq!(clustered, bootstrap_mean(&questions, SETTINGS)?);
        let naive = bootstrap_mean(&flat, SETTINGS)?;
        assert!(naive.high - naive.low < 0.6 * (clustered.high - clustered.low));
        Ok(())
    }

    proptest! {
        #[test]
        fn interval_lies_within_the_values_and_repeats(values in prop::collection::vec(-5.0_f64..5.0, 1..40), seed: u64) {
            let settings = Bootstrap { resamples: 200, confidence: 0.9, seed };
            let interval = bootstrap_mean(&values, settings)?;
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(least - 1e-9 <= interval.low && interval.low <= interval.high && interval.high <= most + 1e-9);
            prop_assert_eq!(interval, bootstrap_mean(&values, settings)?);
        }

        #[test]
        fn interval_moves_and_scales_with_the_values(values in prop::collection::vec(0.0_f64..1.0, 3..30), shift in -3.0_f64..3.0) {
            let plain = bootstrap_mean(&values, SETTINGS)?;
            let moved: Vec<f64> = values.iter().map(|value| 2.0 * value + shift).collect();
            let interval = bootstrap_mean(&moved, SETTINGS)?;
            prop_assert!((interval.low - (2.0 * plain.low + shift)).abs() < 1e-6);
            prop_assert!((interval.high - (2.0 * plain.high + shift)).abs() < 1e-6);
        }
    }
}

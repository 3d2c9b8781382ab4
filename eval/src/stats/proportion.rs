//! Intervals of a share of right answers.

use super::bootstrap::{bootstrap_clusters, cluster_means};
use super::normal::normal_quantile;
use super::{Bootstrap, Interval, StatsError};

/// Share of successes with Wilson's score interval (1927): it has a width where all trials or none succeed.
///
/// # Errors
/// [`StatsError`] for no trials, more successes than trials and a confidence out of range.
pub fn wilson(successes: u64, trials: u64, confidence: f64) -> Result<Interval, StatsError> {
    if !(confidence > 0.0 && confidence < 1.0) {
        return Err(StatsError::Confidence(confidence));
    }
    if trials == 0 {
        return Err(StatsError::Empty);
    }
    if successes > trials {
        return Err(StatsError::Successes { successes, trials });
    }
    let n = trials as f64;
    let share = successes as f64 / n;
    let z = normal_quantile(f64::midpoint(1.0, confidence));
    let shrink = 1.0 + z * z / n;
    let centre = (share + z * z / (2.0 * n)) / shrink;
    let half = z / shrink * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    // Rounding must not put the ends past what they are exactly.
    let low = if successes == 0 { 0.0 } else { (centre - half).min(share) };
    let high = if successes == trials { 1.0 } else { (centre + half).max(share) };
    Ok(Interval { estimate: share, low, high })
}

/// Mean over clusters of the cluster means with the interval that fits them: [`wilson`] where every cluster is right or
/// wrong, 1 or 0, as a question answered once is; [`bootstrap_clusters`] otherwise.
///
/// The bootstrap cannot see beyond its sample: it gives 0 of 20 right an interval of width 0, and covers too seldom where few
/// or nearly all are right (`docs/statistics.md`).
///
/// # Errors
/// As [`bootstrap_clusters`].
pub fn mean_interval(clusters: &[Vec<f64>], settings: Bootstrap) -> Result<Interval, StatsError> {
    let means = cluster_means(clusters);
    let [mut right, mut wrong] = [0, 0];
    for mean in &means {
        right += u64::from((mean - 1.0).abs() < f64::EPSILON);
        wrong += u64::from(mean.abs() < f64::EPSILON);
    }
    if means.is_empty() || right + wrong < means.len() as u64 {
        return bootstrap_clusters(clusters, settings);
    }
    wilson(right, right + wrong, settings.confidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Bootstrap = Bootstrap { resamples: 500, confidence: 0.95, seed: 3 };

    #[test]
    fn none_of_twenty_is_no_proof_of_none() -> Result<(), StatsError> {
        let none = wilson(0, 20, 0.95)?;
        assert!(none.low.abs() < 1e-12 && (none.high - 0.161_125).abs() < 1e-6, "{none:?}");
        let all = wilson(20, 20, 0.95)?;
        assert!((all.low - (1.0 - none.high)).abs() < 1e-12 && (all.high - 1.0).abs() < 1e-12);
        assert_eq!(wilson(0, 0, 0.95), Err(StatsError::Empty));
        assert_eq!(wilson(3, 2, 0.95), Err(StatsError::Successes { successes: 3, trials: 2 }));
        assert_eq!(wilson(1, 2, 0.0), Err(StatsError::Confidence(0.0)));
        Ok(())
    }

    #[test]
    fn the_interval_fits_the_values() -> Result<(), StatsError> {
        let once = vec![vec![1.0], vec![], vec![0.0], vec![1.0, 1.0]];
        assert_eq!(mean_interval(&once, SETTINGS)?, wilson(2, 3, 0.95)?);
        let several = vec![vec![1.0, 0.0], vec![0.0], vec![1.0]];
        assert_eq!(mean_interval(&several, SETTINGS)?, bootstrap_clusters(&several, SETTINGS)?);
        assert_eq!(mean_interval(&[vec![]], SETTINGS), Err(StatsError::Empty));
        Ok(())
    }
}

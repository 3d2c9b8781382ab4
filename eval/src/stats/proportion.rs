//! Intervals of a share of right answers.

use super::bootstrap::bootstrap_mean;
use super::normal::normal_quantile;
use super::{Bootstrap, Interval, StatsError};

/// Share of successes with Wilson's score interval (1927): it has a width where all trials or none succeed.
///
/// # Errors
/// [`StatsError`] for no trials, more successes than trials and a confidence out of range.
pub(crate) fn wilson(successes: u64, trials: u64, confidence: f64) -> Result<Interval, StatsError> {
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
    let low = if successes == 0 {
        0.0
    } else {
        (centre - half).min(share)
    };
    let high = if successes == trials {
        1.0
    } else {
        (centre + half).max(share)
    };
    Ok(Interval {
        estimate: share,
        low,
        high,
    })
}

/// Mean of scores between 0 and 1 with the interval that fits them: `wilson` where each is right or wrong, 1 or 0, as of
/// questions answered once; [`bootstrap_mean`] otherwise.
///
/// The bootstrap cannot see beyond its sample: it gives 0 of 20 right an interval of width 0, and covers too seldom where few
/// or nearly all are right (`docs/statistics.md`).
///
/// # Errors
/// As [`bootstrap_mean`].
pub(crate) fn mean_interval(scores: &[f64], settings: Bootstrap) -> Result<Interval, StatsError> {
    let equal = |to: f64| {
        scores
            .iter()
            .filter(|score| (**score - to).abs() < f64::EPSILON)
            .count()
    };
    let (right, wrong) = (equal(1.0), equal(0.0));
    if scores.is_empty() || right + wrong < scores.len() {
        return bootstrap_mean(scores, settings);
    }
    wilson(right as u64, scores.len() as u64, settings.confidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Bootstrap = Bootstrap {
        resamples: 500,
        confidence: 0.95,
        seed: 3,
    };

    #[test]
    fn none_of_twenty_is_no_proof_of_none() -> Result<(), StatsError> {
        let none = wilson(0, 20, 0.95)?;
        assert!(
            none.low.abs() < 1e-12 && (none.high - 0.161_125).abs() < 1e-6,
            "{none:?}"
        );
        let all = wilson(20, 20, 0.95)?;
        assert!((all.low - (1.0 - none.high)).abs() < 1e-12 && (all.high - 1.0).abs() < 1e-12);
        assert_eq!(wilson(0, 0, 0.95), Err(StatsError::Empty));
        assert_eq!(
            wilson(3, 2, 0.95),
            Err(StatsError::Successes {
                successes: 3,
                trials: 2
            })
        );
        assert_eq!(wilson(1, 2, 0.0), Err(StatsError::Confidence(0.0)));
        Ok(())
    }

    #[test]
    fn the_interval_fits_the_values() -> Result<(), StatsError> {
        assert_eq!(
            mean_interval(&[1.0, 0.0, 1.0], SETTINGS)?,
            wilson(2, 3, 0.95)?
        );
        let parts = [1.0, 0.0, 0.5];
        assert_eq!(
            mean_interval(&parts, SETTINGS)?,
            bootstrap_mean(&parts, SETTINGS)?
        );
        assert_eq!(mean_interval(&[], SETTINGS), Err(StatsError::Empty));
        Ok(())
    }
}

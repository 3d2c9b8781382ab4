//! Two policies on the same questions.

use super::bootstrap::percentile_mean;
use super::{Bootstrap, Interval, StatsError};

/// Mean of `b - a` over the same questions, with a percentile bootstrap interval by resampling questions.
///
/// Percentile and not `BCa`: differences of equal policies are symmetric, and the skewness that `BCa` corrects by is then chance.
/// It covers less often for it, far less where tails are heavy or few questions differ (`docs/statistics.md`).
///
/// # Errors
/// [`StatsError`] for different lengths and as [`percentile_mean`].
pub(crate) fn paired_bootstrap(
    a: &[f64],
    b: &[f64],
    settings: Bootstrap,
) -> Result<Interval, StatsError> {
    if a.len() != b.len() {
        return Err(StatsError::Lengths {
            a: a.len(),
            b: b.len(),
        });
    }
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
    percentile_mean(&differences, settings)
}

/// Exact two-sided `McNemar` test: the probability, were both policies equally good, of a split of the `b + c` questions
/// that only one of them answers at least as uneven as this one. 1 when there are none.
pub(crate) fn mcnemar_exact(b: u64, c: u64) -> f64 {
    let trials = b + c;
    let fewer = b.min(c);
    if b == c {
        return 1.0;
    }
    let mut log_term = -(trials as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for successes in 0..=fewer {
        tail += log_term.exp();
        log_term += ((trials - successes) as f64 / (successes + 1) as f64).ln();
    }
    (2.0 * tail).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Bootstrap = Bootstrap {
        resamples: 1000,
        confidence: 0.95,
        seed: 1,
    };

    #[test]
    fn pairing_removes_what_the_questions_share() -> Result<(), StatsError> {
        let a: Vec<f64> = (0..100).map(f64::from).collect();
        let b: Vec<f64> = a.iter().map(|value| value + 1.0).collect();
        let interval = paired_bootstrap(&a, &b, SETTINGS)?;
        assert!((interval.low - 1.0).abs() < 1e-9 && (interval.high - 1.0).abs() < 1e-9);
        let backwards = paired_bootstrap(&b, &a, SETTINGS)?;
        assert!(backwards.is_negative() && interval.is_positive());
        Ok(())
    }

    #[test]
    fn sides_must_match() {
        assert_eq!(
            paired_bootstrap(&[1.0, 0.0], &[1.0], SETTINGS),
            Err(StatsError::Lengths { a: 2, b: 1 })
        );
    }
}

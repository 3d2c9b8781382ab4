//! Intervals and tests, seeded: the same values, settings and seed give the same numbers on every machine.

mod average;
mod bootstrap;
mod multiple;
mod noninferiority;
mod normal;
mod paired;
mod permutation;
mod power;
mod proportion;
mod stratified;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

pub(crate) use average::macro_average;
pub(crate) use noninferiority::Better;
pub use noninferiority::NonInferiority;
pub(crate) use stratified::ProfilePoint;

pub(crate) use bootstrap::{
    below, bootstrap_clusters, bootstrap_mean, bootstrap_statistic, cluster_means, percentile_mean,
};
pub(crate) use multiple::holm;
#[cfg(test)]
pub(crate) use normal::normal_cdf;
pub(crate) use paired::{mcnemar_exact, paired_bootstrap};
pub(crate) use permutation::paired_permutation;
pub(crate) use power::minimum_detectable_effect;
pub(crate) use proportion::{mean_interval, wilson};
pub(crate) use stratified::{
    interquartile_mean, performance_profile, probability_of_improvement, stratified_bootstrap_pair,
};

/// An estimate with the ends of its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The statistic of the sample itself.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Level below which a p-value counts as shown.
pub(crate) const LEVEL: f64 = 0.05;

/// The distance from 0 that rounding alone can give an end of an interval: rewards are of single precision, and sums of their parts round
/// differently.
const ROUNDING: f64 = 1e-7;

impl Interval {
    /// Returns true when the whole interval lies above 0, by more than rounding: the effect is positive at this confidence.
    pub fn is_positive(&self) -> bool {
        self.low > ROUNDING
    }

    /// Returns true when the whole interval lies below 0, by more than rounding.
    pub fn is_negative(&self) -> bool {
        self.high < -ROUNDING
    }

    /// The side of 0 on which the effect is shown to lie: by the interval, and by a test with this p-value, which few questions or few
    /// that differ do not pass. `Equal` where neither side is shown.
    pub(crate) fn shown(&self, p: f64) -> Ordering {
        if p < LEVEL && self.is_positive() {
            Ordering::Greater
        } else if p < LEVEL && self.is_negative() {
            Ordering::Less
        } else {
            Ordering::Equal
        }
    }

    /// `[low, high]`.
    pub fn ends(&self) -> [f64; 2] {
        [self.low, self.high]
    }
}

/// The settings of intervals: resamples, confidence and seed of a bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bootstrap {
    /// Number of resamples, at least 1. Ends move by about 1 % of the interval's width at 10,000.
    pub resamples: usize,
    /// Share of intervals that cover the truth, in (0, 1).
    pub confidence: f64,
    /// Start of the random stream.
    pub seed: u64,
}

impl Bootstrap {
    /// 95 % intervals from 10,000 resamples.
    pub fn new(seed: u64) -> Self {
        Self {
            resamples: 10_000,
            confidence: 0.95,
            seed,
        }
    }

    /// The mean of values with its interval.
    ///
    /// # Errors
    /// [`StatsError`] without values, for values that are not finite, and when the settings are out of range.
    pub fn mean(self, values: &[f64]) -> Result<Interval, StatsError> {
        bootstrap_mean(values, self)
    }

    /// The share of successes with Wilson's score interval.
    ///
    /// # Errors
    /// [`StatsError`] without trials, for more successes than trials, and when the confidence is out of range.
    pub fn share(self, successes: u64, trials: u64) -> Result<Interval, StatsError> {
        wilson(successes, trials, self.confidence)
    }

    /// `95 % interval`.
    pub(crate) fn label(&self) -> String {
        format!("{:.0} % interval", 100.0 * self.confidence)
    }

    fn check(&self) -> Result<(), StatsError> {
        if self.resamples == 0 {
            return Err(StatsError::NoResamples);
        }
        if !(self.confidence > 0.0 && self.confidence < 1.0) {
            return Err(StatsError::Confidence(self.confidence));
        }
        Ok(())
    }
}

/// A statistic that cannot be computed from what was given.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StatsError {
    /// No values.
    #[error("no values to take a statistic of")]
    Empty,
    /// A value is infinite or not a number.
    #[error("value {index} is not finite")]
    NotFinite {
        /// Its position.
        index: usize,
    },
    /// Paired samples of different lengths.
    #[error("paired samples differ in length: {a} and {b}")]
    Lengths {
        /// Length of the first.
        a: usize,
        /// Length of the second.
        b: usize,
    },
    /// No resamples.
    #[error("resampling needs at least one resample")]
    NoResamples,
    /// The confidence is outside (0, 1).
    #[error("confidence {0} is outside (0, 1)")]
    Confidence(f64),
    /// A probability is outside `[0, 1]`.
    #[error("value {index}, {value}, is not a probability: it is outside [0, 1]")]
    Probability {
        /// Its position.
        index: usize,
        /// The value.
        value: f64,
    },
    /// More successes than trials.
    #[error("{successes} successes of {trials} trials")]
    Successes {
        /// Successes.
        successes: u64,
        /// Trials.
        trials: u64,
    },
    /// Runs with different numbers of tasks.
    #[error(
        "run {run} has scores on {tasks} tasks, the first on {expected}: leave out tasks that not every run played"
    )]
    Ragged {
        /// Position of the run.
        run: usize,
        /// Its tasks.
        tasks: usize,
        /// The first run's.
        expected: usize,
    },
    /// The margin of a non-inferiority test is not above 0.
    #[error("a margin of {0} allows nothing: it must be above 0")]
    Margin(f64),
}

/// Arithmetic mean; 0 for an empty slice.
pub(crate) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation with the `n - 1` denominator; 0 for fewer than two values.
pub(crate) fn standard_deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rounding_leaves_is_on_no_side_of_0() {
        let interval = |low, high| Interval {
            estimate: f64::midpoint(low, high),
            low,
            high,
        };
        let risen = interval(2.3e-10, 0.022);
        let fallen = interval(-0.022, -2.3e-10);
        assert!(!risen.is_positive() && !fallen.is_negative());
        assert_eq!(risen.shown(0.01), Ordering::Equal);
        assert!(interval(1e-5, 0.022).is_positive() && interval(-0.022, -1e-5).is_negative());
    }
}

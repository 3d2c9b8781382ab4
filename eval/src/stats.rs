//! Intervals and tests, seeded: the same values, settings and seed give the same numbers on every machine.

mod aggregate;
mod bootstrap;
mod normal;
mod paired;

use serde::{Deserialize, Serialize};

pub use aggregate::{interquartile_mean, optimality_gap, probability_of_improvement};
pub use bootstrap::{bootstrap_clusters, bootstrap_mean, bootstrap_statistic, percentile_mean};
pub use normal::{normal_cdf, normal_quantile};
pub use paired::{mcnemar_exact, minimum_detectable_effect, paired_bootstrap, paired_bootstrap_clusters};

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

impl Interval {
    /// Whether the whole interval lies above 0: the effect is positive at this confidence.
    pub fn is_positive(&self) -> bool {
        self.low > 0.0
    }

    /// Whether the whole interval lies below 0.
    pub fn is_negative(&self) -> bool {
        self.high < 0.0
    }

    /// `[low, high]`.
    pub fn ends(&self) -> [f64; 2] {
        [self.low, self.high]
    }
}

/// How intervals are made: resamples, confidence and seed of a bootstrap.
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
        Self { resamples: 10_000, confidence: 0.95, seed }
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
    /// The bootstrap has no resamples.
    #[error("a bootstrap needs at least one resample")]
    NoResamples,
    /// The confidence is outside (0, 1).
    #[error("confidence {0} is outside (0, 1)")]
    Confidence(f64),
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

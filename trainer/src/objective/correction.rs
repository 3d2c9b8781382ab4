//! Weights for the gap between the policy that sampled a token and the one the trainer compares with.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::loss::LOG_RATIO_LIMIT;

/// The ratio that weighs a token, with rho = exp(lo - lr) per token: `lo` the trainer's log-probability at the start of the
/// step, `lr` the sampler's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// The token's own rho.
    Token,
    /// The product over the sequence's tokens: with 500 tokens a mean gap of 0.0022 nats makes it 3.
    Sequence,
    /// The geometric mean over the sequence's tokens.
    Geometric,
}

/// The treatment of a ratio outside its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Bound {
    /// Weight min(ratio, `cap`): truncated importance sampling. slime, verl and SkyRL 2, TRL 3.
    Truncate {
        /// Greatest weight.
        cap: f64,
    },
    /// Weight ratio if `low` <= ratio <= `high`, else 0. `IcePop` in slime 0.5 and 2; TRL's masks 0 and 3.
    Mask {
        /// Least ratio that is kept.
        low: f64,
        /// Greatest ratio that is kept.
        high: f64,
    },
    /// Weight 1 if `low` <= ratio <= `high`, else 0: rejection without reweighting.
    Reject {
        /// Least ratio that is kept.
        low: f64,
        /// Greatest ratio that is kept.
        high: f64,
    },
}

/// A correction: weights of the tokens' policy losses, without gradient. They multiply the loss after its clip; the penalty
/// for leaving the reference is not weighed (TRL), and dropped tokens still count in the aggregation (slime, TRL).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    /// The ratio.
    pub level: RatioLevel,
    /// Its bounds.
    pub bound: Bound,
    /// A token with rho below this, above 0 and at most 1, drops its whole sequence (slime 1e-4); none without it.
    pub veto: Option<f64>,
}

/// The work of a correction, in policy tokens; sums over sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CorrectionCounts {
    /// Tokens weighed.
    pub tokens: usize,
    /// Tokens whose weight was cut to the cap.
    pub truncated: usize,
    /// Tokens dropped for their ratio, the vetoed ones excluded.
    pub masked: usize,
    /// Tokens dropped with their sequence by the veto.
    pub vetoed: usize,
}

impl AddAssign for CorrectionCounts {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.truncated += other.truncated;
        self.masked += other.masked;
        self.vetoed += other.vetoed;
    }
}

/// The weights of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CorrectionWeights {
    /// `[n]`: factor of each token's policy loss and its derivative.
    pub(super) weights: Vec<f32>,
    /// The tokens that were truncated or dropped.
    pub(super) counts: CorrectionCounts,
}

impl Correction {
    /// min(rho, `cap`) per token.
    #[cfg(test)]
    pub(crate) const fn tis_token(cap: f64) -> Self {
        Self {
            level: RatioLevel::Token,
            bound: Bound::Truncate { cap },
            veto: None,
        }
    }

    /// rho per token where it lies in [`low`, `high`], else 0.
    #[cfg(test)]
    pub(crate) const fn icepop(low: f64, high: f64) -> Self {
        Self {
            level: RatioLevel::Token,
            bound: Bound::Mask { low, high },
            veto: None,
        }
    }

    /// The weights of one sequence; `proximal` and `sampler`: `[n]`, nats. Log ratios are held within +-20 before exp (verl,
    /// SkyRL, slime).
    ///
    /// # Panics
    /// When the slices differ in number.
    pub(super) fn weights(&self, proximal: &[f32], sampler: &[f32]) -> CorrectionWeights {
        assert_eq!(
            proximal.len(),
            sampler.len(),
            "log-probabilities and the sampler's"
        );
        let tokens = proximal.len();
        let gaps: Vec<f64> = proximal
            .iter()
            .zip(sampler)
            .map(|(&lo, &lr)| f64::from(lo) - f64::from(lr))
            .collect();
        let mut counts = CorrectionCounts {
            tokens,
            ..CorrectionCounts::default()
        };
        if self
            .veto
            .is_some_and(|veto| gaps.iter().any(|&gap| exp(gap) < veto))
        {
            counts.vetoed = tokens;
            return CorrectionWeights {
                weights: vec![0.0; tokens],
                counts,
            };
        }
        let sum: f64 = gaps.iter().sum();
        let weights = gaps.iter().map(|&gap| {
            let ratio = exp(match self.level {
                RatioLevel::Token => gap,
                RatioLevel::Sequence => sum,
                RatioLevel::Geometric => sum / tokens as f64,
            });
            self.bound.weight(ratio, &mut counts) as f32
        });
        CorrectionWeights {
            weights: weights.collect(),
            counts,
        }
    }
}

impl Bound {
    fn weight(&self, ratio: f64, counts: &mut CorrectionCounts) -> f64 {
        match *self {
            Self::Truncate { cap } => {
                counts.truncated += usize::from(ratio > cap);
                ratio.min(cap)
            }
            Self::Mask { low, high } | Self::Reject { low, high }
                if !(low..=high).contains(&ratio) =>
            {
                counts.masked += 1;
                0.0
            }
            Self::Mask { .. } => ratio,
            Self::Reject { .. } => 1.0,
        }
    }
}

fn exp(log_ratio: f64) -> f64 {
    log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(correction: Correction, gaps: &[f32]) -> CorrectionWeights {
        correction.weights(gaps, &vec![0.0; gaps.len()])
    }

    fn close(found: f32, expected: f32) {
        assert!((found - expected).abs() < 2e-6, "{found} is not {expected}");
    }

    #[test]
    fn token_vectors() {
        let slime = weights(Correction::tis_token(2.0), &[1.0, 0.0]);
        assert_eq!(slime.weights, [2.0, 1.0]);
        assert_eq!(
            slime.counts,
            CorrectionCounts {
                tokens: 2,
                truncated: 1,
                ..CorrectionCounts::default()
            }
        );
        let icepop = weights(Correction::icepop(0.5, 2.0), &[1.0, 0.0]);
        assert_eq!(icepop.weights, [0.0, 1.0]);
        assert_eq!(
            icepop.counts,
            CorrectionCounts {
                tokens: 2,
                masked: 1,
                ..CorrectionCounts::default()
            }
        );
        close(
            weights(Correction::icepop(0.0, 3.0), &[1.0]).weights[0],
            std::f32::consts::E,
        );
    }

    #[test]
    fn one_catastrophic_token_drops_its_sequence() {
        let slime = Correction {
            veto: Some(1e-4),
            ..Correction::tis_token(2.0)
        };
        let found = weights(slime, &[0.0, -12.0]);
        assert_eq!(found.weights, [0.0, 0.0]);
        assert_eq!(
            found.counts,
            CorrectionCounts {
                tokens: 2,
                vetoed: 2,
                ..CorrectionCounts::default()
            }
        );
        close(weights(slime, &[0.0, -9.0]).weights[0], 1.0);
    }

    #[test]
    fn sequence_vectors() {
        let gaps = [0.3, -0.2, 0.9, 0.4];
        let at = |level, bound| {
            weights(
                Correction {
                    level,
                    bound,
                    veto: None,
                },
                &gaps,
            )
        };
        close(
            at(
                RatioLevel::Sequence,
                Bound::Mask {
                    low: 0.0,
                    high: 5.0,
                },
            )
            .weights[0],
            4.055_2,
        );
        assert_eq!(
            at(
                RatioLevel::Sequence,
                Bound::Mask {
                    low: 0.0,
                    high: 3.0
                }
            )
            .weights,
            [0.0; 4]
        );
        assert_eq!(
            at(
                RatioLevel::Sequence,
                Bound::Mask {
                    low: 0.0,
                    high: 3.0
                }
            )
            .counts
            .masked,
            4
        );
        assert_eq!(
            at(RatioLevel::Sequence, Bound::Truncate { cap: 2.0 }).weights,
            [2.0; 4]
        );
        close(
            at(RatioLevel::Geometric, Bound::Truncate { cap: 2.0 }).weights[3],
            1.419_068,
        );
        assert_eq!(
            at(
                RatioLevel::Geometric,
                Bound::Reject {
                    low: 0.99,
                    high: 1.01
                }
            )
            .weights,
            [0.0; 4]
        );
        assert_eq!(
            at(
                RatioLevel::Geometric,
                Bound::Reject {
                    low: 0.5,
                    high: 2.0
                }
            )
            .weights,
            [1.0; 4]
        );
    }
}

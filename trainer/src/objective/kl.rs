//! The penalty for leaving a reference policy, per token.

use forage_contracts::objective::TokenTerms;
use serde::{Deserialize, Serialize};

use super::loss::Term;

/// Nats at which [`KlEstimator::LowVar`] holds the difference (verl, SkyRL).
const DIFFERENCE_LIMIT: f64 = 20.0;
/// Nats at which [`KlEstimator::LowVar`] holds its value (Search-R1, verl, SkyRL, slime).
const VALUE_LIMIT: f64 = 10.0;

/// An estimate of KL(policy, reference) from one sampled token, with d = lp - reference in nats (Schulman 2020,
/// "Approximating KL divergence").
///
/// The `Plus` variants have the value of their namesake and the gradient of [`Self::K2`], which is that of the KL in
/// expectation; those of k1 and k3 are not (verl's `+`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlEstimator {
    /// d; its gradient has mean 0.
    K1,
    /// d^2 / 2.
    K2,
    /// exp(-d) + d - 1, without any bound (TRL).
    K3,
    /// k3 of d held within +-20, the value held within +-10; no gradient where either acts.
    LowVar,
    /// Value of k1, gradient of k2.
    K1Plus,
    /// Value of k3, gradient of k2.
    K3Plus,
    /// Value of `LowVar`, gradient of k2.
    LowVarPlus,
}

impl KlEstimator {
    /// Estimate and derivative of each token, nats; `logprobs` and `reference`: `[n]`, nats.
    ///
    /// # Panics
    /// When the slices differ in number.
    pub(super) fn tokens(self, logprobs: &[f32], reference: &[f32]) -> TokenTerms {
        differences(logprobs, reference)
            .map(|difference| self.term(difference))
            .collect()
    }

    fn term(self, d: f64) -> Term {
        let straight = |term: Term| Term { grad: d, ..term };
        match self {
            Self::K1 => Term::free(d, 1.0),
            Self::K2 => Term::free(d * d / 2.0, d),
            Self::K3 => Term::free((-d).exp() + d - 1.0, 1.0 - (-d).exp()),
            Self::LowVar => {
                let held = d.clamp(-DIFFERENCE_LIMIT, DIFFERENCE_LIMIT);
                let value = (-held).exp() + held - 1.0;
                let bounded = d.abs() > DIFFERENCE_LIMIT || value > VALUE_LIMIT;
                Term {
                    value: value.min(VALUE_LIMIT),
                    grad: if bounded { 0.0 } else { 1.0 - (-d).exp() },
                    bounded,
                }
            }
            Self::K1Plus => straight(Self::K1.term(d)),
            Self::K3Plus => straight(Self::K3.term(d)),
            Self::LowVarPlus => straight(Self::LowVar.term(d)),
        }
    }
}

/// The penalty of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KlPenalty {
    /// The estimate.
    pub estimator: KlEstimator,
    /// Its weight in the loss, or in the reward.
    pub coefficient: f64,
    /// Multiplies the estimate with exp(lp - lo), gradient included, which makes it an unbiased estimate when the tokens
    /// were not sampled from the current policy (DeepSeek-V3.2; slime, TRL's `use_bias_correction_kl`). The ratio is not
    /// held within bounds.
    #[serde(default)]
    pub unbiased: bool,
    /// Takes it off the reward of each token, before advantages, in place of adding it to the loss: verl's `use_kl_in_reward`, with
    /// which Search-R1's PPO takes k1 times 0.001. The estimate is of the policy that the batch begins with. For credits `gae` and
    /// `reward_to_go`, which give each token a reward of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub in_reward: bool,
}

impl KlPenalty {
    /// The estimate of each token from its log-probability less that under the reference, `shifts`, nats.
    pub(super) fn estimates(&self, shifts: &[f32]) -> impl Iterator<Item = f64> {
        let estimator = self.estimator;
        let estimate = move |&shift: &f32| estimator.term(f64::from(shift)).value;
        shifts.iter().map(estimate)
    }

    /// The estimate of each token, not yet times the coefficient; every slice `[n]`, nats.
    ///
    /// # Panics
    /// When the slices differ in number.
    pub(super) fn tokens(
        &self,
        logprobs: &[f32],
        proximal: &[f32],
        reference: &[f32],
    ) -> TokenTerms {
        if !self.unbiased {
            return self.estimator.tokens(logprobs, reference);
        }
        let terms =
            differences(logprobs, reference).map(|difference| self.estimator.term(difference));
        let ratios = differences(logprobs, proximal).map(f64::exp);
        let weighed = |(term, ratio): (Term, f64)| Term {
            value: ratio * term.value,
            grad: ratio * (term.value + term.grad),
            ..term
        };
        terms.zip(ratios).map(weighed).collect()
    }
}

fn differences(logprobs: &[f32], others: &[f32]) -> impl Iterator<Item = f64> {
    assert_eq!(
        logprobs.len(),
        others.len(),
        "log-probabilities and what they are compared with"
    );
    logprobs
        .iter()
        .zip(others)
        .map(|(&current, &other)| f64::from(current) - f64::from(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors() {
        for (estimator, d, expected) in [
            (KlEstimator::K1, 0.1, 0.1),
            (KlEstimator::K2, 0.1, 0.005),
            (KlEstimator::K3, 0.1, 0.004_837_42),
            (KlEstimator::K3, -0.1, 0.005_170_92),
            (KlEstimator::K3, 1.0, 0.367_879_44),
            (KlEstimator::K3, -1.0, 0.718_281_83),
            (KlEstimator::K3, -3.0, 16.085_537),
            (KlEstimator::K3, 15.0, 14.0),
            (KlEstimator::LowVar, 1.0, 0.367_879_44),
            (KlEstimator::LowVar, -3.0, 10.0),
            (KlEstimator::LowVar, 15.0, 10.0),
            (KlEstimator::K1Plus, 0.1, 0.1),
            (KlEstimator::K3Plus, -1.0, 0.718_281_83),
            (KlEstimator::LowVarPlus, 15.0, 10.0),
        ] {
            let found = estimator.term(d).value;
            assert!(
                (found - expected).abs() < 1e-6,
                "{estimator:?}({d}): {found}"
            );
        }
    }

    #[test]
    fn bounds_stop_the_gradient_except_in_the_plus_variants() {
        let found = KlEstimator::LowVar.tokens(&[-1.0, -1.0, -1.0], &[2.0, -16.0, -1.5]);
        assert_eq!(
            (found.bounded, found.gradients[0], found.gradients[1]),
            (2, 0.0, 0.0)
        );
        assert!((found.gradients[2] - 0.393_469_34).abs() < 1e-6);
        assert_eq!(
            KlEstimator::LowVarPlus.tokens(&[-1.0], &[2.0]).gradients,
            [-3.0]
        );
    }

    #[test]
    fn the_unbiased_penalty_weighs_with_the_ratio() {
        let penalty = KlPenalty {
            estimator: KlEstimator::K2,
            coefficient: 1.0,
            unbiased: true,
            in_reward: false,
        };
        let found = penalty.tokens(&[-1.0], &[-1.0 - 2.0_f32.ln()], &[-2.0]);
        assert!((found.values[0] - 1.0).abs() < 1e-6, "{found:?}");
        assert!((found.gradients[0] - 3.0).abs() < 1e-6, "{found:?}");
    }
}

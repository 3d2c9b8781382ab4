//! The parts of a recipe put together for one sequence of an optimizer step.

use std::ops::AddAssign;

use forage_contracts::objective::TokenInputs;

use super::algorithm::Recipe;
use super::correction::CorrectionCounts;
use super::kl::KlPenalty;

/// Counts and sums of a step; sums over sequences, so those of micro-batches add up to those of the step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ObjectiveStats {
    /// Policy tokens.
    pub tokens: usize,
    /// Weighed policy loss, correction included, penalty excluded: sums to the step's policy loss.
    pub policy_loss: f64,
    /// Tokens at which the policy loss is clipped.
    pub bounded: usize,
    /// Sum over tokens of the KL estimate, nats; divide by `tokens`.
    pub kl: f64,
    /// Counts of the correction.
    pub correction: CorrectionCounts,
}

impl AddAssign for ObjectiveStats {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.policy_loss += other.policy_loss;
        self.bounded += other.bounded;
        self.kl += other.kl;
        self.correction += other.correction;
    }
}

/// One sequence's share of the step's loss.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SequenceObjective {
    /// Its share of the loss, penalty included: the step's loss is the sum over sequences.
    pub(crate) loss: f64,
    /// `[n]`: derivative of the step's loss by each token's log-probability.
    pub(crate) gradients: Vec<f32>,
    /// Its counts and sums.
    pub(crate) stats: ObjectiveStats,
}

impl Recipe {
    /// Returns whether it compares the policy with the frozen reference.
    pub fn needs_reference(&self) -> bool {
        self.loss_reads_reference() || self.reads_shifts()
    }

    /// Returns whether the loss of a token reads the reference.
    pub(crate) fn loss_reads_reference(&self) -> bool {
        self.penalty().is_some() || self.signs.overconfident > 0.0
    }

    /// Returns whether advantages read how far the policy has left its reference.
    pub(crate) fn reads_shifts(&self) -> bool {
        self.advantage.reads_reference() || self.reward_penalty().is_some()
    }

    /// The KL penalty, if it is part of the loss.
    pub(crate) fn penalty(&self) -> Option<KlPenalty> {
        self.kl.filter(|penalty| !penalty.in_reward)
    }

    /// The KL penalty, if it is part of the reward.
    pub(crate) fn reward_penalty(&self) -> Option<KlPenalty> {
        self.kl.filter(|penalty| penalty.in_reward)
    }

    /// Loss and gradient of one sequence: weight (correction x policy loss + coefficient x KL) at each token.
    ///
    /// `reference`: `[n]`, nats, log-probabilities under the reference policy, read only if the loss has a penalty or corrects
    /// overconfident errors. `weight`: of each of its tokens, from [`super::aggregate::Aggregation::weights`].
    ///
    /// # Panics
    /// When slices differ in number, or a recipe that reads the reference is given none.
    pub(crate) fn sequence(
        &self,
        inputs: &TokenInputs,
        reference: Option<&[f32]>,
        weight: f32,
    ) -> SequenceObjective {
        let weight = f64::from(weight);
        let reference = || reference.expect("this recipe needs reference log-probabilities");
        let policy = if self.signs.overconfident > 0.0 {
            let advantages = self.signs.against(inputs, reference());
            self.loss.tokens(&TokenInputs {
                advantages: &advantages,
                ..*inputs
            })
        } else {
            self.loss.tokens(inputs)
        };
        let tokens = policy.values.len();
        let mut stats = ObjectiveStats {
            tokens,
            bounded: policy.bounded,
            ..ObjectiveStats::default()
        };
        let mut factors = vec![weight; tokens];
        if let Some(correction) = self.correction {
            let found = correction.weights(inputs.proximal, inputs.sampler);
            stats.correction = found.counts;
            for (factor, ratio) in factors.iter_mut().zip(found.weights) {
                *factor *= f64::from(ratio);
            }
        }
        stats.policy_loss = weighed(&factors, &policy.values).sum();
        let mut loss = stats.policy_loss;
        let mut gradients: Vec<f64> = weighed(&factors, &policy.gradients).collect();
        if let Some(penalty) = self.penalty() {
            let kl = penalty.tokens(inputs.logprobs, inputs.proximal, reference());
            stats.kl = kl.values.iter().map(|&value| f64::from(value)).sum();
            loss += weight * penalty.coefficient * stats.kl;
            for (gradient, &grad) in gradients.iter_mut().zip(&kl.gradients) {
                *gradient += weight * penalty.coefficient * f64::from(grad);
            }
        }
        SequenceObjective {
            loss,
            gradients: gradients
                .into_iter()
                .map(|gradient| gradient as f32)
                .collect(),
            stats,
        }
    }
}

/// Tokens without weight leave no trace, even where their value is not finite.
fn weighed(factors: &[f64], values: &[f32]) -> impl Iterator<Item = f64> {
    let product = |(&factor, &value): (&f64, &f32)| {
        if factor.abs() > 0.0 {
            factor * f64::from(value)
        } else {
            0.0
        }
    };
    factors.iter().zip(values).map(product)
}

//! Figures of the optimizer steps on a batch: counts of its groups, sums over tokens, and the statistics made of them.

use std::ops::AddAssign;

use crate::objective::{CorrectionCounts, ObjectiveStats, RankMetrics, explained_variance};
use crate::ranks::Sums;
use crate::update::Scored;

/// Number of a batch's groups by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupCounts {
    /// Groups seen.
    pub groups: usize,
    /// Groups whose advantages give a gradient, and that the filter keeps.
    pub directed: usize,
    /// Groups dropped by the objective's filter, whatever their outcome.
    pub filtered: usize,
    /// Groups whose members all earned the same.
    pub zero_variance: usize,
    /// Groups with fewer than two members.
    pub too_small: usize,
    /// Groups whose rewards differ but give this advantage no direction.
    pub no_direction: usize,
}

/// Sums over the policy tokens of some sequences, which add up over micro-batches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TokenSums {
    /// Counts and sums of the objective.
    pub objective: ObjectiveStats,
    /// The step's share of the loss, with penalty and bonus.
    pub loss: f64,
    /// Entropies, nats.
    pub entropy: f64,
    /// Proximal - current log-probability: the k1 estimate of the KL from the policy of the batch's start.
    pub approx_kl_old: f64,
    /// |current - sampler|: at the first step of a batch, the mismatch of sampler and trainer.
    pub mismatch: f64,
    /// Largest |exp(current - sampler) - 1|.
    pub ratio_deviation_max: f64,
}

impl AddAssign for TokenSums {
    fn add_assign(&mut self, other: Self) {
        self.objective += other.objective;
        self.loss += other.loss;
        self.entropy += other.entropy;
        self.approx_kl_old += other.approx_kl_old;
        self.mismatch += other.mismatch;
        self.ratio_deviation_max = self.ratio_deviation_max.max(other.ratio_deviation_max);
    }
}

impl Sums for TokenSums {
    fn bits(&self) -> Vec<u64> {
        let Self {
            objective:
                ObjectiveStats {
                    tokens,
                    policy_loss,
                    bounded,
                    kl,
                    correction:
                        CorrectionCounts {
                            tokens: weighed,
                            truncated,
                            masked,
                            vetoed,
                        },
                },
            loss,
            entropy,
            approx_kl_old,
            mismatch,
            ratio_deviation_max,
        } = *self;
        vec![
            tokens as u64,
            policy_loss.to_bits(),
            bounded as u64,
            kl.to_bits(),
            weighed as u64,
            truncated as u64,
            masked as u64,
            vetoed as u64,
            loss.to_bits(),
            entropy.to_bits(),
            approx_kl_old.to_bits(),
            mismatch.to_bits(),
            ratio_deviation_max.to_bits(),
        ]
    }

    fn of_bits(bits: &[u64]) -> Option<Self> {
        let &[
            tokens,
            policy_loss,
            bounded,
            kl,
            weighed,
            truncated,
            masked,
            vetoed,
            loss,
            entropy,
            approx_kl_old,
            mismatch,
            ratio_deviation_max,
        ] = bits
        else {
            return None;
        };
        Some(Self {
            objective: ObjectiveStats {
                tokens: count(tokens),
                policy_loss: f64::from_bits(policy_loss),
                bounded: count(bounded),
                kl: f64::from_bits(kl),
                correction: CorrectionCounts {
                    tokens: count(weighed),
                    truncated: count(truncated),
                    masked: count(masked),
                    vetoed: count(vetoed),
                },
            },
            loss: f64::from_bits(loss),
            entropy: f64::from_bits(entropy),
            approx_kl_old: f64::from_bits(approx_kl_old),
            mismatch: f64::from_bits(mismatch),
            ratio_deviation_max: f64::from_bits(ratio_deviation_max),
        })
    }
}

/// The critic's sums over the policy tokens of some sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ValueSums {
    /// Policy tokens.
    pub tokens: usize,
    /// The step's share of the loss.
    pub loss: f64,
    /// Tokens at which the value loss is clipped.
    pub clipped: usize,
}

impl AddAssign for ValueSums {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.loss += other.loss;
        self.clipped += other.clipped;
    }
}

impl Sums for ValueSums {
    fn bits(&self) -> Vec<u64> {
        let Self {
            tokens,
            loss,
            clipped,
        } = *self;
        vec![tokens as u64, loss.to_bits(), clipped as u64]
    }

    fn of_bits(bits: &[u64]) -> Option<Self> {
        let &[tokens, loss, clipped] = bits else {
            return None;
        };
        Some(Self {
            tokens: count(tokens),
            loss: f64::from_bits(loss),
            clipped: count(clipped),
        })
    }
}

/// Statistics of a critic's updates on one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ValueStats {
    /// Optimizer steps done.
    pub updates: usize,
    /// Mean loss over the steps.
    pub loss: f64,
    /// Share of tokens at which the value loss was clipped.
    pub clip_frac: f64,
    /// Share of the returns' variance that its values explained before it learned from them.
    pub explained_variance: f64,
    /// Largest global gradient norm before clipping.
    pub grad_norm: f64,
    tokens: usize,
}

impl ValueStats {
    /// The statistics before the first step on these sequences.
    pub(crate) fn of<'a>(rows: impl Iterator<Item = &'a Scored>) -> Self {
        let pairs = rows.flat_map(|row| {
            let values = row.lesson.values.iter().copied();
            values.zip(row.lesson.returns.iter().copied())
        });
        Self {
            explained_variance: explained_variance(&pairs.collect::<Vec<_>>()),
            ..Self::default()
        }
    }

    /// Adds an optimizer step.
    pub(crate) fn add(&mut self, sums: &ValueSums, grad_norm: f64) {
        self.updates += 1;
        self.loss += (sums.loss - self.loss) / self.updates as f64;
        let clipped = self.clip_frac * self.tokens as f64 + sums.clipped as f64;
        self.tokens += sums.tokens;
        self.clip_frac = clipped / self.tokens.max(1) as f64;
        self.grad_norm = self.grad_norm.max(grad_norm);
    }
}

/// Statistics of the updates on one batch. Means are over the policy tokens that passed through the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpdateStats {
    /// Groups by outcome.
    pub(crate) groups: GroupCounts,
    /// Whether dropout was on in the trainer and not in the sampler, so that [`Self::mismatch`] measures dropout as well.
    pub(crate) masked: bool,
    /// Whether the objective has a KL penalty; [`Self::kl_reference`] is measured only then.
    pub(crate) penalised: bool,
    /// Statistics of the critic, if there is one.
    pub(crate) values: Option<ValueStats>,
    /// Means of the metrics of hidden states, where the objective reads them.
    pub(crate) ranks: Option<RankMetrics>,
    /// Optimizer steps done: 0 when no group has a gradient, or while the critic has its head start.
    pub updates: usize,
    /// Policy tokens that passed through the model, over all epochs.
    pub tokens: usize,
    /// Mean loss over the steps, with penalty and bonus.
    pub loss: f64,
    /// Mean policy loss over the steps, without penalty and bonus.
    pub policy_loss: f64,
    /// Share of tokens at which the policy loss was clipped.
    pub clip_frac: f64,
    /// Mean of old - current log-probability, nats: the k1 estimate of the KL from the policy of the batch's start.
    pub approx_kl_old: f64,
    /// Mean of the penalty's estimate, nats.
    pub kl_reference: f64,
    /// Mean entropy of the policy at its own tokens, nats.
    pub entropy: f64,
    /// Mean |current - sampler| at the first step, nats: the mismatch of trainer and sampler.
    pub mismatch: f64,
    /// Largest |ratio to the sampler - 1| at the first step.
    pub ratio_deviation_max: f64,
    /// Share of tokens whose weight the correction truncated.
    pub correction_truncated_frac: f64,
    /// Share of tokens that the correction dropped.
    pub correction_masked_frac: f64,
    /// Largest global gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate of the last step.
    pub learning_rate: f64,
}

impl UpdateStats {
    /// Counts the optimizer steps of the step's next batch as well; the policy's figures are those of `next` where `self` has no
    /// optimizer step.
    pub(crate) fn followed_by(self, next: Self) -> Self {
        if self.updates == 0 && next.updates > 0 {
            return Self {
                groups: self.groups,
                values: self.values,
                ..next
            };
        }
        Self {
            updates: self.updates + next.updates,
            ..self
        }
    }

    /// Adds an optimizer step.
    pub(crate) fn add(&mut self, sums: &TokenSums, grad_norm: f64, learning_rate: f64) {
        let first = self.updates == 0;
        self.updates += 1;
        let tokens = sums.objective.tokens.max(1) as f64;
        let before = self.tokens as f64;
        self.tokens += sums.objective.tokens;
        let mean = |old: f64, sum: f64| (old * before + sum) / (before + tokens);
        let steps = self.updates as f64;
        self.loss += (sums.loss - self.loss) / steps;
        self.policy_loss += (sums.objective.policy_loss - self.policy_loss) / steps;
        self.clip_frac = mean(self.clip_frac, sums.objective.bounded as f64);
        self.approx_kl_old = mean(self.approx_kl_old, sums.approx_kl_old);
        self.kl_reference = mean(self.kl_reference, sums.objective.kl);
        self.entropy = mean(self.entropy, sums.entropy);
        let correction = sums.objective.correction;
        self.correction_truncated_frac =
            mean(self.correction_truncated_frac, correction.truncated as f64);
        self.correction_masked_frac = mean(
            self.correction_masked_frac,
            (correction.masked + correction.vetoed) as f64,
        );
        if first {
            self.mismatch = sums.mismatch / tokens;
            self.ratio_deviation_max = sums.ratio_deviation_max;
        }
        self.grad_norm = self.grad_norm.max(grad_norm);
        self.learning_rate = learning_rate;
    }
}

fn count(bits: u64) -> usize {
    usize::try_from(bits).unwrap_or(usize::MAX)
}

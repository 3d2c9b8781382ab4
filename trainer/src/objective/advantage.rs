//! Advantages of the members of the groups of one batch.
//!
//! In formulas `r` is a reward, `mu`, `s_u` and `s_p` the mean, unbiased and population standard deviation of its group, `G` the
//! group's size. Rewards and advantages are in units of reward, divided by those of a standard deviation or mean where there is
//! one.

use forage_contracts::objective::{AdvantageEntry, Group, GroupOutcome, Setting, TokenInputs};
use forage_contracts::{Registry, SettingError};
use serde::{Deserialize, Serialize};

use super::advantages::ADVANTAGES;
use super::entry::{Choice, Entry};
use super::loss::LOG_RATIO_LIMIT;

static REGISTRY: Registry<AdvantageEntry> = Registry::new(ADVANTAGES);

impl Entry for AdvantageEntry {
    fn settings(&self) -> &'static [Setting] {
        self.settings
    }

    fn registry() -> &'static Registry<Self> {
        &REGISTRY
    }
}

/// A rule from rewards to advantages, as a configuration names it.
pub(crate) type Advantage = Choice<AdvantageEntry>;

impl Advantage {
    /// Returns whether it compares members with the mean of their group alone.
    pub(super) fn by_mean(&self) -> bool {
        self.entry.by_mean
    }

    /// Returns whether it reads how far the policy has left its reference.
    pub(crate) fn reads_reference(&self) -> bool {
        self.entry.reads_reference
    }

    /// One outcome per group, in order.
    ///
    /// # Panics
    /// When a group's rewards, tokens and shifts differ in number.
    pub(super) fn of_batch(&self, groups: &[Group]) -> Vec<GroupOutcome> {
        for group in groups {
            assert_eq!(
                group.rewards.len(),
                group.tokens.len(),
                "rewards and tokens of one group"
            );
            assert_eq!(
                group.rewards.len(),
                group.shifts.len(),
                "rewards and shifts of one group"
            );
        }
        (self.entry.of_batch)(&self.settings, groups)
    }

    /// The outcome of a batch of one group.
    ///
    /// # Panics
    /// When rewards, tokens and shifts differ in number.
    pub(super) fn of_group(&self, group: &Group) -> GroupOutcome {
        self.of_batch(std::slice::from_ref(group)).remove(0)
    }
}

/// Factors on advantages by their sign: positive and negative sample reweighting (Zhu et al. 2025, arXiv 2506.01347, whose
/// W-REINFORCE is 0.1 and 1), and stronger correction of errors that the policy has grown surer of (ACE, arXiv 2602.21420).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignWeights {
    /// Factor on advantages above 0.
    pub positive: f64,
    /// Factor on advantages below 0.
    pub negative: f64,
    /// alpha of ACE: advantages below 0 are multiplied by 1 + alpha softplus(c) besides, where c is the log-probability of the
    /// sequence's policy tokens less that under the reference, and carries no gradient; 0 for none. Assumed, since the abstract
    /// leaves it open: c is a sum, not a mean, held at 20 nats from above; "wrong" is an advantage below 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(extend("default" = 0.0))]
    pub overconfident: f64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(value: &f64) -> bool {
    value.to_bits() == 0
}

impl Default for SignWeights {
    fn default() -> Self {
        Self {
            positive: 1.0,
            negative: 1.0,
            overconfident: 0.0,
        }
    }
}

impl SignWeights {
    /// Multiplies each advantage by the factor of its sign.
    pub(super) fn apply(&self, advantages: &mut [f32]) {
        for advantage in advantages {
            let factor = if *advantage < 0.0 {
                self.negative
            } else {
                self.positive
            };
            *advantage = (f64::from(*advantage) * factor) as f32;
        }
    }

    /// `[n]`: the advantages of a sequence with [`Self::overconfident`]; `reference`: `[n]`, nats.
    pub(super) fn against(&self, inputs: &TokenInputs, reference: &[f32]) -> Vec<f32> {
        let pairs = inputs.logprobs.iter().zip(reference);
        let shift: f64 = pairs
            .map(|(&now, &before)| f64::from(now) - f64::from(before))
            .sum();
        let surer = softplus(shift.min(LOG_RATIO_LIMIT));
        let factor = 1.0 + self.overconfident * surer;
        let weigh = |&advantage: &f32| {
            if advantage < 0.0 {
                (f64::from(advantage) * factor) as f32
            } else {
                advantage
            }
        };
        inputs.advantages.iter().map(weigh).collect()
    }

    /// Checks the ranges.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        for (key, factor) in [
            ("signs.positive", self.positive),
            ("signs.negative", self.negative),
        ] {
            if !factor.is_finite() {
                return Err(SettingError::range(key, factor, "a finite number"));
            }
        }
        let alpha = self.overconfident;
        if alpha.is_finite() && alpha >= 0.0 {
            return Ok(());
        }
        let must = "0 or more; 0 for none";
        Err(SettingError::range("signs.overconfident", alpha, must))
    }
}

/// ln(1 + e^x).
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

//! Batches put together anew from what was played: `RoRecomp` (Enhancing Reasoning Efficiency via Rollout Response Recomposition,
//! arXiv 2509.25958).
//!
//! A step learns at once from the shortest right and the longest wrong members of each group: the priority batch. Groups wait with the
//! members that were left out until, on a schedule, the oldest of them are learned from with those members alone: the compensation
//! batch. Members are always compared with their whole group, those without loss too.
//!
//! Assumed, since the abstract does not say: the choice is made in each group and of right and wrong members alike, advantages are those
//! of the whole group, and the chance of a compensation batch falls with half a cosine over the run.

use std::cmp::Reverse;

use forage_contracts::SettingError;
use forage_contracts::environment::Outcome;
use forage_contracts::seed::Seed;
use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::replay::check_reuse;
use crate::learner::UpdateConfig;
use crate::sample::Sample;

/// Learns from the shortest right and the longest wrong episodes of each group at once, and from the others later
/// (`RoRecomp`, arXiv 2509.25958).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecompositionConfig {
    /// Share of the right episodes of a group, the shortest, and of the wrong ones, the longest, that is learned from at once, rounded up
    /// to whole episodes; above 0 and below 1.
    pub share: f64,
    /// The measure by which an episode is long.
    #[serde(default)]
    pub length: Length,
    /// Chance that a step learns from a batch of what was left out before, at the run's first step, 0 to 1; it falls to 0 at the last with
    /// half a cosine.
    pub compensation: f64,
    /// Most groups that wait with what was left out of them; the oldest are dropped.
    pub capacity: usize,
}

/// The measure by which an episode is long.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Length {
    /// Tokens of the policy.
    #[default]
    Tokens,
    /// Turns of the policy, and of as many their tokens.
    Turns,
}

impl RecompositionConfig {
    /// Checks the ranges, and that `update` weighs rollouts by importance.
    pub(super) fn check(
        &self,
        prompts: usize,
        group_size: usize,
        update: &UpdateConfig,
    ) -> Result<(), SettingError> {
        let Self {
            share,
            compensation,
            capacity,
            ..
        } = *self;
        if !(share > 0.0 && share < 1.0) {
            return Err(SettingError::range("share", share, "above 0 and below 1"));
        }
        if !(0.0..=1.0).contains(&compensation) {
            return Err(SettingError::range("compensation", compensation, "0 to 1"));
        }
        // With one right and one wrong member nothing would be left out.
        if group_size < 3 {
            let fault = "chooses among the episodes of a group; set grpo.group_size to 3 or more";
            return Err(SettingError::new("share", fault));
        }
        if compensation > 0.0 && capacity < prompts {
            let fault = format!(
                "is {capacity}: a batch of what was left out has {prompts} groups, so keep at least as many"
            );
            return Err(SettingError::new("capacity", fault));
        }
        check_reuse(update)
    }

    /// Tells whether a step has a compensation batch, where enough groups wait for one.
    pub(super) fn compensates(&self, step: u64, steps: u64, seed: Seed) -> bool {
        let done = step as f64 / steps.saturating_sub(1).max(1) as f64;
        let chance = self.compensation * 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
        seed.child("compensation", &[step]).rng().random::<f64>() < chance
    }

    /// `[group]`: whether each member is learned from at once.
    fn chosen(&self, group: &[Sample]) -> Vec<bool> {
        let mut chosen = vec![false; group.len()];
        for right in [true, false] {
            // Episodes whose ending is not learned from take nobody's place.
            let of_kind = |&member: &usize| {
                !group[member].masked && Outcome::is_right(group[member].accuracy) == right
            };
            let mut members: Vec<usize> = (0..group.len()).filter(of_kind).collect();
            if right {
                members.sort_by_key(|&member| self.length.of(&group[member]));
            } else {
                members.sort_by_key(|&member| Reverse(self.length.of(&group[member])));
            }
            let count = (self.share * members.len() as f64).ceil() as usize;
            for &member in members.iter().take(count) {
                chosen[member] = true;
            }
        }
        chosen
    }

    /// Removes the loss from the members of a group that do not belong to this batch, the priority or the compensation batch. Returns the
    /// number of those that remain.
    pub(super) fn recompose(&self, group: &mut [Sample], is_priority: bool) -> usize {
        let chosen = self.chosen(group);
        for (sample, chosen) in group.iter_mut().zip(chosen) {
            sample.masked |= chosen != is_priority;
        }
        group.iter().filter(|sample| !sample.masked).count()
    }
}

impl Length {
    fn of(self, sample: &Sample) -> (usize, usize) {
        let tokens = sample.sequence.targets.len();
        match self {
            Self::Tokens => (tokens, 0),
            Self::Turns => (sample.turns.len(), tokens),
        }
    }
}

#[cfg(test)]
mod tests;

//! Advantages of the members of the groups of one batch.
//!
//! In formulas `r` is a reward, `mu`, `s_u` and `s_p` the mean, unbiased and population standard deviation of its group, `G` the
//! group's size. Rewards and advantages are in units of reward, divided by those of a standard deviation or mean where there is
//! one.

use serde::{Deserialize, Serialize};

use super::advantages::ADVANTAGES;
use super::entry::{Choice, Entry, Setting, Settings};
use super::plugins;

/// One registered advantage.
#[derive(Clone, Copy, Debug)]
pub struct AdvantageEntry {
    /// The name in configurations.
    pub name: &'static str,
    /// The formula and its source.
    pub about: &'static str,
    /// The settings that it reads from its table in a configuration, at most four.
    pub settings: &'static [Setting],
    /// One outcome per group, in order. Groups that teach nothing still count in the statistics of the batch, as in the systems
    /// named; a group of one counts where its reward needs no baseline.
    pub of_batch: fn(&Settings, &[Group]) -> Vec<GroupOutcome>,
    /// `true` where it compares members by the mean of their group alone, which credit by turn builds on.
    pub by_mean: bool,
}

impl AdvantageEntry {
    /// An advantage without settings that credit by turn does not build on.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        of_batch: fn(&Settings, &[Group]) -> Vec<GroupOutcome>,
    ) -> Self {
        Self {
            name,
            about,
            settings: &[],
            of_batch,
            by_mean: false,
        }
    }
}

impl Entry for AdvantageEntry {
    const KIND: &'static str = "advantage";

    fn name(&self) -> &'static str {
        self.name
    }

    fn settings(&self) -> &'static [Setting] {
        self.settings
    }

    fn all() -> Vec<&'static Self> {
        ADVANTAGES.iter().chain(plugins::advantages()).collect()
    }
}

/// A rule from rewards to advantages, as a configuration names it.
pub type Advantage = Choice<AdvantageEntry>;

/// One group: the episodes of one prompt.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// `[G]`: one finite reward per member.
    pub rewards: &'a [f32],
    /// `[G]`: policy tokens of each member.
    pub tokens: &'a [usize],
}

/// The outcome of comparing the rewards of a group; `T` holds the advantages.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupOutcome<T = Vec<f32>> {
    /// One advantage per member; from `Recipe::advantages` one list per member.
    Learn(T),
    /// Every member earned the same: no direction.
    ZeroVariance,
    /// Fewer than two members finished, and the advantage compares members.
    TooSmall,
    /// The rewards differ, but this advantage is undefined or 0 for each of them: the two best tie (pass@k), the mean is not
    /// positive (`MaxRL`).
    NoDirection,
}

impl GroupOutcome {
    /// The outcome of a group in which nothing can be compared: fewer than two members, or equal rewards.
    pub fn without_lesson(rewards: &[f32]) -> Option<Self> {
        if rewards.len() < 2 {
            return Some(Self::TooSmall);
        }
        rewards
            .iter()
            .all(|reward| reward.to_bits() == rewards[0].to_bits())
            .then_some(Self::ZeroVariance)
    }
}

impl<T> GroupOutcome<T> {
    /// The same outcome with `learn` of the advantages.
    pub(super) fn map<U>(self, learn: impl FnOnce(T) -> U) -> GroupOutcome<U> {
        match self {
            Self::Learn(advantages) => GroupOutcome::Learn(learn(advantages)),
            Self::ZeroVariance => GroupOutcome::ZeroVariance,
            Self::TooSmall => GroupOutcome::TooSmall,
            Self::NoDirection => GroupOutcome::NoDirection,
        }
    }
}

impl Advantage {
    /// Returns whether it compares members by the mean of their group alone.
    pub(super) fn by_mean(&self) -> bool {
        self.entry.by_mean
    }

    /// One outcome per group, in order.
    ///
    /// # Panics
    /// When a group's rewards and tokens differ in number.
    pub(super) fn of_batch(&self, groups: &[Group]) -> Vec<GroupOutcome> {
        for group in groups {
            assert_eq!(
                group.rewards.len(),
                group.tokens.len(),
                "rewards and tokens of one group"
            );
        }
        (self.entry.of_batch)(&self.settings, groups)
    }

    /// The outcome of a batch of one group.
    ///
    /// # Panics
    /// When rewards and tokens differ in number.
    pub(super) fn of_group(&self, group: &Group) -> GroupOutcome {
        self.of_batch(std::slice::from_ref(group)).remove(0)
    }
}

/// Factors on advantages by their sign: positive and negative sample reweighting (Zhu et al. 2025, arXiv 2506.01347, whose
/// W-REINFORCE is 0.1 and 1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignWeights {
    /// Factor on advantages above 0.
    pub positive: f64,
    /// Factor on advantages below 0.
    pub negative: f64,
}

impl Default for SignWeights {
    fn default() -> Self {
        Self {
            positive: 1.0,
            negative: 1.0,
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
}

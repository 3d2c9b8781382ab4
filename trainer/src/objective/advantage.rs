//! Advantages of the members of the groups of one batch.

use serde::{Deserialize, Serialize};

use super::credit::Moments;

/// Below this population standard deviation the code-search rule falls back to r - 0.5.
const CODE_SEARCH_FLAT: f64 = 0.01;
/// What the code-search rule adds to the population standard deviation.
const CODE_SEARCH_EPSILON: f64 = 1e-8;
/// What TRL adds to the standard deviation of the batch (`scale_rewards="batch"`).
const BATCH_EPSILON: f64 = 1e-4;
/// What verl adds to the standard deviation of a pass@k group.
const PASS_K_EPSILON: f64 = 1e-6;

/// How rewards become advantages: `r` a reward, `mu`, `s_u` and `s_p` the mean, unbiased and population standard deviation
/// of its group, `G` the group's size.
///
/// Rewards and advantages are in units of reward, divided by those of a standard deviation or mean where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Advantage {
    /// (r - mu) / (`s_u` + `epsilon`): Shao et al. 2024 (`DeepSeekMath`); epsilon 1e-6 in Search-R1, verl, SkyRL and slime,
    /// 1e-4 in TRL.
    Grpo {
        /// Added to the standard deviation, in units of reward.
        epsilon: f64,
    },
    /// (r - mu) / (`s_p` + `epsilon`): torchtitan, epsilon 1e-6.
    GrpoPopulation {
        /// Added to the standard deviation, in units of reward.
        epsilon: f64,
    },
    /// r - mu: Dr. GRPO (Liu et al. 2025), prime-rl, verl with `norm_adv_by_std_in_grpo=False`.
    DrGrpo,
    /// (r - mu) / (unbiased standard deviation of every reward of the batch + 1e-4): Lite PPO (arXiv 2508.08221), TRL's
    /// `scale_rewards="batch"`.
    BatchStd,
    /// (r - mu) G / (G - 1), the reward less the mean of the others: RLOO (Ahmadian et al. 2024).
    Rloo,
    /// (r - mu) / mu: `MaxRL` as in prime-rl; rewards without a positive mean give no direction.
    MaxRl,
    /// The best member alone: (its reward - the second best), over (`s_u` + 1e-6) if `by_std`; others 0. Pass@k training
    /// (arXiv 2503.19595, verl's `grpo_passk`); where the two best tie there is no direction.
    PassK {
        /// Divides by the group's standard deviation, verl's default.
        by_std: bool,
    },
    /// r - sum(tokens r) / sum(tokens): OPO (arXiv 2505.23585), whose baseline weighs each member by its policy tokens.
    Opo,
    /// (r - mu) B / (rewards of the batch that are not 0), B the batch's members: GPG (arXiv 2504.02546, verl).
    Gpg,
    /// r - mu, then whitened over the policy tokens of the batch: REINFORCE++-baseline (arXiv 2501.03262, verl, slime).
    RfPpBaseline,
    /// r whitened over the policy tokens of the batch: REINFORCE++ (arXiv 2501.03262) with gamma 1 and one reward per
    /// episode, whose reward-to-go is r at every token. Needs no groups. Other gammas and rewards per turn:
    /// [`super::Credit::RewardToGo`].
    ReinforcePp,
    /// (r - mu) / (`s_p` + 1e-8), but r - 0.5 where `s_p` < 0.01: the code-search project. A group that is all wrong at
    /// reward -1 gets -1.5, one that is all right at 1 gets 0.5; for comparisons only.
    CodeSearch,
}

/// One group: the episodes of one prompt.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// `[G]`: one finite reward per member.
    pub rewards: &'a [f32],
    /// `[G]`: policy tokens of each member.
    pub tokens: &'a [usize],
}

/// What a group of rewards has to teach; `T` holds the advantages.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupOutcome<T = Vec<f32>> {
    /// One advantage per member; from [`super::Recipe::advantages`] one list per member.
    Learn(T),
    /// Every member earned the same: no direction.
    ZeroVariance,
    /// Fewer than two members finished, and the advantage compares members.
    TooSmall,
    /// The rewards differ, but this advantage is undefined or 0 for each of them: the two best tie (pass@k), the mean is not
    /// positive (`MaxRL`).
    NoDirection,
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
    /// One outcome per group, in order. Groups that teach nothing still count in the statistics of the batch (its standard
    /// deviation, its whitening), as in the systems named; a group of one counts where its reward needs no baseline.
    ///
    /// # Panics
    /// When a group's rewards and tokens differ in number.
    pub fn of_batch(self, groups: &[Group]) -> Vec<GroupOutcome> {
        for group in groups {
            assert_eq!(group.rewards.len(), group.tokens.len(), "rewards and tokens of one group");
        }
        match self {
            Self::RfPpBaseline | Self::ReinforcePp => self.whitened(groups),
            _ => {
                let batch = Batch::of(groups);
                groups.iter().map(|group| self.of_member(group, &batch)).collect()
            }
        }
    }

    /// The outcome of a batch of one group.
    ///
    /// # Panics
    /// When rewards and tokens differ in number.
    pub fn of_group(self, group: &Group) -> GroupOutcome {
        self.of_batch(std::slice::from_ref(group)).remove(0)
    }

    /// One group of a batch without whitening.
    fn of_member(self, group: &Group, batch: &Batch) -> GroupOutcome {
        let rewards: Vec<f64> = group.rewards.iter().map(|&reward| f64::from(reward)).collect();
        let moments = Moments::of(&rewards);
        if self == Self::CodeSearch && !rewards.is_empty() {
            return GroupOutcome::Learn(code_search(&rewards, &moments));
        }
        if let Some(outcome) = no_lesson(group.rewards) {
            return outcome;
        }
        let (count, mean) = (rewards.len() as f64, moments.mean);
        let scaled = |scale: f64| rewards.iter().map(|reward| ((reward - mean) * scale) as f32).collect();
        GroupOutcome::Learn(match self {
            Self::Grpo { epsilon } => scaled(1.0 / (moments.unbiased_std() + epsilon)),
            Self::GrpoPopulation { epsilon } => scaled(1.0 / (moments.population_std() + epsilon)),
            Self::BatchStd => scaled(1.0 / (batch.std + BATCH_EPSILON)),
            Self::Rloo => scaled(count / (count - 1.0)),
            Self::MaxRl if mean > 0.0 => scaled(1.0 / mean),
            Self::MaxRl => return GroupOutcome::NoDirection,
            Self::PassK { by_std } => match pass_k(&rewards, by_std.then(|| moments.unbiased_std())) {
                Some(advantages) => advantages,
                None => return GroupOutcome::NoDirection,
            },
            Self::Opo => opo(&rewards, group.tokens, mean),
            Self::Gpg => scaled(batch.members as f64 / batch.nonzero as f64),
            Self::DrGrpo | Self::RfPpBaseline | Self::ReinforcePp | Self::CodeSearch => scaled(1.0),
        })
    }

    /// [`Self::RfPpBaseline`] and [`Self::ReinforcePp`].
    fn whitened(self, groups: &[Group]) -> Vec<GroupOutcome> {
        let baseline = self == Self::RfPpBaseline;
        let values: Vec<Vec<f64>> = groups
            .iter()
            .map(|group| {
                let rewards: Vec<f64> = group.rewards.iter().map(|&reward| f64::from(reward)).collect();
                let mean = if baseline { Moments::of(&rewards).mean } else { 0.0 };
                rewards.iter().map(|reward| reward - mean).collect()
            })
            .collect();
        let counted = groups.iter().zip(&values).filter(|(group, _)| !baseline || group.rewards.len() > 1);
        let moments = Moments::weighted(
            counted.flat_map(|(group, values)| values.iter().copied().zip(group.tokens.iter().copied())),
        );
        let outcome = |(group, values): (&Group, &Vec<f64>)| {
            if baseline && let Some(outcome) = no_lesson(group.rewards) {
                return outcome;
            }
            match moments.whitening_scale() {
                _ if values.is_empty() => GroupOutcome::TooSmall,
                None => GroupOutcome::ZeroVariance,
                Some(scale) => {
                    GroupOutcome::Learn(values.iter().map(|value| ((value - moments.mean) * scale) as f32).collect())
                }
            }
        };
        groups.iter().zip(&values).map(outcome).collect()
    }
}

/// What every comparison of members refuses.
fn no_lesson(rewards: &[f32]) -> Option<GroupOutcome> {
    if rewards.len() < 2 {
        return Some(GroupOutcome::TooSmall);
    }
    rewards.iter().all(|reward| reward.to_bits() == rewards[0].to_bits()).then_some(GroupOutcome::ZeroVariance)
}

/// The statistics over all groups that some advantages use.
struct Batch {
    members: usize,
    nonzero: usize,
    std: f64,
}

impl Batch {
    fn of(groups: &[Group]) -> Self {
        let rewards: Vec<f64> =
            groups.iter().flat_map(|group| group.rewards).map(|&reward| f64::from(reward)).collect();
        Self {
            members: rewards.len(),
            nonzero: rewards.iter().filter(|reward| reward.abs() > 0.0).count(),
            std: Moments::of(&rewards).unbiased_std(),
        }
    }
}

fn code_search(rewards: &[f64], moments: &Moments) -> Vec<f32> {
    let std = moments.population_std();
    let (mean, scale) =
        if std < CODE_SEARCH_FLAT { (0.5, 1.0) } else { (moments.mean, 1.0 / (std + CODE_SEARCH_EPSILON)) };
    rewards.iter().map(|reward| ((reward - mean) * scale) as f32).collect()
}

/// `None` where the two best tie.
fn pass_k(rewards: &[f64], std: Option<f64>) -> Option<Vec<f32>> {
    let best = (0..rewards.len()).max_by(|&left, &right| rewards[left].total_cmp(&rewards[right]))?;
    let second = (0..rewards.len()).filter(|&member| member != best).map(|member| rewards[member]);
    let lead = rewards[best] - second.fold(f64::NEG_INFINITY, f64::max);
    let mut advantages = vec![0.0; rewards.len()];
    advantages[best] = (lead / std.map_or(1.0, |std| std + PASS_K_EPSILON)) as f32;
    (lead > 0.0).then_some(advantages)
}

/// Without any policy token the baseline is the plain mean.
fn opo(rewards: &[f64], tokens: &[usize], mean: f64) -> Vec<f32> {
    let total: usize = tokens.iter().sum();
    let weighed: f64 = rewards.iter().zip(tokens).map(|(reward, &tokens)| reward * tokens as f64).sum();
    let baseline = if total > 0 { weighed / total as f64 } else { mean };
    rewards.iter().map(|reward| (reward - baseline) as f32).collect()
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
        Self { positive: 1.0, negative: 1.0 }
    }
}

impl SignWeights {
    /// Multiplies each advantage by the factor of its sign.
    pub fn apply(&self, advantages: &mut [f32]) {
        for advantage in advantages {
            let factor = if *advantage < 0.0 { self.negative } else { self.positive };
            *advantage = (f64::from(*advantage) * factor) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_IN_FIVE: [f32; 5] = [1.0, 0.0, 0.0, 0.0, 0.0];

    fn outcome(rewards: &[f32], kind: Advantage) -> GroupOutcome {
        kind.of_group(&Group { rewards, tokens: &vec![1; rewards.len()] })
    }

    fn close(rewards: &[f32], kind: Advantage, expected: &[f32]) {
        let GroupOutcome::Learn(found) = outcome(rewards, kind) else { panic!("{kind:?} teaches nothing") };
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 2e-6, "{kind:?}: {found} is not {expected}");
        }
    }

    #[test]
    fn one_success_in_five() {
        let rest = |winner: f32, others: f32| [winner, others, others, others, others];
        for (kind, expected) in [
            (Advantage::Grpo { epsilon: 1e-6 }, rest(1.788_85, -0.447_213)),
            (Advantage::Grpo { epsilon: 1e-4 }, rest(1.788_454, -0.447_114)),
            (Advantage::Grpo { epsilon: 1e-9 }, rest(1.788_854, -0.447_214)),
            (Advantage::GrpoPopulation { epsilon: 1e-6 }, rest(1.999_995, -0.499_999)),
            (Advantage::CodeSearch, rest(2.0, -0.5)),
            (Advantage::DrGrpo, rest(0.8, -0.2)),
            (Advantage::Rloo, rest(1.0, -0.25)),
            (Advantage::MaxRl, rest(4.0, -1.0)),
            (Advantage::PassK { by_std: true }, rest(2.236_063, 0.0)),
            (Advantage::PassK { by_std: false }, rest(1.0, 0.0)),
        ] {
            close(&ONE_IN_FIVE, kind, &expected);
        }
    }

    #[test]
    fn mixed_rewards() {
        let mixed = [1.0, 1.0, 0.0, 0.2, 0.1, 0.8, 0.0, 0.0];
        let expected = [1.328_138, 1.328_138, -0.840_251, -0.406_573, -0.623_412, 0.894_46, -0.840_251, -0.840_251];
        close(&mixed, Advantage::Grpo { epsilon: 1e-6 }, &expected);
    }

    #[test]
    fn groups_without_a_lesson_are_named() {
        let comparing = [
            Advantage::Grpo { epsilon: 1e-6 },
            Advantage::DrGrpo,
            Advantage::BatchStd,
            Advantage::Rloo,
            Advantage::MaxRl,
            Advantage::PassK { by_std: true },
            Advantage::Opo,
            Advantage::Gpg,
            Advantage::RfPpBaseline,
        ];
        for kind in comparing {
            assert_eq!(outcome(&[0.3, 0.3, 0.3], kind), GroupOutcome::ZeroVariance, "{kind:?}");
            assert_eq!(outcome(&[1.0], kind), GroupOutcome::TooSmall, "{kind:?}");
            assert_eq!(outcome(&[], kind), GroupOutcome::TooSmall, "{kind:?}");
        }
        assert_eq!(outcome(&[1.0, 1.0], Advantage::ReinforcePp), GroupOutcome::ZeroVariance);
        assert_eq!(outcome(&[1.0, 1.0, 0.0], Advantage::PassK { by_std: true }), GroupOutcome::NoDirection);
        assert_eq!(outcome(&[-1.0, 0.0], Advantage::MaxRl), GroupOutcome::NoDirection);
    }

    #[test]
    fn the_code_search_rule_falls_back() {
        close(&[1.0, 1.0], Advantage::CodeSearch, &[0.5, 0.5]);
        close(&[0.0, 0.0], Advantage::CodeSearch, &[-0.5, -0.5]);
        close(&[-1.0, -1.0], Advantage::CodeSearch, &[-1.5, -1.5]);
        close(&[1.0], Advantage::CodeSearch, &[0.5]);
    }

    #[test]
    fn signs_are_weighed_apart() {
        let mut advantages = [2.0, -2.0, 0.0];
        SignWeights { positive: 0.1, negative: 1.0 }.apply(&mut advantages);
        assert_eq!(advantages.map(f32::to_bits), [0.2_f32, -2.0, 0.0].map(f32::to_bits));
    }
}

//! The built-in advantages. A new one is an entry here, and its function.

use forage_contracts::objective::{AdvantageEntry, Group, GroupOutcome, Setting};

use super::credit::Moments;
use super::lipo::raises;

/// Below this population standard deviation the code-search rule falls back to r - 0.5.
const CODE_SEARCH_FLAT: f64 = 0.01;
/// A flat group of a mean below this is skipped by the code-search rule.
const CODE_SEARCH_FAILED: f64 = 0.1;
/// The number that the code-search rule adds to the population standard deviation.
const CODE_SEARCH_EPSILON: f64 = 1e-8;
/// The number that TRL adds to the standard deviation of the batch (`scale_rewards="batch"`).
const BATCH_EPSILON: f64 = 1e-4;
/// The number that verl adds to the standard deviation of a pass@k group.
const PASS_K_EPSILON: f64 = 1e-6;

/// The number added to a standard deviation, in units of reward.
const EPSILON: Setting = Setting::number("epsilon", "0 or more", |_, epsilon| epsilon >= 0.0);

/// Every built-in advantage.
pub(super) const ADVANTAGES: &[AdvantageEntry] = &[
    AdvantageEntry {
        settings: &[EPSILON],
        by_mean: true,
        ..AdvantageEntry::new(
            "grpo",
            "(r - mu) / (s_u + epsilon): Shao et al. 2024 (DeepSeekMath); epsilon 1e-6 in Search-R1, verl, SkyRL and slime, \
             1e-4 in TRL",
            |s, groups| {
                let epsilon = s.number("epsilon");
                each(groups, |group| {
                    group.scaled(1.0 / (group.moments.unbiased_std() + epsilon))
                })
            },
        )
    },
    AdvantageEntry {
        settings: &[EPSILON],
        by_mean: true,
        ..AdvantageEntry::new(
            "grpo_population",
            "(r - mu) / (s_p + epsilon): torchtitan, epsilon 1e-6",
            |s, groups| {
                let epsilon = s.number("epsilon");
                each(groups, |group| {
                    group.scaled(1.0 / (group.moments.population_std() + epsilon))
                })
            },
        )
    },
    AdvantageEntry {
        by_mean: true,
        ..AdvantageEntry::new(
            "dr_grpo",
            "r - mu: Dr. GRPO (Liu et al. 2025), prime-rl, verl with norm_adv_by_std_in_grpo=False",
            |_, groups| each(groups, |group| group.scaled(1.0)),
        )
    },
    AdvantageEntry::new(
        "batch_std",
        "(r - mu) / (unbiased standard deviation of every reward of the batch + 1e-4): Lite PPO (arXiv 2508.08221), TRL's \
         scale_rewards=\"batch\"",
        |_, groups| {
            let scale = 1.0 / (Moments::of(&all(groups)).unbiased_std() + BATCH_EPSILON);
            each(groups, |group| group.scaled(scale))
        },
    ),
    AdvantageEntry::new(
        "rloo",
        "(r - mu) G / (G - 1), the reward less the mean of the others: RLOO (Ahmadian et al. 2024)",
        |_, groups| {
            each(groups, |group| {
                let count = group.rewards.len() as f64;
                group.scaled(count / (count - 1.0))
            })
        },
    ),
    AdvantageEntry::new(
        "max_rl",
        "(r - mu) / mu: MaxRL as in prime-rl; rewards without a positive mean give no direction",
        |_, groups| {
            each(groups, |group| {
                let mean = group.moments.mean;
                (mean > 0.0).then(|| group.scaled(1.0 / mean))
            })
        },
    ),
    AdvantageEntry {
        settings: &[Setting::flag("by_std")],
        ..AdvantageEntry::new(
            "pass_k",
            "Pass@k training (arXiv 2503.19595, verl's grpo_passk): the best member gets its lead over the second best, divided by \
             s_u + 1e-6 if by_std, verl's default; the others get 0, and so does the best where the two tie",
            |s, groups| {
                let by_std = s.flag("by_std");
                each(groups, |group| pass_k(group, by_std))
            },
        )
    },
    AdvantageEntry {
        settings: &[Setting::number("beta", "above 0", |_, beta| beta > 0.0)],
        reads_reference: true,
        ..AdvantageEntry::new(
            "lipo",
            "G beta (sum over j with r_j < r of D sigmoid(s_j - s) - sum over j with r_j > r of D sigmoid(s - s_j)), s = beta \
             log(policy / reference) of all policy tokens, D = abs(2^r - 2^r_j) abs(1 / ln(1 + place) - 1 / ln(1 + place_j)), places by s: \
             LiPO-lambda (arXiv 2402.01878), beta .05. The derivative of its loss where the batch begins, for loss reinforce, the \
             mean of sequence sums and one update a batch",
            |s, groups| {
                let beta = s.number("beta");
                each(groups, |group| raises(&group.rewards, group.shifts, beta))
            },
        )
    },
    AdvantageEntry::new(
        "opo",
        "r - sum(tokens r) / sum(tokens): OPO (arXiv 2505.23585), whose baseline weighs each member by its policy tokens",
        |_, groups| each(groups, opo),
    ),
    AdvantageEntry::new(
        "gpg",
        "(r - mu) B / (rewards of the batch that are not 0), B the batch's members: GPG (arXiv 2504.02546, verl)",
        |_, groups| {
            let rewards = all(groups);
            let nonzero = rewards.iter().filter(|reward| reward.abs() > 0.0).count();
            let scale = rewards.len() as f64 / nonzero as f64;
            each(groups, |group| group.scaled(scale))
        },
    ),
    AdvantageEntry::new(
        "rf_pp_baseline",
        "r - mu, then whitened over the policy tokens of the batch: REINFORCE++-baseline (arXiv 2501.03262, verl, slime)",
        |_, groups| whitened(groups, true),
    ),
    AdvantageEntry::new(
        "reinforce_pp",
        "r whitened over the policy tokens of the batch: REINFORCE++ (arXiv 2501.03262) with gamma 1 and one reward per episode, \
         whose reward-to-go is r at every token; needs no groups. Other gammas and rewards per turn: credit reward_to_go",
        |_, groups| whitened(groups, false),
    ),
    AdvantageEntry::new(
        "code_search",
        "(r - mu) / (s_p + 1e-8); where s_p < 0.01, r - 0.5 and nothing where mu < 0.1: SLM-RL-Search, as its report has \
         it. A group that is all right at 1 gets 0.5, one that is all wrong is skipped; for comparisons only",
        |_, groups| groups.iter().map(code_search).collect(),
    ),
];

fn wide(rewards: &[f32]) -> Vec<f64> {
    rewards.iter().map(|&reward| f64::from(reward)).collect()
}

/// Every reward of a batch.
fn all(groups: &[Group]) -> Vec<f64> {
    groups
        .iter()
        .flat_map(|group| wide(group.rewards))
        .collect()
}

/// A group whose rewards differ.
struct Compared<'a> {
    rewards: Vec<f64>,
    tokens: &'a [usize],
    shifts: &'a [f32],
    moments: Moments,
}

impl Compared<'_> {
    /// (r - mu) times `scale`.
    fn scaled(&self, scale: f64) -> Vec<f32> {
        self.above(self.moments.mean, scale)
    }

    fn above(&self, baseline: f64, scale: f64) -> Vec<f32> {
        let rewards = self.rewards.iter();
        rewards
            .map(|reward| ((reward - baseline) * scale) as f32)
            .collect()
    }
}

/// Advantages of each group by itself; `None` where its rewards give no direction.
fn each<A: Into<Option<Vec<f32>>>>(
    groups: &[Group],
    advantages: impl Fn(&Compared) -> A,
) -> Vec<GroupOutcome> {
    let outcome = |group: &Group| {
        GroupOutcome::without_lesson(group.rewards).unwrap_or_else(|| {
            let rewards = wide(group.rewards);
            let moments = Moments::of(&rewards);
            let found = advantages(&Compared {
                rewards,
                tokens: group.tokens,
                shifts: group.shifts,
                moments,
            });
            found
                .into()
                .map_or(GroupOutcome::NoDirection, GroupOutcome::Learn)
        })
    };
    groups.iter().map(outcome).collect()
}

/// Rewards, less the mean of their group where there is a `baseline`, whitened over the policy tokens of the batch.
fn whitened(groups: &[Group], baseline: bool) -> Vec<GroupOutcome> {
    let centred = |group: &Group| {
        let mut values = wide(group.rewards);
        if baseline {
            let mean = Moments::of(&values).mean;
            for value in &mut values {
                *value -= mean;
            }
        }
        values
    };
    let values: Vec<Vec<f64>> = groups.iter().map(centred).collect();
    let counted = groups
        .iter()
        .zip(&values)
        .filter(|(group, _)| !baseline || group.rewards.len() > 1);
    let moments = Moments::weighted(
        counted
            .flat_map(|(group, values)| values.iter().copied().zip(group.tokens.iter().copied())),
    );
    let outcome = |(group, values): (&Group, &Vec<f64>)| {
        if baseline && let Some(outcome) = GroupOutcome::without_lesson(group.rewards) {
            return outcome;
        }
        match moments.whitening_scale() {
            _ if values.is_empty() => GroupOutcome::TooSmall,
            None => GroupOutcome::ZeroVariance,
            Some(scale) => {
                let whiten = |value: &f64| ((value - moments.mean) * scale) as f32;
                GroupOutcome::Learn(values.iter().map(whiten).collect())
            }
        }
    };
    groups.iter().zip(&values).map(outcome).collect()
}

fn code_search(group: &Group) -> GroupOutcome {
    if group.rewards.is_empty() {
        return GroupOutcome::TooSmall;
    }
    let rewards = wide(group.rewards);
    let moments = Moments::of(&rewards);
    let std = moments.population_std();
    let flat = std < CODE_SEARCH_FLAT;
    if flat && moments.mean < CODE_SEARCH_FAILED {
        return GroupOutcome::ZeroVariance;
    }
    let (baseline, scale) = if flat {
        (0.5, 1.0)
    } else {
        (moments.mean, 1.0 / (std + CODE_SEARCH_EPSILON))
    };
    let group = Compared {
        rewards,
        tokens: group.tokens,
        shifts: group.shifts,
        moments,
    };
    GroupOutcome::Learn(group.above(baseline, scale))
}

/// `None` where the two best tie.
fn pass_k(group: &Compared, by_std: bool) -> Option<Vec<f32>> {
    let rewards = &group.rewards;
    let best =
        (0..rewards.len()).max_by(|&left, &right| rewards[left].total_cmp(&rewards[right]))?;
    let others = (0..rewards.len()).filter(|&member| member != best);
    let second = others.map(|member| rewards[member]);
    let lead = rewards[best] - second.fold(f64::NEG_INFINITY, f64::max);
    let scale = if by_std {
        group.moments.unbiased_std() + PASS_K_EPSILON
    } else {
        1.0
    };
    let mut advantages = vec![0.0; rewards.len()];
    advantages[best] = (lead / scale) as f32;
    (lead > 0.0).then_some(advantages)
}

/// The reward less the mean weighted by policy tokens; without any policy token, less the plain mean.
fn opo(group: &Compared) -> Vec<f32> {
    let total: usize = group.tokens.iter().sum();
    let pairs = group.rewards.iter().zip(group.tokens);
    let weighed: f64 = pairs.map(|(reward, &tokens)| reward * tokens as f64).sum();
    let baseline = if total > 0 {
        weighed / total as f64
    } else {
        group.moments.mean
    };
    group.above(baseline, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::{Advantage, SignWeights, TokenInputs};

    const ONE_IN_FIVE: [f32; 5] = [1.0, 0.0, 0.0, 0.0, 0.0];

    fn outcome(rewards: &[f32], kind: Advantage) -> GroupOutcome {
        kind.of_group(&Group {
            rewards,
            tokens: &vec![1; rewards.len()],
            shifts: &vec![0.0; rewards.len()],
        })
    }

    fn close(rewards: &[f32], kind: Advantage, expected: &[f32]) {
        let GroupOutcome::Learn(found) = outcome(rewards, kind) else {
            panic!("{kind:?} teaches nothing")
        };
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() < 2e-6,
                "{kind:?}: {found} is not {expected}"
            );
        }
    }

    #[test]
    fn one_success_in_five() {
        let rest = |winner: f32, others: f32| [winner, others, others, others, others];
        for (kind, expected) in [
            (Advantage::of("grpo", &[1e-6]), rest(1.788_85, -0.447_213)),
            (Advantage::of("grpo", &[1e-4]), rest(1.788_454, -0.447_114)),
            (Advantage::of("grpo", &[1e-9]), rest(1.788_854, -0.447_214)),
            (
                Advantage::of("grpo_population", &[1e-6]),
                rest(1.999_995, -0.499_999),
            ),
            (Advantage::of("code_search", &[]), rest(2.0, -0.5)),
            (Advantage::of("dr_grpo", &[]), rest(0.8, -0.2)),
            (Advantage::of("rloo", &[]), rest(1.0, -0.25)),
            (Advantage::of("max_rl", &[]), rest(4.0, -1.0)),
            (Advantage::of("pass_k", &[1.0]), rest(2.236_063, 0.0)),
            (Advantage::of("pass_k", &[0.0]), rest(1.0, 0.0)),
        ] {
            close(&ONE_IN_FIVE, kind, &expected);
        }
    }

    #[test]
    fn mixed_rewards() {
        let mixed = [1.0, 1.0, 0.0, 0.2, 0.1, 0.8, 0.0, 0.0];
        let expected = [
            1.328_138, 1.328_138, -0.840_251, -0.406_573, -0.623_412, 0.894_46, -0.840_251,
            -0.840_251,
        ];
        close(&mixed, Advantage::of("grpo", &[1e-6]), &expected);
    }

    #[test]
    fn groups_without_a_lesson_are_named() {
        let comparing = [
            Advantage::of("grpo", &[1e-6]),
            Advantage::of("dr_grpo", &[]),
            Advantage::of("batch_std", &[]),
            Advantage::of("rloo", &[]),
            Advantage::of("max_rl", &[]),
            Advantage::of("pass_k", &[1.0]),
            Advantage::of("lipo", &[0.05]),
            Advantage::of("opo", &[]),
            Advantage::of("gpg", &[]),
            Advantage::of("rf_pp_baseline", &[]),
        ];
        for kind in comparing {
            assert_eq!(
                outcome(&[0.3, 0.3, 0.3], kind),
                GroupOutcome::ZeroVariance,
                "{kind:?}"
            );
            assert_eq!(outcome(&[1.0], kind), GroupOutcome::TooSmall, "{kind:?}");
            assert_eq!(outcome(&[], kind), GroupOutcome::TooSmall, "{kind:?}");
        }
        assert_eq!(
            outcome(&[1.0, 1.0], Advantage::of("reinforce_pp", &[])),
            GroupOutcome::ZeroVariance
        );
        assert_eq!(
            outcome(&[1.0, 1.0, 0.0], Advantage::of("pass_k", &[1.0])),
            GroupOutcome::NoDirection
        );
        assert_eq!(
            outcome(&[-1.0, 0.0], Advantage::of("max_rl", &[])),
            GroupOutcome::NoDirection
        );
    }

    #[test]
    fn the_code_search_rule_falls_back() {
        let rule = || Advantage::of("code_search", &[]);
        close(&[1.0, 1.0], rule(), &[0.5, 0.5]);
        close(&[0.25, 0.25], rule(), &[-0.25, -0.25]);
        close(&[1.0], rule(), &[0.5]);
        // All wrong: nothing to learn, and counted as a group without spread.
        for rewards in [&[0.0, 0.0][..], &[-1.0, -1.0], &[0.05, 0.052], &[0.0]] {
            assert_eq!(outcome(rewards, rule()), GroupOutcome::ZeroVariance);
        }
    }

    #[test]
    fn signs_are_weighed_apart() {
        let mut advantages = [2.0, -2.0, 0.0];
        SignWeights {
            positive: 0.1,
            ..SignWeights::default()
        }
        .apply(&mut advantages);
        assert_eq!(
            advantages.map(f32::to_bits),
            [0.2_f32, -2.0, 0.0].map(f32::to_bits)
        );
    }

    #[test]
    fn errors_that_the_policy_grew_surer_of_weigh_more() {
        let signs = SignWeights {
            overconfident: 2.0,
            ..SignWeights::default()
        };
        let factor = |logprob: f32, advantage: f32| {
            let inputs = TokenInputs {
                logprobs: &[logprob, -1.0],
                proximal: &[-1.0; 2],
                sampler: &[-1.0; 2],
                advantages: &[advantage; 2],
                entropies: &[0.0; 2],
                sentences: &[2],
            };
            signs.against(&inputs, &[-2.0, -1.0])[0] / advantage
        };
        // 1 + 2 ln(1 + e^c) with c = 0, 1, -3 and, held, 20.
        for (logprob, expected) in [
            (-2.0, 2.386_294),
            (-1.0, 3.626_523),
            (-5.0, 1.097_175),
            (98.0, 41.0),
        ] {
            let found = factor(logprob, -0.5);
            assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
            assert_eq!(factor(logprob, 0.5).to_bits(), 1.0_f32.to_bits());
        }
    }
}

//! Credit assignment: from a batch of groups to one advantage per policy token, by the recipe's [`Credit`].

use std::collections::BTreeMap;

use forage_contracts::objective::{Group, GroupOutcome};

use super::algorithm::Recipe;
use super::bounds::TurnBounds;
use super::credit::{Credit, discounted, gae, reward_to_go, spread_turns, whiten};
use super::potential::Potentials;

/// One episode of a group, as input of credit assignment.
#[derive(Clone, Debug)]
pub(crate) struct Member<'a> {
    /// The score at the end.
    pub(crate) reward: f32,
    /// `[turns]`: the environment's reward for each, not part of `reward`.
    pub(crate) turn_rewards: &'a [f32],
    /// `[turns]`: number of policy tokens of each.
    pub(crate) turns: &'a [usize],
    /// `[turns]`: the tokens read just before each; the prompt before the first.
    pub(crate) states: Vec<&'a [u32]>,
    /// Number that the members of one tree share.
    pub(crate) tree: u64,
    /// `[tokens]`: log-probability of each policy token under the policy less that under the reference, nats; empty unless the recipe
    /// reads it.
    pub(crate) shifts: &'a [f32],
    /// `[tokens]`: the critic's value of each policy token; empty unless the credit reads it.
    pub(crate) values: &'a [f32],
    /// `[turns]`, or fewer: the potential before each turn, as far as it was measured; empty unless the credit reads it.
    pub(crate) potentials: &'a [f32],
}

impl Member<'_> {
    /// `[turns]`: the reward of each turn within `bounds`, with the score added to the last.
    fn earned(&self, bounds: TurnBounds) -> Vec<f32> {
        let mut earned = bounds.of(self.turn_rewards);
        if let Some(last) = earned.last_mut() {
            *last += self.reward;
        }
        earned
    }

    pub(super) fn tokens(&self) -> usize {
        self.turns.iter().sum()
    }

    /// The sum of the shifts.
    fn shift(&self) -> f32 {
        self.shifts
            .iter()
            .map(|&shift| f64::from(shift))
            .sum::<f64>() as f32
    }
}

pub(super) type TokenOutcome = GroupOutcome<Vec<Vec<f32>>>;

impl Recipe {
    /// The reward of an episode: the score, plus the rewards of turns where the credit reads them.
    pub(crate) fn reward_of(&self, member: &Member) -> f32 {
        if self.credit.reads_turns() {
            member.reward + self.turn_bounds.of(member.turn_rewards).iter().sum::<f32>()
        } else {
            member.reward
        }
    }

    /// The rewards that the credit reads: those of turns, where it reads turns, and the episode's.
    pub(crate) fn earned(&self, member: &Member) -> Vec<f32> {
        let mut earned = Vec::new();
        if self.credit.reads_turns() {
            earned = member.earned(self.turn_bounds);
            earned.retain(|reward| reward.abs() > 0.0);
        }
        earned.push(self.reward_of(member));
        earned
    }

    /// One outcome per group, in order; where it is [`GroupOutcome::Learn`], one list per member with an advantage per policy
    /// token, weighed by sign. Groups that teach nothing still count in the statistics of the batch.
    ///
    /// # Panics
    /// When a member's turns, rewards of turns and states differ in number.
    pub(crate) fn advantages(&self, groups: &[Vec<Member>]) -> Vec<TokenOutcome> {
        for member in groups.iter().flatten() {
            assert_eq!(
                member.turn_rewards.len(),
                member.turns.len(),
                "rewards and turns of one episode"
            );
            assert_eq!(
                member.states.len(),
                member.turns.len(),
                "states and turns of one episode"
            );
        }
        match self.credit {
            Credit::Constant | Credit::DiscountedTurns { .. } => {
                let outcomes = groups.iter().zip(self.of_episodes(groups));
                outcomes
                    .map(|(group, outcome)| outcome.map(|found| self.spread(group, found)))
                    .collect()
            }
            Credit::Tree => {
                let outcomes = groups.iter().zip(self.of_episodes(groups));
                outcomes
                    .map(|(group, outcome)| self.of_trees(group, outcome))
                    .collect()
            }
            Credit::ProcessSupervision => groups
                .iter()
                .map(|group| self.of_process(group, 1.0))
                .collect(),
            Credit::InformationGain { gamma } => groups
                .iter()
                .map(|group| self.of_process(group, gamma))
                .collect(),
            Credit::StepPotential {
                saturation,
                penalty,
                weight,
            } => {
                let settings = Potentials {
                    saturation,
                    penalty,
                    weight,
                };
                self.of_potentials(groups, &self.of_episodes(groups), &settings)
            }
            Credit::Gigpo { gamma, weight } => {
                let outcomes = groups.iter().zip(self.of_episodes(groups));
                outcomes
                    .map(|(group, outcome)| self.of_states(group, outcome, gamma, weight))
                    .collect()
            }
            Credit::RewardToGo { gamma } => self.of_tokens(groups, |member| {
                reward_to_go(&self.token_rewards(member), gamma)
            }),
            Credit::Gae { gamma, lambda } => {
                self.of_tokens(groups, |member| self.unwhitened(member, gamma, lambda))
            }
        }
    }

    /// `[tokens]`: the critic's target at each policy token, which is the advantage before whitening plus the value; empty where the
    /// credit reads no values.
    pub(crate) fn returns(&self, member: &Member) -> Vec<f32> {
        let Credit::Gae { gamma, lambda } = self.credit else {
            return Vec::new();
        };
        let advantages = self.unwhitened(member, gamma, lambda);
        let both = advantages.into_iter().zip(member.values);
        both.map(|(advantage, value)| advantage + value).collect()
    }

    /// Sum over the policy tokens of the KL estimates that are part of the reward, nats; 0 where the penalty is part of the loss.
    pub(crate) fn kl_in_reward(&self, member: &Member) -> f64 {
        let penalty = self.reward_penalty();
        penalty.map_or(0.0, |penalty| penalty.estimates(member.shifts).sum())
    }

    fn unwhitened(&self, member: &Member, gamma: f64, lambda: f64) -> Vec<f32> {
        gae(&self.token_rewards(member), member.values, gamma, lambda)
    }

    /// `[tokens]`: reward of each policy token. A turn's reward belongs to its last token (to the token before, where the turn has none);
    /// a penalty that is part of the reward is subtracted.
    fn token_rewards(&self, member: &Member) -> Vec<f32> {
        let mut rewards: Vec<f32> = Vec::with_capacity(member.tokens());
        for (earned, &tokens) in member
            .earned(self.turn_bounds)
            .into_iter()
            .zip(member.turns)
        {
            rewards.resize(rewards.len() + tokens, 0.0);
            if let Some(last) = rewards.last_mut() {
                *last += earned;
            }
        }
        if let Some(penalty) = self.reward_penalty() {
            for (reward, estimate) in rewards.iter_mut().zip(penalty.estimates(member.shifts)) {
                *reward -= (penalty.coefficient * estimate) as f32;
            }
        }
        rewards
    }

    /// One advantage per episode.
    fn of_episodes(&self, groups: &[Vec<Member>]) -> Vec<GroupOutcome> {
        let rewards: Vec<Vec<f32>> = groups
            .iter()
            .map(|group| group.iter().map(|member| self.reward_of(member)).collect())
            .collect();
        let tokens: Vec<Vec<usize>> = groups
            .iter()
            .map(|group| group.iter().map(Member::tokens).collect())
            .collect();
        let shifts: Vec<Vec<f32>> = groups
            .iter()
            .map(|group| group.iter().map(Member::shift).collect())
            .collect();
        let views: Vec<Group> = rewards
            .iter()
            .zip(&tokens)
            .zip(&shifts)
            .map(|((rewards, tokens), shifts)| Group {
                rewards,
                tokens,
                shifts,
            })
            .collect();
        self.advantage.of_batch(&views)
    }

    fn spread(&self, group: &[Member], mut advantages: Vec<f32>) -> Vec<Vec<f32>> {
        self.signs.apply(&mut advantages);
        let tokens = |(member, advantage): (&Member, f32)| match self.credit {
            Credit::DiscountedTurns { gamma } => spread_turns(
                &discounted(advantage, gamma, member.turns.len()),
                member.turns,
            ),
            _ => vec![advantage; member.tokens()],
        };
        group.iter().zip(advantages).map(tokens).collect()
    }

    /// [`Credit::ProcessSupervision`] and, with the information gain added to the rewards of turns, [`Credit::InformationGain`].
    fn of_process(&self, group: &[Member], gamma: f64) -> TokenOutcome {
        if group.len() < 2 {
            return GroupOutcome::TooSmall;
        }
        let earned: Vec<f32> = group
            .iter()
            .flat_map(|member| member.earned(self.turn_bounds))
            .collect();
        self.advantage
            .of_group(&Group {
                rewards: &earned,
                tokens: &vec![1; earned.len()],
                shifts: &vec![0.0; earned.len()],
            })
            .map(|normalised| {
                let mut rest = normalised.as_slice();
                let tokens = group.iter().map(|member| {
                    let (own, others) = rest.split_at(member.turns.len());
                    rest = others;
                    self.of_turns(reward_to_go(own, gamma), member)
                });
                tokens.collect()
            })
    }

    /// [`Credit::Gigpo`], from the outcome for whole episodes.
    fn of_states(
        &self,
        group: &[Member],
        episodes: GroupOutcome,
        gamma: f64,
        weight: f64,
    ) -> TokenOutcome {
        let episodes = match episodes {
            GroupOutcome::TooSmall => return GroupOutcome::TooSmall,
            GroupOutcome::Learn(advantages) => advantages,
            // The turns may differ in reward although the episodes do not.
            GroupOutcome::ZeroVariance | GroupOutcome::NoDirection => vec![0.0; group.len()],
        };
        let steps = self.compare_states(group, gamma);
        let joint = |(steps, episode): (Vec<f32>, f32)| -> Vec<f32> {
            steps
                .into_iter()
                .map(|step| (f64::from(episode) + weight * f64::from(step)) as f32)
                .collect()
        };
        let turns: Vec<Vec<f32>> = steps.into_iter().zip(episodes).map(joint).collect();
        if turns
            .iter()
            .flatten()
            .all(|advantage| advantage.abs() == 0.0)
        {
            return GroupOutcome::ZeroVariance;
        }
        GroupOutcome::Learn(
            turns
                .into_iter()
                .zip(group)
                .map(|(turns, member)| self.of_turns(turns, member))
                .collect(),
        )
    }

    /// [`Credit::Tree`], from the outcome for whole episodes.
    fn of_trees(&self, group: &[Member], episodes: GroupOutcome) -> TokenOutcome {
        // Where the group's rewards do not vary, those of its trees do not either.
        episodes.map(|mut advantages| {
            let mut trees: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
            for (index, member) in group.iter().enumerate() {
                trees.entry(member.tree).or_default().push(index);
            }
            for members in trees.values() {
                let rewards: Vec<f32> = members
                    .iter()
                    .map(|&index| self.reward_of(&group[index]))
                    .collect();
                let tokens: Vec<usize> =
                    members.iter().map(|&index| group[index].tokens()).collect();
                let outcome = self.advantage.of_group(&Group {
                    rewards: &rewards,
                    tokens: &tokens,
                    shifts: &vec![0.0; rewards.len()],
                });
                if let GroupOutcome::Learn(within) = outcome {
                    for (&index, within) in members.iter().zip(within) {
                        advantages[index] += within;
                    }
                }
            }
            self.spread(group, advantages)
        })
    }

    /// `[members][turns]`: advantage of each return among those of the group's turns after the same text; 0 where no other turn read it.
    fn compare_states(&self, group: &[Member], gamma: f64) -> Vec<Vec<f32>> {
        let returns: Vec<Vec<f32>> = group
            .iter()
            .map(|member| reward_to_go(&member.earned(self.turn_bounds), gamma))
            .collect();
        let mut same: BTreeMap<&[u32], Vec<(usize, usize)>> = BTreeMap::new();
        for (index, member) in group.iter().enumerate() {
            for (turn, &state) in member.states.iter().enumerate() {
                same.entry(state).or_default().push((index, turn));
            }
        }
        let mut compared: Vec<Vec<f32>> = returns
            .iter()
            .map(|returns| vec![0.0; returns.len()])
            .collect();
        for places in same.values() {
            let values: Vec<f32> = places
                .iter()
                .map(|&(member, turn)| returns[member][turn])
                .collect();
            let outcome = self.advantage.of_group(&Group {
                rewards: &values,
                tokens: &vec![1; values.len()],
                shifts: &vec![0.0; values.len()],
            });
            if let GroupOutcome::Learn(found) = outcome {
                for (&(member, turn), value) in places.iter().zip(found) {
                    compared[member][turn] = value;
                }
            }
        }
        compared
    }

    /// `[tokens]` from `[turns]`.
    fn of_turns(&self, mut turns: Vec<f32>, member: &Member) -> Vec<f32> {
        self.signs.apply(&mut turns);
        spread_turns(&turns, member.turns)
    }

    /// [`Credit::RewardToGo`] and [`Credit::Gae`]: what `found` says of the policy tokens of each member, whitened over the batch.
    fn of_tokens(
        &self,
        groups: &[Vec<Member>],
        found: impl Fn(&Member) -> Vec<f32>,
    ) -> Vec<TokenOutcome> {
        self.whitened(
            groups,
            &groups.iter().flatten().map(found).collect::<Vec<_>>(),
        )
    }

    /// `[members][tokens]` of all groups, whitened over the batch.
    pub(super) fn whitened(&self, groups: &[Vec<Member>], found: &[Vec<f32>]) -> Vec<TokenOutcome> {
        let mut whitened = whiten(found).map(Vec::into_iter);
        let outcome = |group: &Vec<Member>| match &mut whitened {
            _ if group.is_empty() => GroupOutcome::TooSmall,
            None => GroupOutcome::ZeroVariance,
            Some(whitened) => {
                let weighed = whitened.by_ref().take(group.len()).map(|mut tokens| {
                    self.signs.apply(&mut tokens);
                    tokens
                });
                GroupOutcome::Learn(weighed.collect())
            }
        };
        groups.iter().map(outcome).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::{Advantage, Algorithm, KlEstimator, KlPenalty, SignWeights};

    const PROMPT: [u32; 2] = [1, 2];

    fn member<'a>(
        reward: f32,
        turn_rewards: &'a [f32],
        turns: &'a [usize],
        states: &[&'a [u32]],
    ) -> Member<'a> {
        Member {
            reward,
            turn_rewards,
            turns,
            states: states.to_vec(),
            tree: 0,
            shifts: &[],
            values: &[],
            potentials: &[],
        }
    }

    fn algorithm(name: &str) -> Recipe {
        Algorithm::of(name, &[]).recipe(9)
    }

    fn centred(credit: Credit) -> Recipe {
        Recipe {
            advantage: Advantage::of("dr_grpo", &[]),
            credit,
            ..algorithm("grpo")
        }
    }

    #[test]
    fn without_credit_by_turn_rewards_of_turns_are_not_read() {
        let group = vec![
            member(1.0, &[5.0, 0.0], &[1, 2], &[&PROMPT, &[3]]),
            member(0.0, &[0.0, 7.0], &[1, 1], &[&PROMPT, &[3]]),
        ];
        for (credit, expected) in [
            (Credit::Constant, [vec![0.5; 3], vec![-0.5; 2]]),
            (
                Credit::DiscountedTurns { gamma: 0.5 },
                [vec![0.25, 0.5, 0.5], vec![-0.25, -0.5]],
            ),
        ] {
            let found = centred(credit).advantages(std::slice::from_ref(&group));
            assert_eq!(found, [GroupOutcome::Learn(expected.to_vec())]);
        }
    }

    #[test]
    fn process_supervision_sums_what_follows() {
        // Rewards 0.5, 1 and 0, 0: mean 0.375.
        let group = vec![
            member(1.0, &[0.5, 0.0], &[1, 1], &[&PROMPT, &[3]]),
            member(0.0, &[0.0, 0.0], &[2, 1], &[&PROMPT, &[4]]),
        ];
        let found = centred(Credit::ProcessSupervision).advantages(&[group]);
        assert_eq!(
            found,
            [GroupOutcome::Learn(vec![
                vec![0.75, 0.625],
                vec![-0.75, -0.75, -0.375]
            ])]
        );
    }

    #[test]
    fn credit_reads_turns_within_bounds() {
        let states: [&[u32]; 3] = [&PROMPT, &[3], &[4]];
        let group = vec![
            member(0.0, &[0.5, 0.5, 0.0], &[1, 1, 1], &states),
            member(0.0, &[0.5, 0.0], &[1, 1], &states[..2]),
        ];
        let recipe = Recipe {
            turn_bounds: TurnBounds {
                clip: None,
                delta: true,
            },
            ..centred(Credit::ProcessSupervision)
        };
        // Repeating the good turn adds nothing: 0, 0.5, 0 and 0.5, 0, whose mean is 0.2.
        for member in &group {
            assert!((recipe.reward_of(member) - 0.5).abs() < 1e-6);
        }
        let outcomes = recipe.advantages(&[group]);
        let [GroupOutcome::Learn(found)] = &outcomes[..] else {
            panic!("the group teaches");
        };
        for (found, expected) in found.iter().flatten().zip([-0.1, 0.1, -0.2, 0.1, -0.2]) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }

    #[test]
    fn turns_that_read_the_same_are_compared() {
        let states: [&[u32]; 3] = [&PROMPT, &[3], &[4]];
        let group = vec![
            member(1.0, &[0.0, 0.0], &[1, 1], &[states[0], states[1]]),
            member(0.0, &[0.0, 0.0], &[1, 1], &[states[0], states[1]]),
            member(0.5, &[0.0, 0.0], &[1, 1], &[states[0], states[2]]),
        ];
        let recipe = Recipe {
            signs: SignWeights {
                positive: 2.0,
                ..SignWeights::default()
            },
            ..centred(Credit::Gigpo {
                gamma: 0.5,
                weight: 1.0,
            })
        };
        // Returns 0.5, 0, 0.25 at the prompt; 1 and 0 after [3]; nobody else read [4].
        let found = recipe.advantages(&[group]);
        assert_eq!(
            found,
            [GroupOutcome::Learn(vec![
                vec![1.5, 2.0],
                vec![-0.75, -1.0],
                vec![0.0, 0.0]
            ])]
        );
    }

    #[test]
    fn groups_without_a_lesson_are_named() {
        let flat = || vec![member(1.0, &[0.0], &[2], &[&PROMPT]); 2];
        let alone = vec![member(1.0, &[0.5, 0.0], &[2, 1], &[&PROMPT, &[3]])];
        for credit in [
            Credit::ProcessSupervision,
            Credit::Gigpo {
                gamma: 0.9,
                weight: 1.0,
            },
        ] {
            let found = centred(credit).advantages(&[flat(), alone.clone(), Vec::new()]);
            let expected: [TokenOutcome; 3] = [
                GroupOutcome::ZeroVariance,
                GroupOutcome::TooSmall,
                GroupOutcome::TooSmall,
            ];
            assert_eq!(found, expected);
        }
        let recipe = Recipe {
            credit: Credit::RewardToGo { gamma: 1.0 },
            ..algorithm("reinforce_pp")
        };
        let expected: [TokenOutcome; 2] = [GroupOutcome::ZeroVariance, GroupOutcome::TooSmall];
        assert_eq!(recipe.advantages(&[flat(), Vec::new()]), expected);
    }

    #[test]
    fn a_penalty_in_the_reward_is_paid_token_by_token() {
        let penalty = KlPenalty {
            estimator: KlEstimator::K1,
            coefficient: 0.5,
            unbiased: false,
            in_reward: true,
        };
        let recipe = Recipe {
            kl: Some(penalty),
            ..algorithm("ppo")
        };
        assert!(recipe.penalty().is_none() && recipe.needs_reference());
        let read = Member {
            shifts: &[0.5, -1.0, 0.25],
            values: &[0.0, 0.5, 1.0],
            ..member(1.0, &[0.25, 0.0], &[2, 1], &[&PROMPT, &[3]])
        };
        // Rewards -0.25, 0.25 + 0.5 and 1 - 0.125, and what follows.
        let expected = [1.375, 1.625, 0.875];
        assert_eq!(recipe.returns(&read), expected);
        assert!((recipe.kl_in_reward(&read) + 0.25).abs() < 1e-12);
        assert_eq!(algorithm("grpo").returns(&read), [0.0; 0]);
        let free = Recipe { kl: None, ..recipe };
        assert_eq!(free.returns(&read), [1.25, 1.25, 1.0]);
        // One member of a group is enough: the batch is what its tokens are compared with.
        let [GroupOutcome::Learn(found)] = &free.advantages(&[vec![read]])[..] else {
            panic!("nothing to learn");
        };
        // Less their values 1.25, 0.75 and 0: mean 2/3, variance 19/48.
        let scale = (19.0_f32 / 48.0).sqrt();
        for (found, advantage) in found[0].iter().zip([1.25_f32, 0.75, 0.0]) {
            assert!((found - (advantage - 2.0 / 3.0) / scale).abs() < 1e-5);
        }
    }
}

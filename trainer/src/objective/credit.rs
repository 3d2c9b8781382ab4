//! From the reward or advantage of an episode, or rewards per turn or token, to one number per policy token: which rule, and
//! the sums it is made of.

use forage_contracts::SettingError;
use serde::{Deserialize, Serialize};

use super::Advantage;

/// The number that verl and slime add to the variance when they whiten.
const WHITEN_EPSILON: f64 = 1e-8;

/// The rule by which the advantage `A` of an episode, or what its turns earned, reaches its tokens.
///
/// The first three and `step_potential` read the score alone. The others read one reward per turn: what the environment paid for it, and
/// for the last turn the score besides; the reward of an episode is then the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Credit {
    /// A at every policy token.
    #[default]
    Constant,
    /// A `gamma`^(T - 1 - t) at the tokens of turn t of T: SLM-RL-Search, gamma 0.99.
    DiscountedTurns {
        /// Discount per turn, 0 to 1.
        gamma: f64,
    },
    /// A + T at every policy token: T compares an episode with those of its tree, which branch off one another after some turns
    /// (`grpo.trees`), as the recipe's advantage compares members; 0 alone. Tree-GRPO (arXiv 2509.21240).
    Tree,
    /// The sum of the normalised rewards of a token's turn and of the turns after it, where the rewards of all turns of all
    /// members of the group are normalised together, as the recipe's advantage does with those of members: GRPO with process
    /// supervision (Shao et al. 2024, `DeepSeekMath`, section 4.1.3).
    ProcessSupervision,
    /// The discounted sum of the normalised rewards of a token's turn and of those after it, normalised as for process supervision,
    /// where each turn but the last is also paid what it added to the policy's own probability of the gold answer, in whose
    /// place the policy is asked it (`grpo.update.answer_lead`): information gain, IGPO (arXiv 2510.14967, gamma 1). The
    /// probability is the geometric mean over the answer's tokens at temperature 1, before the batch is learned from, and
    /// carries no gradient; of several gold answers it is the first's, which is assumed.
    InformationGain {
        /// Discount per turn, 0 to 1.
        gamma: f64,
    },
    /// A f + `weight` g at the tokens of a turn, whitened over the policy tokens of the batch: SPAE (arXiv 2601.03823, 0.9, 0.5 and 0.5).
    /// The potential of a place is 1.5 a c + 0.5 a - c, where a is the policy's mean probability of the gold answer's tokens, asked there
    /// as for `information_gain`, and c its certainty, the exponential of minus its mean entropy. f is 1 - `penalty` (1 - e^-n), n the
    /// turns before this one after which the potential was above `saturation`; g is e^x less the batch's mean of that, x what the
    /// turn changed of the potential, from 0 for the least of the batch to 1 for the most, and 0 for the last turn, after which nothing
    /// is asked. Assumed: a step is a turn, and entropies are those along the gold answer, where the authors sample five answers.
    StepPotential {
        /// Potential above which the answer counts as known.
        saturation: f64,
        /// Share of A that is taken from turns after it was known at most, 0 to 1.
        penalty: f64,
        /// Of g, 0 or more.
        weight: f64,
    },
    /// A + `weight` S at the tokens of a turn: S compares the turn's discounted return with those of the group's turns that
    /// read the same text just before, as the recipe's advantage compares members; 0 where no other did. `GiGPO` (arXiv
    /// 2505.10978, as in verl-agent), gamma 0.95, weight 1.
    Gigpo {
        /// Discount per turn, 0 to 1.
        gamma: f64,
        /// Of S, 0 or more.
        weight: f64,
    },
    /// The discounted reward-to-go of each token, whitened over the policy tokens of the batch; a turn's reward belongs to its
    /// last token. REINFORCE++ (arXiv 2501.03262, verl); with gamma 1 and no rewards of turns the advantage `reinforce_pp`.
    RewardToGo {
        /// Discount per policy token, 0 to 1.
        gamma: f64,
    },
    /// `A_t = d_t + gamma lambda A_(t+1)` with `d_t = r_t + gamma v_(t+1) - v_t` over the policy tokens of an episode, whitened over
    /// those of the batch: generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438). v is what the critic says
    /// before a token is written (`grpo.update.critic`), 0 after the last; r is a turn's reward at its last token, and 0 elsewhere.
    /// The token after a turn's last is the next turn's first, whatever was read in between, as in verl. PPO's (Schulman et al.
    /// 2017); Search-R1 and verl 1 and 1.
    Gae {
        /// Discount per policy token, 0 to 1.
        gamma: f64,
        /// Weight of what follows against the critic's word on it, 0 to 1.
        lambda: f64,
    },
}

impl Credit {
    /// Returns whether it reads the values of a critic.
    pub(crate) const fn reads_values(self) -> bool {
        matches!(self, Self::Gae { .. })
    }

    /// Returns whether it asks the policy for the gold answer.
    pub(crate) const fn asks_for_gold(self) -> bool {
        matches!(
            self,
            Self::InformationGain { .. } | Self::StepPotential { .. }
        )
    }

    /// Returns whether every token has a reward of its own.
    pub(super) const fn reads_token_rewards(self) -> bool {
        matches!(self, Self::RewardToGo { .. } | Self::Gae { .. })
    }

    /// Returns whether it reads rewards of turns.
    pub const fn reads_turns(self) -> bool {
        !matches!(
            self,
            Self::Constant | Self::DiscountedTurns { .. } | Self::Tree | Self::StepPotential { .. }
        )
    }

    /// Checks the ranges, and that `advantage` fits.
    pub(super) fn check(self, advantage: Advantage) -> Result<(), SettingError> {
        let (name, gamma) = match self {
            Self::Constant => return Ok(()),
            Self::Tree => ("tree", 1.0),
            Self::StepPotential { .. } => ("step_potential", 1.0),
            Self::DiscountedTurns { gamma } => ("discounted_turns", gamma),
            Self::ProcessSupervision => ("process_supervision", 1.0),
            Self::InformationGain { gamma } => ("information_gain", gamma),
            Self::Gigpo { gamma, .. } => ("gigpo", gamma),
            Self::RewardToGo { gamma } => ("reward_to_go", gamma),
            Self::Gae { gamma, .. } => ("gae", gamma),
        };
        let key = format!("credit.{name}");
        if !(0.0..=1.0).contains(&gamma) {
            let fault = format!("is {gamma}: a discount lies in [0, 1]");
            return Err(SettingError::new(key + ".gamma", fault));
        }
        if let Self::Gae { lambda, .. } = self
            && !(0.0..=1.0).contains(&lambda)
        {
            return Err(SettingError::range(key + ".lambda", lambda, "in [0, 1]"));
        }
        if let Self::StepPotential {
            saturation,
            penalty,
            ..
        } = self
        {
            let range = |part: &str, value: f64, must: &str| {
                Err(SettingError::range(format!("{key}.{part}"), value, must))
            };
            if !saturation.is_finite() {
                return range("saturation", saturation, "a number");
            }
            if !(0.0..=1.0).contains(&penalty) {
                return range("penalty", penalty, "in [0, 1]");
            }
        }
        if let Self::Gigpo { weight, .. } | Self::StepPotential { weight, .. } = self
            && !(weight.is_finite() && weight >= 0.0)
        {
            return Err(SettingError::range(key + ".weight", weight, "0 or more"));
        }
        let fault = match self {
            Self::ProcessSupervision
            | Self::InformationGain { .. }
            | Self::StepPotential { .. }
            | Self::Gigpo { .. }
            | Self::Tree
                if !advantage.by_mean() =>
            {
                "compares by the mean of a group; set advantage to grpo, grpo_population or dr_grpo"
            }
            Self::RewardToGo { .. } | Self::Gae { .. } if advantage.name() != "reinforce_pp" => {
                "whitens over the batch; set advantage = \"reinforce_pp\""
            }
            _ => return Ok(()),
        };
        Err(SettingError::new(key, fault))
    }
}

/// `[turns]`: the factor of [`Credit::DiscountedTurns`] on the advantage of each turn, times `advantage`.
pub(super) fn discounted(advantage: f32, gamma: f64, turns: usize) -> Vec<f32> {
    (0..turns)
        .map(|turn| (f64::from(advantage) * gamma.powi((turns - 1 - turn) as i32)) as f32)
        .collect()
}

/// `[sum(turns)]`: the value of each turn at each of its policy tokens. `per_turn` and `turns`: `[T]`.
///
/// # Panics
/// When `per_turn` and `turns` differ in number.
pub(super) fn spread_turns(per_turn: &[f32], turns: &[usize]) -> Vec<f32> {
    assert_eq!(per_turn.len(), turns.len(), "values and turns");
    per_turn
        .iter()
        .zip(turns)
        .flat_map(|(&value, &tokens)| std::iter::repeat_n(value, tokens))
        .collect()
}

/// `[n]`: the return from each turn or policy token on, `R_i = r_i + gamma R_(i+1)`. `rewards`: `[n]`, what each earned.
pub(super) fn reward_to_go(rewards: &[f32], gamma: f64) -> Vec<f32> {
    let mut found = vec![0.0; rewards.len()];
    let mut carried = 0.0;
    for (found, &reward) in found.iter_mut().zip(rewards).rev() {
        carried = f64::from(reward) + gamma * carried;
        *found = carried as f32;
    }
    found
}

/// `[n]`: [`Credit::Gae`] of the policy tokens of an episode, not whitened. `rewards` and `values`: `[n]`.
///
/// # Panics
/// When `rewards` and `values` differ in number.
pub(super) fn gae(rewards: &[f32], values: &[f32], gamma: f64, lambda: f64) -> Vec<f32> {
    assert_eq!(rewards.len(), values.len(), "rewards and values");
    let mut found = vec![0.0; rewards.len()];
    let (mut advantage, mut next) = (0.0, 0.0);
    for token in (0..found.len()).rev() {
        let value = f64::from(values[token]);
        let surprise = f64::from(rewards[token]) + gamma * next - value;
        advantage = surprise + gamma * lambda * advantage;
        next = value;
        found[token] = advantage as f32;
    }
    found
}

/// (value - mean) / sqrt(unbiased variance + 1e-8) over all tokens of a batch of sequences; `None` where they do not vary.
///
/// REINFORCE++ (arXiv 2501.03262) as in verl and slime.
pub(super) fn whiten(sequences: &[Vec<f32>]) -> Option<Vec<Vec<f32>>> {
    let moments = Moments::weighted(
        sequences
            .iter()
            .flatten()
            .map(|&value| (f64::from(value), 1)),
    );
    let scale = moments.whitening_scale()?;
    let whitened = |&value: &f32| ((f64::from(value) - moments.mean) * scale) as f32;
    Some(
        sequences
            .iter()
            .map(|values| values.iter().map(whitened).collect())
            .collect(),
    )
}

/// Mean and variance of weighted values.
pub(super) struct Moments {
    count: f64,
    squares: f64,
    pub(super) mean: f64,
}

impl Moments {
    pub(super) fn of(values: &[f64]) -> Self {
        Self::weighted(values.iter().map(|&value| (value, 1)))
    }

    /// The moments of values with their numbers of occurrences; without any the mean is 0.
    pub(super) fn weighted(values: impl Iterator<Item = (f64, usize)>) -> Self {
        let values: Vec<(f64, f64)> = values.map(|(value, times)| (value, times as f64)).collect();
        let count: f64 = values.iter().map(|(_, times)| times).sum();
        let mean = values
            .iter()
            .map(|(value, times)| value * times)
            .sum::<f64>()
            / count.max(1.0);
        let squares = values
            .iter()
            .map(|(value, times)| (value - mean).powi(2) * times)
            .sum();
        Self {
            count,
            squares,
            mean,
        }
    }

    pub(super) fn population_std(&self) -> f64 {
        (self.squares / self.count.max(1.0)).sqrt()
    }

    pub(super) fn unbiased_std(&self) -> f64 {
        (self.squares / (self.count - 1.0).max(1.0)).sqrt()
    }

    /// The factor of whitening; `None` without variance. Equal values have one of about 1e-16, from rounding.
    pub(super) fn whitening_scale(&self) -> Option<f64> {
        let std = self.unbiased_std();
        (std > 1e-12 * self.mean.abs().max(1.0)).then(|| 1.0 / (std * std + WHITEN_EPSILON).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_discounted_from_the_last() {
        assert_eq!(discounted(1.0, 0.99, 3), [0.9801, 0.99, 1.0]);
        assert!(discounted(1.0, 0.99, 0).is_empty());
    }

    #[test]
    fn rewards_of_turns_reach_the_turns_before() {
        assert_eq!(reward_to_go(&[0.1, 0.0, 1.0], 0.5), [0.35, 0.5, 1.0]);
        assert_eq!(spread_turns(&[0.35, 1.0], &[2, 1]), [0.35, 0.35, 1.0]);
    }

    #[test]
    fn advantages_are_what_the_critic_did_not_expect() {
        // Without a critic, and with lambda 1, they are the rewards to come.
        assert_eq!(gae(&[0.0, 0.5, 1.0], &[0.0; 3], 1.0, 1.0), [1.5, 1.5, 1.0]);
        // A critic that knows leaves nothing.
        assert_eq!(gae(&[0.0, 0.0, 1.0], &[1.0; 3], 1.0, 0.7), [0.0; 3]);
        // With lambda 0 a token answers for the change of the value alone.
        assert_eq!(
            gae(&[0.0, 0.0, 1.0], &[0.25, 0.5, 0.75], 1.0, 0.0),
            [0.25; 3]
        );
    }

    #[test]
    fn equal_tokens_cannot_be_whitened() {
        assert_eq!(whiten(&[vec![0.1, 0.1], vec![0.1]]), None);
        assert_eq!(whiten(&[]), None);
        let found = whiten(&[vec![0.0], vec![1.0]]).unwrap();
        assert!((found[1][0] - 0.5_f32.sqrt()).abs() < 1e-6);
    }
}

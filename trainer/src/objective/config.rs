//! An objective as a configuration says it: a published algorithm, and what differs from it.

use forage_contracts::SettingError;
use serde::{Deserialize, Serialize};

use super::Advantage;
use super::PolicyLoss;
use super::advantage::SignWeights;
use super::aggregate::Aggregation;
use super::algorithm::{Algorithm, Recipe};
use super::bounds::TurnBounds;
use super::correction::{Bound, Correction};
use super::credit::Credit;
use super::entropy::EntropyTerms;
use super::filter::GroupFilter;
use super::kl::KlPenalty;
use super::rank_shaping::RankShaping;

/// A published algorithm; a part that is given replaces the algorithm's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// The algorithm.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// The groups that are learned from; the algorithm's by default.
    pub(crate) filter: Option<GroupFilter>,
    /// Rewards to advantages; the algorithm's by default.
    pub advantage: Option<Advantage>,
    /// Factors on advantages by sign.
    pub(crate) signs: Option<SignWeights>,
    /// Advantages of episodes to those of tokens; the algorithm's by default.
    pub credit: Option<Credit>,
    /// Bounds on the rewards of turns that the credit reads.
    pub(crate) turn_bounds: Option<TurnBounds>,
    /// The loss of a token; the algorithm's by default.
    pub loss: Option<PolicyLoss>,
    /// Weights for the sampler's mismatch.
    pub correction: Option<Correction>,
    /// The penalty for leaving the reference; a coefficient of 0 takes away the algorithm's.
    pub kl: Option<KlPenalty>,
    /// Shaping of advantages by the effective rank of hidden states; none without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rank_shaping: Option<RankShaping>,
    /// Entropy bonus and mask.
    pub(crate) entropy: Option<EntropyTerms>,
    /// Token losses to the step's loss; the algorithm's by default.
    pub(crate) aggregation: Option<Aggregation>,
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Algorithm::default().into()
    }
}

impl From<Algorithm> for ObjectiveConfig {
    fn from(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            filter: None,
            advantage: None,
            signs: None,
            credit: None,
            turn_bounds: None,
            loss: None,
            correction: None,
            kl: None,
            rank_shaping: None,
            entropy: None,
            aggregation: None,
        }
    }
}

impl ObjectiveConfig {
    /// All parts. `max_tokens`: see [`Algorithm::recipe`].
    pub fn recipe(&self, max_tokens: usize) -> Recipe {
        let base = self.algorithm.recipe(max_tokens);
        Recipe {
            filter: self.filter.or(base.filter),
            advantage: self.advantage.unwrap_or(base.advantage),
            signs: self.signs.unwrap_or(base.signs),
            credit: self.credit.unwrap_or(base.credit),
            turn_bounds: self.turn_bounds.unwrap_or(base.turn_bounds),
            loss: self.loss.unwrap_or(base.loss),
            correction: self.correction.or(base.correction),
            kl: self
                .kl
                .or(base.kl)
                // A coefficient that is not a number stays, so that the check names it.
                .filter(|penalty| penalty.coefficient.abs() != 0.0),
            rank_shaping: self.rank_shaping.or(base.rank_shaping),
            entropy: self.entropy.unwrap_or(base.entropy),
            aggregation: self.aggregation.unwrap_or(base.aggregation),
        }
    }

    /// The objective with every part spelled out.
    #[must_use]
    pub fn spelled_out(&self, max_tokens: usize) -> Self {
        let recipe = self.recipe(max_tokens);
        Self {
            algorithm: self.algorithm,
            filter: recipe.filter,
            advantage: Some(recipe.advantage),
            signs: Some(recipe.signs),
            credit: Some(recipe.credit),
            turn_bounds: self.turn_bounds,
            loss: Some(recipe.loss),
            correction: recipe.correction,
            kl: recipe.kl.or(self.kl),
            rank_shaping: recipe.rank_shaping,
            entropy: Some(recipe.entropy),
            aggregation: Some(recipe.aggregation),
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`SettingError`], which names the key at fault and the fix.
    pub fn check(&self) -> Result<(), SettingError> {
        let recipe = self.recipe(1);
        recipe.entropy.check()?;
        recipe
            .rank_shaping
            .map_or(Ok(()), |shaping| shaping.check())?;
        recipe.signs.check()?;
        recipe.loss.check()?;
        recipe.advantage.check()?;
        recipe.credit.check(recipe.advantage)?;
        recipe.turn_bounds.check(recipe.credit)?;
        let range = |key: &str, value: f64, must: &str| Err(SettingError::range(key, value, must));
        let between = |key: &str, order: &str, low: f64, high: f64| {
            let fault = format!("needs {order}, not {low} and {high}");
            Err(SettingError::new(key, fault))
        };
        if let Some(penalty) = recipe.kl
            && !(penalty.coefficient.is_finite() && penalty.coefficient >= 0.0)
        {
            return range("kl.coefficient", penalty.coefficient, "0 or more");
        }
        if let Some(penalty) = recipe.reward_penalty() {
            if !recipe.credit.reads_token_rewards() {
                let fault = "takes it off the reward of each token; set credit to gae or reward_to_go, or leave it out";
                return Err(SettingError::new("kl.in_reward", fault));
            }
            if penalty.unbiased {
                let fault = "weighs a penalty of the loss; leave it out beside in_reward";
                return Err(SettingError::new("kl.unbiased", fault));
            }
        }
        if let Some(GroupFilter::AccuracyBand { lowest, highest }) = recipe.filter
            && !(0.0 <= lowest && lowest < highest && highest <= 1.0)
        {
            let order = "0 <= lowest < highest <= 1";
            return between("filter.accuracy_band", order, lowest, highest);
        }
        if let Some(GroupFilter::Spread { least }) = recipe.filter
            && !(least > 0.0 && least.is_finite())
        {
            return range("filter.spread.least", least, "above 0");
        }
        if let Aggregation::DrGrpo { length: 0 } = recipe.aggregation {
            let fault = "must be at least 1";
            return Err(SettingError::new("aggregation.dr_grpo.length", fault));
        }
        if let Some(veto) = recipe.correction.and_then(|correction| correction.veto)
            && !(veto > 0.0 && veto <= 1.0)
        {
            return range("correction.veto", veto, "above 0 and at most 1");
        }
        let bound = recipe.correction.map(|correction| correction.bound);
        let weighs = matches!(bound, Some(Bound::Truncate { .. } | Bound::Mask { .. }));
        if weighs && recipe.loss.compares_with_sampler() {
            let fault = format!(
                "weighs the gap to the sampler, which the ratio of {} has in it; remove it, or let it reject tokens alone",
                recipe.loss.name()
            );
            return Err(SettingError::new("correction", fault));
        }
        match bound {
            Some(Bound::Truncate { cap }) if !(cap > 0.0 && cap.is_finite()) => {
                range("correction.bound.truncate.cap", cap, "above 0")
            }
            Some(Bound::Mask { low, high } | Bound::Reject { low, high })
                if !((0.0..=1.0).contains(&low) && high >= 1.0) =>
            {
                between("correction.bound", "low <= 1 <= high", low, high)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::KlEstimator;

    #[test]
    fn parts_stand_in_place_of_the_algorithms() {
        let text = "algorithm = \"search_r1\"\ncredit.discounted_turns.gamma = 0.9\n[kl]\nestimator = \"k3\"\ncoefficient = 0.0\n";
        let config: ObjectiveConfig = toml::from_str(text).unwrap();
        let recipe = config.recipe(100);
        assert_eq!(
            recipe,
            Recipe {
                kl: None,
                credit: Credit::DiscountedTurns { gamma: 0.9 },
                ..config.algorithm.recipe(100)
            }
        );
        assert_eq!(config.spelled_out(100).recipe(7), recipe);
        assert_eq!(
            toml::from_str::<ObjectiveConfig>("").unwrap(),
            ObjectiveConfig::default()
        );
    }

    #[test]
    fn numbers_without_a_meaning_are_refused() {
        let correction =
            "correction = { level = \"token\", bound = { truncate = { cap = 2.0 } }, veto";
        for (text, expected) in [
            (
                "kl = { estimator = \"k3\", coefficient = nan }".to_owned(),
                "kl.coefficient is NaN",
            ),
            (
                "signs = { positive = nan, negative = 1.0 }".to_owned(),
                "signs.positive is NaN",
            ),
            (
                "signs = { positive = 1.0, negative = inf }".to_owned(),
                "signs.negative is inf",
            ),
            (format!("{correction} = 2.0 }}"), "correction.veto is 2"),
            (
                format!("{correction} = -1e-4 }}"),
                "correction.veto is -0.0001",
            ),
            (format!("{correction} = nan }}"), "correction.veto is NaN"),
        ] {
            let found = toml::from_str::<ObjectiveConfig>(&text).unwrap().check();
            let found = found.unwrap_err().to_string();
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn a_ratio_to_the_sampler_is_not_corrected_again() {
        let checked = |loss: &str, bound: &str| {
            let text =
                format!("loss = {loss}\ncorrection = {{ level = \"token\", bound = {bound} }}");
            toml::from_str::<ObjectiveConfig>(&text).unwrap().check()
        };
        let truncate = "{ truncate = { cap = 2.0 } }";
        for loss in [
            "{ dppo_tv = { low = 0.2, high = 0.2, kl_tau = 0.0 } }",
            "{ rollout_is = { low = 0.2, high = 0.2 } }",
        ] {
            for bound in [truncate, "{ mask = { low = 0.5, high = 2.0 } }"] {
                let error = checked(loss, bound).unwrap_err().to_string();
                assert!(error.contains("correction weighs"), "{error}");
            }
            assert!(checked(loss, "{ reject = { low = 0.5, high = 2.0 } }").is_ok());
        }
        assert!(checked("\"is_reinforce\"", truncate).is_ok());
    }

    #[test]
    fn ranges_are_checked_by_name() {
        let fault = |config: ObjectiveConfig| config.check().unwrap_err().to_string();
        let base = ObjectiveConfig::default;
        assert!(base().check().is_ok());
        let loss = PolicyLoss::of("ppo_clip", &[0.2, 0.2, 0.5]);
        assert!(
            fault(ObjectiveConfig {
                loss: Some(loss),
                ..base()
            })
            .contains("loss.ppo_clip.dual")
        );
        let kl = KlPenalty {
            estimator: KlEstimator::K3,
            coefficient: -1.0,
            unbiased: false,
            in_reward: false,
        };
        assert!(
            fault(ObjectiveConfig {
                kl: Some(kl),
                ..base()
            })
            .contains("kl.coefficient")
        );
        let entropy = EntropyTerms {
            top_share: 0.0,
            ..EntropyTerms::default()
        };
        assert!(
            fault(ObjectiveConfig {
                entropy: Some(entropy),
                ..base()
            })
            .contains("top_share")
        );
        let text = "entropy.kl_cov = { share = 1.5, coefficient = 1.0 }";
        let found = fault(toml::from_str(text).unwrap());
        assert!(found.contains("entropy.kl_cov.share is 1.5"), "{found}");
        let credit = |algorithm: &str, credit| ObjectiveConfig {
            credit: Some(credit),
            ..Algorithm::of(algorithm, &[]).into()
        };
        for (algorithm, part, expected) in [
            (
                "grpo",
                Credit::DiscountedTurns { gamma: 1.5 },
                "credit.discounted_turns.gamma is 1.5",
            ),
            (
                "grpo",
                Credit::Gigpo {
                    gamma: 0.95,
                    weight: -1.0,
                },
                "credit.gigpo.weight is -1",
            ),
            (
                "rloo",
                Credit::Gigpo {
                    gamma: 0.95,
                    weight: 1.0,
                },
                "set advantage to grpo, grpo_population or dr_grpo",
            ),
            (
                "reinforce_pp",
                Credit::ProcessSupervision,
                "credit.process_supervision compares",
            ),
            (
                "ppo",
                Credit::Gae {
                    gamma: 1.0,
                    lambda: 1.5,
                },
                "credit.gae.lambda is 1.5",
            ),
            (
                "grpo",
                Credit::Gae {
                    gamma: 1.0,
                    lambda: 1.0,
                },
                "set advantage = \"reinforce_pp\"",
            ),
            (
                "grpo",
                Credit::RewardToGo { gamma: 1.0 },
                "set advantage = \"reinforce_pp\"",
            ),
        ] {
            assert!(
                fault(credit(algorithm, part)).contains(expected),
                "{part:?}"
            );
        }
        for (credit, bounds, expected) in [
            (
                "constant",
                "delta = true",
                "turn_bounds bounds rewards of turns",
            ),
            (
                "process_supervision",
                "clip = inf",
                "turn_bounds.clip is inf",
            ),
        ] {
            let text = format!(
                "algorithm = \"grpo\"\ncredit = \"{credit}\"\nturn_bounds = {{ {bounds} }}"
            );
            let found = fault(toml::from_str(&text).unwrap());
            assert!(found.contains(expected), "{found}");
        }
        for (algorithm, kl, expected) in [
            ("search_r1", "in_reward = true", "kl.in_reward takes it off"),
            (
                "ppo",
                "in_reward = true\nunbiased = true",
                "kl.unbiased weighs",
            ),
        ] {
            let text = format!(
                "algorithm = \"{algorithm}\"\n[kl]\nestimator = \"k1\"\ncoefficient = 0.001\n{kl}"
            );
            let found = fault(toml::from_str(&text).unwrap());
            assert!(found.contains(expected), "{found}");
        }
        assert!(
            credit("reinforce_pp", Credit::RewardToGo { gamma: 0.99 })
                .check()
                .is_ok()
        );
        assert!(
            credit("dr_grpo", Credit::ProcessSupervision)
                .check()
                .is_ok()
        );
    }
}

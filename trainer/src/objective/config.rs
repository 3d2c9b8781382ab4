//! An objective as a configuration says it: a published algorithm, and what differs from it.

use serde::{Deserialize, Serialize};

use super::advantage::{Advantage, SignWeights};
use super::aggregate::Aggregation;
use super::algorithm::{Algorithm, Recipe};
use super::correction::{Bound, Correction};
use super::credit::Credit;
use super::entropy::EntropyTerms;
use super::filter::GroupFilter;
use super::kl::KlPenalty;
use super::loss::PolicyLoss;

/// A published algorithm; a part that is given stands in place of the algorithm's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// The algorithm.
    #[serde(default = "dapo")]
    pub algorithm: Algorithm,
    /// Which groups are learned from.
    pub filter: Option<GroupFilter>,
    /// Rewards to advantages.
    pub advantage: Option<Advantage>,
    /// Factors on advantages by sign.
    pub signs: Option<SignWeights>,
    /// Advantages of episodes to those of tokens.
    pub credit: Option<Credit>,
    /// The loss of a token.
    pub loss: Option<PolicyLoss>,
    /// Weights for the sampler's mismatch.
    pub correction: Option<Correction>,
    /// The penalty for leaving the reference; a coefficient of 0 takes away the algorithm's.
    pub kl: Option<KlPenalty>,
    /// Entropy bonus and mask.
    pub entropy: Option<EntropyTerms>,
    /// Token losses to the step's loss.
    pub aggregation: Option<Aggregation>,
}

fn dapo() -> Algorithm {
    Algorithm::Dapo
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Algorithm::Dapo.into()
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
            loss: None,
            correction: None,
            kl: None,
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
            loss: self.loss.unwrap_or(base.loss),
            correction: self.correction.or(base.correction),
            kl: self.kl.or(base.kl).filter(|penalty| penalty.coefficient.abs() > 0.0),
            entropy: self.entropy.unwrap_or(base.entropy),
            aggregation: self.aggregation.unwrap_or(base.aggregation),
        }
    }

    /// The same objective with every part spelled out.
    #[must_use]
    pub fn spelled_out(&self, max_tokens: usize) -> Self {
        let recipe = self.recipe(max_tokens);
        Self {
            algorithm: self.algorithm,
            filter: recipe.filter,
            advantage: Some(recipe.advantage),
            signs: Some(recipe.signs),
            credit: Some(recipe.credit),
            loss: Some(recipe.loss),
            correction: recipe.correction,
            kl: recipe.kl.or(self.kl),
            entropy: Some(recipe.entropy),
            aggregation: Some(recipe.aggregation),
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// A sentence that names the key at fault and the fix.
    pub fn check(&self) -> Result<(), String> {
        let recipe = self.recipe(1);
        recipe.entropy.check()?;
        check_loss(&recipe.loss)?;
        if let Some(penalty) = recipe.kl
            && !(penalty.coefficient.is_finite() && penalty.coefficient >= 0.0)
        {
            return Err(format!("kl.coefficient is {}: it must be 0 or more", penalty.coefficient));
        }
        recipe.credit.check(recipe.advantage)?;
        if let Some(GroupFilter::AccuracyBand { lowest, highest }) = recipe.filter
            && !(0.0 <= lowest && lowest < highest && highest <= 1.0)
        {
            return Err(format!("filter.accuracy_band needs 0 <= lowest < highest <= 1, not {lowest} and {highest}"));
        }
        if let Aggregation::DrGrpo { length: 0 } = recipe.aggregation {
            return Err("aggregation.dr_grpo.length must be at least 1".to_owned());
        }
        match recipe.correction.map(|correction| correction.bound) {
            Some(Bound::Truncate { cap }) if !(cap > 0.0 && cap.is_finite()) => {
                Err(format!("correction.bound.truncate.cap is {cap}: it must be above 0"))
            }
            Some(Bound::Mask { low, high } | Bound::Reject { low, high })
                if !((0.0..=1.0).contains(&low) && high >= 1.0) =>
            {
                Err(format!("correction.bound needs low <= 1 <= high, not {low} and {high}"))
            }
            _ => Ok(()),
        }
    }
}

fn check_loss(loss: &PolicyLoss) -> Result<(), String> {
    match *loss {
        PolicyLoss::PpoClip { dual: Some(dual), .. } if dual.is_nan() || dual <= 1.0 => {
            Err(format!("loss.ppo_clip.dual is {dual}: it must be above 1; leave it out for none"))
        }
        PolicyLoss::PpoClip { low, high, .. }
        | PolicyLoss::Gspo { low, high }
        | PolicyLoss::Luspo { low, high }
        | PolicyLoss::RolloutIs { low, high }
        | PolicyLoss::DppoTv { low, high, .. }
            if !((0.0..=1.0).contains(&low) && high >= 0.0) =>
        {
            Err(format!("loss needs low in [0, 1] and high of 0 or more, not {low} and {high}"))
        }
        PolicyLoss::Cispo { low, high } if !(0.0 <= low && low < high) => {
            Err(format!("loss.cispo needs 0 <= low < high, not {low} and {high}"))
        }
        PolicyLoss::Sapo { positive, negative } if !(positive > 0.0 && negative > 0.0) => {
            Err("loss.sapo needs temperatures above 0".to_owned())
        }
        _ => Ok(()),
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
            Recipe { kl: None, credit: Credit::DiscountedTurns { gamma: 0.9 }, ..Algorithm::SearchR1.recipe(100) }
        );
        assert_eq!(config.spelled_out(100).recipe(7), recipe);
        assert_eq!(toml::from_str::<ObjectiveConfig>("").unwrap(), ObjectiveConfig::default());
    }

    #[test]
    fn ranges_are_checked_by_name() {
        let fault = |config: ObjectiveConfig| config.check().unwrap_err();
        let base = ObjectiveConfig::default;
        assert!(base().check().is_ok());
        let loss = PolicyLoss::PpoClip { low: 0.2, high: 0.2, dual: Some(0.5) };
        assert!(fault(ObjectiveConfig { loss: Some(loss), ..base() }).contains("loss.ppo_clip.dual"));
        let kl = KlPenalty { estimator: KlEstimator::K3, coefficient: -1.0, unbiased: false };
        assert!(fault(ObjectiveConfig { kl: Some(kl), ..base() }).contains("kl.coefficient"));
        let entropy = EntropyTerms { top_share: 0.0, ..EntropyTerms::default() };
        assert!(fault(ObjectiveConfig { entropy: Some(entropy), ..base() }).contains("top_share"));
        let credit = |algorithm: Algorithm, credit| ObjectiveConfig { credit: Some(credit), ..algorithm.into() };
        for (algorithm, part, expected) in [
            (Algorithm::Grpo, Credit::DiscountedTurns { gamma: 1.5 }, "credit.discounted_turns.gamma is 1.5"),
            (Algorithm::Grpo, Credit::Gigpo { gamma: 0.95, weight: -1.0 }, "credit.gigpo.weight is -1"),
            (
                Algorithm::Rloo,
                Credit::Gigpo { gamma: 0.95, weight: 1.0 },
                "set advantage to grpo, grpo_population or dr_grpo",
            ),
            (Algorithm::ReinforcePp, Credit::ProcessSupervision, "credit.process_supervision compares"),
            (Algorithm::Grpo, Credit::RewardToGo { gamma: 1.0 }, "set advantage = \"reinforce_pp\""),
        ] {
            assert!(fault(credit(algorithm, part)).contains(expected), "{part:?}");
        }
        assert!(credit(Algorithm::ReinforcePp, Credit::RewardToGo { gamma: 0.99 }).check().is_ok());
        assert!(credit(Algorithm::DrGrpo, Credit::ProcessSupervision).check().is_ok());
    }
}

//! Published algorithms by name.

use std::str::FromStr;

use forage_env::nearest::nearest;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::advantage::{Advantage, SignWeights};
use super::aggregate::Aggregation;
use super::correction::Correction;
use super::credit::Credit;
use super::entropy::EntropyTerms;
use super::filter::GroupFilter;
use super::kl::{KlEstimator, KlPenalty};
use super::loss::PolicyLoss;

/// One of each part: all that a step needs besides its rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Which groups are learned from; all without it.
    pub filter: Option<GroupFilter>,
    /// Rewards to advantages.
    pub advantage: Advantage,
    /// Factors on advantages by sign.
    #[serde(default)]
    pub signs: SignWeights,
    /// Advantages of episodes to those of tokens.
    #[serde(default)]
    pub credit: Credit,
    /// The loss of a token.
    pub loss: PolicyLoss,
    /// Weights for the sampler's mismatch; none without it.
    pub correction: Option<Correction>,
    /// The penalty for leaving the reference; none without it.
    pub kl: Option<KlPenalty>,
    /// Entropy bonus and mask.
    #[serde(default)]
    pub entropy: EntropyTerms,
    /// Token losses to the step's loss.
    pub aggregation: Aggregation,
}

/// A published algorithm; in a configuration, its name. The constants are those of the paper where it has some, else those
/// of the system named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Algorithm {
    /// `grpo`: `DeepSeekMath` (Shao et al. 2024) as TRL's `grpo`: (r - mu)/(`s_u` + 1e-6), clip 0.2, mean of sequence means,
    /// no penalty.
    Grpo,
    /// `search_r1`: [`Self::Grpo`] with the penalty `low_var` 0.001 and the token mean over the whole step (Search-R1's is
    /// over micro-batches and depends on their size).
    SearchR1,
    /// `dr_grpo`: Liu et al. 2025: r - mu, clip 0.2, sum over tokens / (B x most tokens).
    DrGrpo,
    /// `dapo`: Yu et al. 2025: groups that vary, clip 0.2 and 0.28, token mean.
    Dapo,
    /// `lite_ppo`: arXiv 2508.08221: mean of the group, standard deviation of the batch, clip 0.2 and 0.28, token mean.
    LitePpo,
    /// `rloo`: Ahmadian et al. 2024: reward less the others' mean times the log-probability of the sequence.
    Rloo,
    /// `reinforce_pp`: arXiv 2501.03262: rewards whitened over the batch's tokens, clip 0.2, token mean. The paper's penalty
    /// in the reward is left out.
    ReinforcePp,
    /// `rf_pp_baseline`: the same with the group's mean as baseline.
    RfPpBaseline,
    /// `gspo`: Zheng et al. 2025: sequence ratio, clip 3e-4 and 4e-4, mean of sequence means.
    Gspo,
    /// `luspo`: arXiv 2602.05261: sequence ratio times length, clip 2e-3 and 2.5e-3, mean of sequence means.
    Luspo,
    /// `gmpo`: arXiv 2507.20673: geometric mean of ratios held within 0.4 nats, mean over sequences.
    Gmpo,
    /// `cispo`: `MiniMax-M1` with `ScaleRL`'s cap: constant weight of at most 5, token mean.
    Cispo,
    /// `sapo`: arXiv 2511.20347: sigmoid gate with temperatures 1 and 1.05, mean of sequence means.
    Sapo,
    /// `vespo`: TRL: gamma weight of the sequence's ratio, token mean.
    Vespo,
    /// `dppo`: prime-rl: r - mu, mask by probability moved 0.2, 1e-3 squared log ratio, token mean.
    Dppo,
    /// `gpg`: arXiv 2504.02546: (r - mu) B / nonzero rewards, plain log-probability, token mean.
    Gpg,
    /// `max_rl`: (r - mu)/mu, clip 0.2, token mean (SkyRL's losses with `MaxRL` advantages).
    MaxRl,
    /// `is_reinforce`: tinker: r - mu, ratio without bounds, sum over tokens.
    IsReinforce,
}

/// A name that is no [`Algorithm`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown algorithm `{name}`; did you mean `{nearest}`?")]
pub struct UnknownAlgorithm {
    /// What was asked for.
    pub name: String,
    /// The nearest known name.
    pub nearest: &'static str,
}

const SYMMETRIC: PolicyLoss = PolicyLoss::PpoClip { low: 0.2, high: 0.2, dual: None };
const CLIP_HIGHER: PolicyLoss = PolicyLoss::PpoClip { low: 0.2, high: 0.28, dual: None };
const GRPO: Advantage = Advantage::Grpo { epsilon: 1e-6 };

impl Algorithm {
    /// Every algorithm, in the order of the documentation.
    pub const ALL: [Self; 18] = [
        Self::Grpo,
        Self::SearchR1,
        Self::DrGrpo,
        Self::Dapo,
        Self::LitePpo,
        Self::Rloo,
        Self::ReinforcePp,
        Self::RfPpBaseline,
        Self::Gspo,
        Self::Luspo,
        Self::Gmpo,
        Self::Cispo,
        Self::Sapo,
        Self::Vespo,
        Self::Dppo,
        Self::Gpg,
        Self::MaxRl,
        Self::IsReinforce,
    ];

    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grpo => "grpo",
            Self::SearchR1 => "search_r1",
            Self::DrGrpo => "dr_grpo",
            Self::Dapo => "dapo",
            Self::LitePpo => "lite_ppo",
            Self::Rloo => "rloo",
            Self::ReinforcePp => "reinforce_pp",
            Self::RfPpBaseline => "rf_pp_baseline",
            Self::Gspo => "gspo",
            Self::Luspo => "luspo",
            Self::Gmpo => "gmpo",
            Self::Cispo => "cispo",
            Self::Sapo => "sapo",
            Self::Vespo => "vespo",
            Self::Dppo => "dppo",
            Self::Gpg => "gpg",
            Self::MaxRl => "max_rl",
            Self::IsReinforce => "is_reinforce",
        }
    }

    /// Its parts. `max_tokens`: most policy tokens an episode may have, above 0; only [`Self::DrGrpo`] divides by it.
    pub fn recipe(self, max_tokens: usize) -> Recipe {
        use Aggregation::{SeqMeanTokenMean, SeqMeanTokenSum, Sum, TokenMean};
        let per_length = Aggregation::DrGrpo { length: max_tokens };
        let plain = match self {
            Self::Grpo => plain(GRPO, SYMMETRIC, SeqMeanTokenMean),
            Self::SearchR1 => plain(GRPO, SYMMETRIC, TokenMean),
            Self::DrGrpo => plain(Advantage::DrGrpo, SYMMETRIC, per_length),
            Self::Dapo => plain(GRPO, CLIP_HIGHER, TokenMean),
            Self::LitePpo => plain(Advantage::BatchStd, CLIP_HIGHER, TokenMean),
            Self::Rloo => plain(Advantage::Rloo, PolicyLoss::Reinforce, SeqMeanTokenSum),
            Self::ReinforcePp => plain(Advantage::ReinforcePp, SYMMETRIC, TokenMean),
            Self::RfPpBaseline => plain(Advantage::RfPpBaseline, SYMMETRIC, TokenMean),
            Self::Gspo => plain(GRPO, PolicyLoss::Gspo { low: 3e-4, high: 4e-4 }, SeqMeanTokenMean),
            Self::Luspo => plain(GRPO, PolicyLoss::Luspo { low: 2e-3, high: 2.5e-3 }, SeqMeanTokenMean),
            Self::Gmpo => plain(GRPO, PolicyLoss::Gmpo { low: 0.4, high: 0.4 }, SeqMeanTokenMean),
            Self::Cispo => plain(GRPO, PolicyLoss::Cispo { low: 0.0, high: 5.0 }, TokenMean),
            Self::Sapo => plain(GRPO, PolicyLoss::Sapo { positive: 1.0, negative: 1.05 }, SeqMeanTokenMean),
            Self::Vespo => plain(GRPO, PolicyLoss::Vespo, TokenMean),
            Self::Dppo => plain(Advantage::DrGrpo, PolicyLoss::DppoTv { low: 0.2, high: 0.2, kl_tau: 1e-3 }, TokenMean),
            Self::Gpg => plain(Advantage::Gpg, PolicyLoss::Reinforce, TokenMean),
            Self::MaxRl => plain(Advantage::MaxRl, SYMMETRIC, TokenMean),
            Self::IsReinforce => plain(Advantage::DrGrpo, PolicyLoss::IsReinforce, Sum),
        };
        let low_var = KlPenalty { estimator: KlEstimator::LowVar, coefficient: 1e-3, unbiased: false };
        match self {
            Self::SearchR1 => Recipe { kl: Some(low_var), ..plain },
            Self::Dapo => Recipe { filter: Some(GroupFilter::ZeroVariance), ..plain },
            _ => plain,
        }
    }
}

/// A recipe with the three parts that every algorithm chooses, and nothing else.
fn plain(advantage: Advantage, loss: PolicyLoss, aggregation: Aggregation) -> Recipe {
    Recipe {
        filter: None,
        advantage,
        signs: SignWeights::default(),
        credit: Credit::Constant,
        loss,
        correction: None,
        kl: None,
        entropy: EntropyTerms::default(),
        aggregation,
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let known = Self::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        known.ok_or_else(|| UnknownAlgorithm {
            name: name.to_owned(),
            nearest: nearest(name, Self::ALL.map(Self::name)),
        })
    }
}

impl TryFrom<String> for Algorithm {
    type Error = UnknownAlgorithm;

    fn try_from(name: String) -> Result<Self, UnknownAlgorithm> {
        name.parse()
    }
}

impl From<Algorithm> for &'static str {
    fn from(algorithm: Algorithm) -> Self {
        algorithm.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_ones_suggest() {
        for algorithm in Algorithm::ALL {
            let text = serde_json::to_string(&algorithm).unwrap();
            assert_eq!(text, format!("\"{}\"", algorithm.name()));
            assert_eq!(serde_json::from_str::<Algorithm>(&text).unwrap(), algorithm);
        }
        let error = serde_json::from_str::<Algorithm>("\"dr-grpo\"").unwrap_err().to_string();
        assert!(error.contains("unknown algorithm `dr-grpo`; did you mean `dr_grpo`?"), "{error}");
    }

    #[test]
    fn recipes_round_trip_through_toml() {
        for algorithm in Algorithm::ALL {
            let recipe = algorithm.recipe(500);
            let text = toml::to_string(&recipe).unwrap();
            assert_eq!(toml::from_str::<Recipe>(&text).unwrap(), recipe, "{text}");
        }
    }

    #[test]
    fn misspelt_keys_are_errors() {
        let text = toml::to_string(&Algorithm::Dapo.recipe(500)).unwrap();
        for (key, misspelt) in [("high", "hihg"), ("epsilon", "epsilom"), ("aggregation", "agregation")] {
            let error = toml::from_str::<Recipe>(&text.replace(key, misspelt)).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{misspelt} = ")) && error.contains("unexpected") | error.contains("unknown"),
                "{error}"
            );
        }
        let error = toml::from_str::<Recipe>(&text.replace("token_mean", "token_meen")).unwrap_err().to_string();
        assert!(error.contains("unknown variant `token_meen`") && error.contains("`token_mean`"), "{error}");
    }
}

//! Published algorithms by name.

use forage_contracts::Registry;
use forage_contracts::objective::Setting;
use serde::{Deserialize, Serialize};

use super::Advantage;
use super::PolicyLoss;
use super::advantage::SignWeights;
use super::aggregate::Aggregation;
use super::bounds::TurnBounds;
use super::correction::Correction;
use super::credit::Credit;
use super::entropy::EntropyTerms;
use super::entry::{Choice, Entry};
use super::filter::GroupFilter;
use super::kl::{KlEstimator, KlPenalty};
use super::rank_shaping::RankShaping;

/// One of each part: all that a step needs besides its rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The groups that are learned from; all without it.
    pub(crate) filter: Option<GroupFilter>,
    /// Rewards to advantages.
    pub advantage: Advantage,
    /// Factors on advantages by sign.
    #[serde(default)]
    pub(crate) signs: SignWeights,
    /// Advantages of episodes to those of tokens.
    #[serde(default)]
    pub credit: Credit,
    /// Bounds on the rewards of turns that the credit reads.
    #[serde(default)]
    pub(crate) turn_bounds: TurnBounds,
    /// The loss of a token.
    pub loss: PolicyLoss,
    /// Weights for the sampler's mismatch; none without it.
    pub correction: Option<Correction>,
    /// The penalty for leaving the reference; none without it.
    pub kl: Option<KlPenalty>,
    /// Shaping of advantages by hidden states; none without it.
    #[serde(default)]
    pub(crate) rank_shaping: Option<RankShaping>,
    /// Entropy bonus and mask.
    #[serde(default)]
    pub(crate) entropy: EntropyTerms,
    /// Token losses to the step's loss.
    pub(crate) aggregation: Aggregation,
}

/// A published algorithm as a configuration names it. The constants are those of the paper where it has some, else those of the
/// system named.
pub(crate) type Algorithm = Choice<AlgorithmEntry>;

/// An advantage or a loss with its settings, in the order of their declaration.
type Part = (&'static str, &'static [f64]);

/// The parts of a published algorithm.
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmEntry {
    /// The name in configurations.
    pub name: &'static str,
    /// The paper, or the system whose constants these are.
    pub about: &'static str,
    advantage: Part,
    credit: Credit,
    loss: Part,
    aggregation: Aggregation,
    filter: Option<GroupFilter>,
    kl: Option<KlPenalty>,
}

const fn row(
    name: &'static str,
    about: &'static str,
    advantage: Part,
    loss: Part,
    aggregation: Aggregation,
) -> AlgorithmEntry {
    AlgorithmEntry {
        name,
        about,
        advantage,
        credit: Credit::Constant,
        loss,
        aggregation,
        filter: None,
        kl: None,
    }
}

const GRPO: Part = ("grpo", &[1e-6]);
const CENTRED: Part = ("dr_grpo", &[]);
const SYMMETRIC: Part = ("ppo_clip", &[0.2, 0.2]);
const CLIP_HIGHER: Part = ("ppo_clip", &[0.2, 0.28]);
const REINFORCE: Part = ("reinforce", &[]);
/// Divides by the most policy tokens of an episode, which the run knows.
const PER_LENGTH: Aggregation = Aggregation::DrGrpo { length: 0 };

/// Every algorithm, in the order of the documentation.
pub(super) const ALGORITHMS: &[AlgorithmEntry] = {
    use Aggregation::{SeqMeanTokenMean, SeqMeanTokenSum, Sum, TokenMean};
    &[
        row(
            "grpo",
            "DeepSeekMath (Shao et al. 2024) as TRL's grpo",
            GRPO,
            SYMMETRIC,
            SeqMeanTokenMean,
        ),
        AlgorithmEntry {
            kl: Some(KlPenalty {
                estimator: KlEstimator::LowVar,
                coefficient: 1e-3,
                unbiased: false,
                in_reward: false,
            }),
            ..row(
                "search_r1",
                "Search-R1, whose token mean is over micro-batches and depends on their size",
                GRPO,
                SYMMETRIC,
                TokenMean,
            )
        },
        row("dr_grpo", "Liu et al. 2025", CENTRED, SYMMETRIC, PER_LENGTH),
        AlgorithmEntry {
            filter: Some(GroupFilter::ZeroVariance),
            ..row("dapo", "Yu et al. 2025", GRPO, CLIP_HIGHER, TokenMean)
        },
        row(
            "lite_ppo",
            "arXiv 2508.08221",
            ("batch_std", &[]),
            CLIP_HIGHER,
            TokenMean,
        ),
        row(
            "rloo",
            "Ahmadian et al. 2024",
            ("rloo", &[]),
            REINFORCE,
            SeqMeanTokenSum,
        ),
        row(
            "reinforce_pp",
            "arXiv 2501.03262 without its penalty in the reward",
            ("reinforce_pp", &[]),
            SYMMETRIC,
            TokenMean,
        ),
        row(
            "rf_pp_baseline",
            "arXiv 2501.03262 with the group's mean as baseline",
            ("rf_pp_baseline", &[]),
            SYMMETRIC,
            TokenMean,
        ),
        AlgorithmEntry {
            credit: Credit::Gae {
                gamma: 1.0,
                lambda: 1.0,
            },
            ..row(
                "ppo",
                "Schulman et al. 2017 with a critic, by the values of verl and Search-R1",
                ("reinforce_pp", &[]),
                SYMMETRIC,
                TokenMean,
            )
        },
        row(
            "gspo",
            "Zheng et al. 2025",
            GRPO,
            ("gspo", &[3e-4, 4e-4]),
            SeqMeanTokenMean,
        ),
        row(
            "sspo",
            "arXiv 2511.04256, whose bounds are assumed",
            GRPO,
            ("sspo", &[0.2, 0.2, 2.0]),
            SeqMeanTokenMean,
        ),
        row(
            "luspo",
            "arXiv 2602.05261",
            GRPO,
            ("luspo", &[2e-3, 2.5e-3]),
            SeqMeanTokenMean,
        ),
        row(
            "gmpo",
            "arXiv 2507.20673",
            GRPO,
            ("gmpo", &[0.4, 0.4]),
            SeqMeanTokenMean,
        ),
        row(
            "cispo",
            "MiniMax-M1 with ScaleRL's cap",
            GRPO,
            ("cispo", &[0.0, 5.0]),
            TokenMean,
        ),
        row(
            "sapo",
            "arXiv 2511.20347",
            GRPO,
            ("sapo", &[1.0, 1.05]),
            SeqMeanTokenMean,
        ),
        row("vespo", "TRL", GRPO, ("vespo", &[]), TokenMean),
        row(
            "dppo",
            "prime-rl",
            CENTRED,
            ("dppo_tv", &[0.2, 0.2, 1e-3]),
            TokenMean,
        ),
        row(
            "gpg",
            "arXiv 2504.02546",
            ("gpg", &[]),
            REINFORCE,
            TokenMean,
        ),
        row(
            "max_rl",
            "SkyRL's losses with MaxRL advantages",
            ("max_rl", &[]),
            SYMMETRIC,
            TokenMean,
        ),
        row(
            "is_reinforce",
            "tinker",
            CENTRED,
            ("is_reinforce", &[]),
            Sum,
        ),
        row(
            "a_lol",
            "arXiv 2305.14718, for recorded rollouts",
            CENTRED,
            ("a_lol", &[0.9]),
            SeqMeanTokenSum,
        ),
        row(
            "lipo",
            "arXiv 2402.01878, for recorded rollouts",
            ("lipo", &[0.05]),
            REINFORCE,
            SeqMeanTokenSum,
        ),
    ]
};

static REGISTRY: Registry<AlgorithmEntry> = Registry::new(ALGORITHMS);

impl forage_contracts::Entry for AlgorithmEntry {
    const KIND: &'static str = "algorithm";

    fn label(&self) -> (&'static str, &'static str) {
        (self.name, self.about)
    }
}

impl Entry for AlgorithmEntry {
    fn settings(&self) -> &'static [Setting] {
        &[]
    }

    fn registry() -> &'static Registry<Self> {
        &REGISTRY
    }
}

impl Algorithm {
    /// Its parts. `max_tokens`: most policy tokens an episode may have, above 0; only `dr_grpo` divides by it.
    pub fn recipe(self, max_tokens: usize) -> Recipe {
        let AlgorithmEntry {
            advantage,
            credit,
            loss,
            aggregation,
            filter,
            kl,
            ..
        } = *self.entry;
        Recipe {
            filter,
            advantage: Advantage::of(advantage.0, advantage.1),
            signs: SignWeights::default(),
            credit,
            turn_bounds: TurnBounds::default(),
            loss: PolicyLoss::of(loss.0, loss.1),
            correction: None,
            kl,
            rank_shaping: None,
            entropy: EntropyTerms::default(),
            aggregation: match aggregation {
                PER_LENGTH => Aggregation::DrGrpo { length: max_tokens },
                other => other,
            },
        }
    }
}

impl Default for Algorithm {
    fn default() -> Self {
        Self::of("dapo", &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_ones_suggest() {
        for entry in ALGORITHMS {
            let algorithm = Algorithm::of(entry.name, &[]);
            let text = serde_json::to_string(&algorithm).unwrap();
            assert_eq!(text, format!("\"{}\"", algorithm.name()));
            assert_eq!(serde_json::from_str::<Algorithm>(&text).unwrap(), algorithm);
        }
        let error = serde_json::from_str::<Algorithm>("\"dr-grpo\"")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("unknown algorithm `dr-grpo`; did you mean `dr_grpo`?"),
            "{error}"
        );
        for (part, known) in [
            ("loss", "ppo_clip, gspo"),
            ("advantage", "grpo, grpo_population"),
        ] {
            let text = format!("{part} = \"none_such\"");
            let error = toml::from_str::<super::super::ObjectiveConfig>(&text).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains(&format!("unknown {part} `none_such`")),
                "{error}"
            );
            assert!(error.contains(&format!("there are {known}")), "{error}");
        }
    }

    #[test]
    fn recipes_round_trip_through_toml() {
        for entry in ALGORITHMS {
            let algorithm = Algorithm::of(entry.name, &[]);
            let recipe = algorithm.recipe(500);
            let text = toml::to_string(&recipe).unwrap();
            assert_eq!(toml::from_str::<Recipe>(&text).unwrap(), recipe, "{text}");
        }
    }

    #[test]
    fn misspelt_keys_are_errors() {
        let text = toml::to_string(&Algorithm::default().recipe(500)).unwrap();
        for (key, misspelt) in [
            ("high", "hihg"),
            ("epsilon", "epsilom"),
            ("aggregation", "agregation"),
        ] {
            let error = toml::from_str::<Recipe>(&text.replace(key, misspelt))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(misspelt)
                    && error.contains("unexpected") | error.contains("unknown"),
                "{error}"
            );
        }
        let error = toml::from_str::<Recipe>(&text.replace("token_mean", "token_meen"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("unknown variant `token_meen`") && error.contains("`token_mean`"),
            "{error}"
        );
    }
}

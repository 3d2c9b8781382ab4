//! `evaluation.baselines`: policies that the trained one is compared with, besides its start and twins.

use forage_contracts::environment::Outcome;
use forage_contracts::{EnvEntry, suggestion};

use super::RunConfig;
use crate::error::{Result, RunError, refuse};

/// A baseline, by its name in `evaluation.baselines`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Baseline {
    /// The start, whose first turn is made to open a search.
    ForcedSearch,
    /// The best of several samples of the start, as a perfect judge would pick it.
    BestOf,
    /// The answer that most of several samples of the start give.
    MajorityOf,
    /// Supervised fine-tuning on the start's own best episodes, in rounds.
    RejectionSampling(Budget),
    /// Supervised fine-tuning on careful demonstrations.
    Demonstrations(Budget),
    /// A script of the environment.
    Script(&'static str),
}

/// The budget of a baseline that learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    /// As many episodes as the run.
    Episodes,
    /// As many seconds as the run.
    Seconds,
}

/// The baselines of every environment.
const METHODS: [(&str, Baseline); 7] = [
    ("forced_search", Baseline::ForcedSearch),
    ("best_of_8", Baseline::BestOf),
    ("majority_of_8", Baseline::MajorityOf),
    (
        "rejection_sampling",
        Baseline::RejectionSampling(Budget::Episodes),
    ),
    (
        "rejection_sampling_timed",
        Baseline::RejectionSampling(Budget::Seconds),
    ),
    ("demonstrations", Baseline::Demonstrations(Budget::Episodes)),
    (
        "demonstrations_timed",
        Baseline::Demonstrations(Budget::Seconds),
    ),
];

impl Baseline {
    /// Number of samples of the start among which the best or the majority is chosen.
    pub(crate) const SAMPLES: usize = 8;

    /// The baselines that a config asks for, each with its name, which for a script differs from a twin's.
    ///
    /// # Errors
    /// A sentence that names what cannot be made under this config, and the fix.
    pub(crate) fn asked(config: &RunConfig, entry: &EnvEntry) -> Result<Vec<(String, Self)>> {
        let names = &config.evaluation.baselines;
        names
            .iter()
            .enumerate()
            .map(|(place, name)| {
                if names[..place].contains(name) {
                    refuse!("evaluation.baselines names {name} twice; name it once");
                }
                let baseline = Self::named(name, entry)?;
                baseline.check(name, config, entry)?;
                let shown = match baseline {
                    Self::Script(script) => format!("script-{script}"),
                    _ => name.clone(),
                };
                Ok((shown, baseline))
            })
            .collect()
    }

    fn named(name: &str, entry: &EnvEntry) -> Result<Self> {
        let scripts = entry
            .scripts
            .iter()
            .map(|script| (script.name, Self::Script(script.name)));
        let known: Vec<(&str, Self)> = METHODS.into_iter().chain(scripts).collect();
        let found = known.iter().find(|(known, _)| *known == name);
        found.map(|(_, baseline)| *baseline).ok_or_else(|| {
            let names = known.iter().map(|(name, _)| *name);
            RunError::config(format!(
                "evaluation.baselines: there is no baseline `{name}`; {}",
                suggestion(name, names)
            ))
        })
    }

    fn check(self, name: &str, config: &RunConfig, entry: &EnvEntry) -> Result<()> {
        let fault = match self {
            Self::BestOf | Self::MajorityOf if config.evaluation.samples < Self::SAMPLES => {
                Some(format!(
                    "needs evaluation.samples of {} or more, which is {}",
                    Self::SAMPLES,
                    config.evaluation.samples
                ))
            }
            Self::MajorityOf if entry.outcome == Outcome::Ranking => Some(format!(
                "votes on answers, and {} ends in rankings; use best_of_8",
                entry.id
            )),
            Self::ForcedSearch if entry.outcome == Outcome::Ranking => Some(format!(
                "is for episodes that end in answers, and {} ends in rankings; remove it",
                entry.id
            )),
            Self::ForcedSearch | Self::Demonstrations(_) if config.policy.chat.is_some() => Some(
                "is written in the tags of plain text, and [policy.chat] plays chats; remove it"
                    .to_owned(),
            ),
            Self::RejectionSampling(_) if config.sampler.is_some() => Some(
                "plays with the engine of this process, and [sampler] names a server; remove it"
                    .to_owned(),
            ),
            _ => None,
        };
        fault.map_or(Ok(()), |fault| {
            let what = format!("evaluation.baselines: {name} {fault}");
            Err(RunError::config(what))
        })
    }
}

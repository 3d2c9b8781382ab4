//! Spurious twins: the same run under a reward, or labels, that cannot teach the task (Shao et al. 2025). A gain that a twin makes as
//! well is not due to the reward.

use std::str::FromStr;

use forage_contracts::environment::Outcome;
use forage_contracts::{EnvEntry, suggestion};
use forage_env::registry;

use crate::config::Resolved;
use crate::error::{Context, Result, RunError, bail};

/// Rewards that are a twin's only one, with weight 1.
const REWARDS: [&str; 6] = [
    "random",
    "format_only",
    "any_search",
    "constant",
    "inverse",
    "majority",
];
/// Labels that a twin has in place of the accepted answers of the training questions.
const LABELS: [&str; 2] = ["shuffled", "wrong"];

/// A kind of twin, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin(&'static str);

impl FromStr for Twin {
    type Err = RunError;

    fn from_str(name: &str) -> Result<Self> {
        let known = || REWARDS.into_iter().chain(LABELS);
        let found = known().find(|twin| *twin == name);
        found.map(Self).ok_or_else(|| {
            RunError::config(format!(
                "there is no twin `{name}`; {}",
                suggestion(name, known())
            ))
        })
    }
}

impl Twin {
    /// Its name, and that of its folder.
    pub(crate) fn name(self) -> &'static str {
        self.0
    }

    /// The configs of a run's twins, with their names.
    ///
    /// # Errors
    /// When the run's own labels are false, a twin is named twice, or as [`Twin::of`].
    pub(crate) fn all(config: &Resolved, twins: &[Self]) -> Result<Vec<(&'static str, Resolved)>> {
        if !twins.is_empty() && !config.data.labels.are_true() {
            bail!("--twins stand beside a run with true labels; remove data.labels");
        }
        let mut all = Vec::new();
        for (place, twin) in twins.iter().enumerate() {
            if twins[..place].contains(twin) {
                bail!("--twins names {} twice; name it once", twin.name());
            }
            all.push((twin.name(), twin.of(config)?));
        }
        Ok(all)
    }

    /// The config of a run's twin. The sentinel does not stop a twin, which is meant to fail.
    ///
    /// # Errors
    /// When the environment's episodes are not graded by labels, or the twin would learn from the true answers all the same.
    pub(crate) fn of(self, config: &Resolved) -> Result<Resolved> {
        let relabelled = LABELS.contains(&self.0);
        let entry = registry::find(&config.environment.id)?;
        self.check_ignorance(config, entry, relabelled)?;
        let labels = if relabelled {
            self.0.parse().context("data.labels")?
        } else {
            config.data.labels.clone()
        };
        config.vary(|twin| {
            twin.grpo.sentinel.stop = false;
            twin.data.labels = labels;
            if !relabelled {
                twin.reward = [(self.0.to_owned(), 1.0.into())].into();
            }
        })
    }
}

impl Twin {
    /// Refuses a config that reveals to the twin what is right in other ways than by its reward or labels.
    fn check_ignorance(self, config: &Resolved, entry: &EnvEntry, relabelled: bool) -> Result<()> {
        let settings = config.environment.resolved()?.settings;
        let told = if config.grpo.has_hints() {
            Some(("grpo.hints".to_owned(), "shows it the oracle's way"))
        } else if relabelled {
            // With false labels, everything that reads answers reads the false ones.
            None
        } else if let Some(setting) = (entry.tells_golds)(&settings) {
            let key = format!("environment.settings.{setting}");
            Some((key, "goes by the gold answers"))
        } else if config.grpo.update.answer_lead.is_some() {
            let key = "grpo.update.objective.credit".to_owned();
            Some((key, "asks for the gold answers"))
        } else {
            // Rankings have no accuracy apart from the reward, which is the twin's own.
            let sorting = config.grpo.sorts_by_accuracy();
            let sorting = sorting.filter(|_| entry.outcome == Outcome::Answer);
            sorting.map(|key| (format!("grpo.{key}"), "tells right answers from wrong ones"))
        };
        let Some((key, what)) = told else {
            return Ok(());
        };
        let or = if config.grpo.has_hints() {
            ""
        } else {
            ", or have the twins shuffled and wrong alone, whose answers are false there too"
        };
        Err(RunError::config_because(
            format!(
                "twin `{}` would not be without information: {key} {what} whatever its {} are",
                self.0,
                if relabelled { "labels" } else { "rewards" }
            ),
            format!("leave {key} out{or}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;

    fn smoke(overrides: &[&str]) -> Resolved {
        let overrides: Vec<String> = overrides.iter().map(|&item| item.to_owned()).collect();
        let text = include_str!("../../configs/smoke.toml");
        let config = RunConfig::parse(text, &overrides).unwrap();
        config.resolve(None).unwrap()
    }

    #[test]
    fn every_twin_is_a_run_that_can_be_made() {
        let config = smoke(&[]);
        for twin in REWARDS.into_iter().chain(LABELS).map(Twin) {
            let made = twin.of(&config).unwrap().to_toml().unwrap();
            let again = RunConfig::parse(&made, &[]).unwrap();
            assert_ne!(
                (&again.reward, &again.data.labels),
                (&config.reward, &config.data.labels),
                "{}",
                twin.name()
            );
            assert!(!again.grpo.sentinel.stop);
        }
        let queries = smoke(&[
            "environment={ id = \"query-writer\" }",
            "reward={ ndcg = 1.0 }",
        ]);
        let error = Twin("wrong").of(&queries).unwrap_err().to_string();
        assert!(error.contains("graded by passages"), "{error}");
    }

    #[test]
    fn a_twin_that_would_be_told_the_answers_is_refused() {
        let gain = [
            "grpo.update.objective.algorithm=\"grpo\"",
            "grpo.update.objective.credit={ information_gain = { gamma = 1.0 } }",
            "grpo.update.answer_lead=\"<answer>\"",
        ];
        let shown = ["environment.settings.gold_shown_reward=0.5"];
        let hints = ["grpo.hints={ rounds = 2, first = 0.5 }"];
        for (overrides, key) in [
            (&gain[..], "grpo.update.objective.credit"),
            (&shown[..], "environment.settings.gold_shown_reward"),
            (&hints[..], "grpo.hints"),
        ] {
            let config = smoke(overrides);
            let error = format!("{:?}", Twin("random").of(&config).unwrap_err());
            assert!(error.contains(key), "{error}");
            let relabelled = Twin("shuffled").of(&config);
            assert_eq!(relabelled.is_err(), key == "grpo.hints", "{key}");
        }
    }

    #[test]
    fn a_twin_that_would_tell_right_answers_by_other_keys_is_refused() {
        let frontier = ["grpo.trees=1", "grpo.branching={ frontier = {} }"];
        let solved = ["grpo.trees=1", "grpo.solved=8"];
        let confident = ["grpo.confident_wrong=true"];
        let waiting = ["grpo.recomposition={ share = 0.5, compensation = 0.5, capacity = 8 }"];
        for (overrides, key) in [
            (&frontier[..], "grpo.branching.frontier"),
            (&solved[..], "grpo.solved"),
            (&confident[..], "grpo.confident_wrong"),
            (&waiting[..], "grpo.recomposition"),
        ] {
            let config = smoke(overrides);
            let error = format!("{:?}", Twin("format_only").of(&config).unwrap_err());
            assert!(error.contains(&format!("leave {key} out")), "{error}");
            assert!(Twin("wrong").of(&config).is_ok(), "{key}");
            // Of a ranking only the reward says whether it is right.
            let ranking = [
                "environment={ id = \"query-writer\" }",
                "reward={ ndcg = 1.0 }",
            ];
            let config = smoke(&[overrides, &ranking[..]].concat());
            assert!(Twin("random").of(&config).is_ok(), "{key}");
        }
        // Which questions are asked says nothing of which of their answers are right.
        let chosen = smoke(&[
            "grpo.curriculum={ alignment = { epochs = 1, threshold = 0.6 } }",
            "grpo.update.objective.algorithm=\"grpo\"",
            "grpo.update.objective.filter={ accuracy_band = { lowest = 0.2, highest = 0.8 } }",
        ]);
        assert!(Twin("random").of(&chosen).is_ok());
    }

    #[test]
    fn a_twin_that_is_named_twice_is_refused_before_the_run() {
        let named = |names: &[&'static str]| {
            let twins: Vec<Twin> = names.iter().copied().map(Twin).collect();
            Twin::all(&smoke(&[]), &twins)
        };
        let found = named(&["random", "wrong"]).unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["random", "wrong"]);
        let error = named(&["random", "wrong", "random"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("--twins names random twice"), "{error}");
    }

    #[test]
    fn an_unknown_twin_is_named_with_the_nearest() {
        let unknown = "randm".parse::<Twin>().unwrap_err().to_string();
        assert!(unknown.contains("did you mean `random`"), "{unknown}");
    }
}

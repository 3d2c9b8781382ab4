//! Spurious twins: the same run under a reward, or labels, that cannot teach the task (Shao et al. 2025). What a twin gains as
//! well is not a gain of the reward.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use forage_env::dataset::Labels;
use forage_env::environment::Outcome;
use forage_env::nearest::nearest;

use crate::config::RunConfig;

/// Folder of a run that its twins' folders stand in.
pub(crate) const FOLDER: &str = "twins";

/// A kind of twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Twin {
    /// Its name, and that of its folder.
    pub(crate) name: &'static str,
    changed: Changed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Changed {
    /// This part alone, with weight 1.
    Reward,
    /// The accepted answers of the training questions.
    Labels,
}

const TWINS: [Twin; 7] = [
    Twin { name: "random", changed: Changed::Reward },
    Twin { name: "format_only", changed: Changed::Reward },
    Twin { name: "constant", changed: Changed::Reward },
    Twin { name: "inverse", changed: Changed::Reward },
    Twin { name: "majority", changed: Changed::Reward },
    Twin { name: "shuffled", changed: Changed::Labels },
    Twin { name: "wrong", changed: Changed::Labels },
];

impl FromStr for Twin {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        TWINS.into_iter().find(|twin| twin.name == name).ok_or_else(|| {
            let names = TWINS.map(|twin| twin.name);
            format!(
                "there is no twin `{name}`; did you mean `{}`? There are {}",
                nearest(name, names),
                names.join(", ")
            )
        })
    }
}

impl Twin {
    /// The config of the twin of a run. The sentinel does not stop it: being ruined is what it is for.
    ///
    /// # Errors
    /// In words, where the environment's episodes are not graded by labels.
    pub(crate) fn of(self, config: &RunConfig, outcome: Outcome) -> Result<RunConfig, String> {
        let mut twin = config.clone();
        twin.grpo.sentinel.stop = false;
        match self.changed {
            Changed::Reward => twin.reward = [(self.name.to_owned(), 1.0.into())].into(),
            Changed::Labels if outcome == Outcome::Query => {
                return Err(format!(
                    "twin `{}` changes answers, and queries are graded by passages; use random",
                    self.name
                ));
            }
            Changed::Labels => {
                twin.data.labels = self.name.parse::<Labels>().map_err(|cause| cause.to_string())?;
            }
        }
        Ok(twin)
    }
}

/// The folders of a run's twins by name, in order; none where it has none.
pub(crate) fn folders(run: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(run.join(FOLDER)).into_iter().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), entry.path()))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_twin_is_a_run_that_can_be_made() {
        let config = RunConfig::parse(include_str!("../../configs/smoke.toml"), &[]).unwrap();
        for twin in TWINS {
            let made = twin.of(&config, Outcome::Answer).unwrap().to_toml().unwrap();
            let again = RunConfig::parse(&made, &[]).unwrap();
            assert_ne!((&again.reward, &again.data.labels), (&config.reward, &config.data.labels), "{}", twin.name);
            assert!(!again.grpo.sentinel.stop);
        }
        let [.., wrong] = TWINS;
        assert!(wrong.of(&config, Outcome::Query).unwrap_err().contains("graded by passages"));
        assert!("randm".parse::<Twin>().unwrap_err().contains("did you mean `random`"));
    }
}

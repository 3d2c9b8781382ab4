//! Runs that begin with the checkpoint of another.

use std::path::{Path, PathBuf};

use forage_trainer::checkpoint::fork;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::RunConfig;
use crate::error::{Result, RunError};
use crate::layout::{RunLayout, STEP_RECORDS};
use crate::policy::taught_another;

/// The record of what a run began with, in its folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Forked {
    /// The other run, or its checkpoint, as it was named.
    pub(crate) from: PathBuf,
    /// Steps of the other run, whose rows come first in the records of this one.
    pub(crate) steps: u64,
}

impl Forked {
    /// Begins the run of a new folder, of settings with this digest, with the newest checkpoint of `other`, or the checkpoint there.
    pub(crate) fn begin(other: &Path, layout: &RunLayout, digest: &str) -> Result<Self> {
        let forked = Self {
            from: other.to_owned(),
            steps: fork(other, layout.folder(), digest, &STEP_RECORDS)?,
        };
        let text = serde_json::to_string(&forked)?;
        layout.record(&layout.forked(), &text, false)?;
        Ok(forked)
    }

    /// The record in a run's folder; `None` where the run is not a fork, or the record not one.
    pub(crate) fn read(layout: &RunLayout) -> Option<Self> {
        let text = std::fs::read_to_string(layout.forked()).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The part of a sentence about the run that says where its own steps begin.
    pub(crate) fn words(&self) -> String {
        // Rows count steps from 0; progress and these words from 1.
        let (from, first) = (self.from.display(), self.steps + 1);
        format!("forked from {from}, whose steps come first: its own begin with step {first}")
    }
}

/// Refuses a run that would take no step of its own, as the checkpoint that it begins with has done as many or more.
pub(crate) fn check_steps(other: &Path, config: &RunConfig) -> Result<()> {
    let steps = config.grpo.steps;
    match steps_of(other) {
        Some(done) if done >= steps => Err(RunError::config_because(
            format!(
                "grpo.steps is {steps}, and --from {} begins after {done}",
                other.display()
            ),
            format!("the steps of that run count; give more than {done}"),
        )),
        _ => Ok(()),
    }
}

/// Says of a checkpoint that it was trained in another environment than the config's.
pub(crate) fn elsewhere(other: &Path, config: &RunConfig) -> Option<String> {
    let run = if is_checkpoint(other) {
        other.parent()?.parent()?
    } else {
        other
    };
    let policy = RunLayout::new(run).policy();
    taught_another(&policy.to_string_lossy(), &config.environment.id)
}

fn is_checkpoint(place: &Path) -> bool {
    place.join("state.json").exists()
}

/// Steps that the checkpoint has done with which a fork begins; `None` where nothing tells, which is left to the fork.
fn steps_of(other: &Path) -> Option<u64> {
    if is_checkpoint(other) {
        let text = std::fs::read_to_string(other.join("state.json")).ok()?;
        let state: Value = serde_json::from_str(&text).ok()?;
        return state["step"].as_u64();
    }
    let done = RunLayout::new(other).saved_steps();
    (done > 0).then_some(done)
}

/// Tells whether the newest checkpoint of a run was saved under the settings with this digest, as far as it says so.
pub(crate) fn is_of(run: &RunLayout, digest: &str) -> bool {
    let newest = format!("step-{:06}", run.saved_steps());
    let state = run.checkpoints().join(newest).join("state.json");
    let text = std::fs::read_to_string(state).unwrap_or_default();
    let state: Value = serde_json::from_str(&text).unwrap_or_default();
    state["config_digest"] == digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::make_folder;
    use crate::run_folder::RunFolder;
    use crate::tracked::TrackedRun;

    fn config(steps: u64) -> RunConfig {
        let text = include_str!("../../configs/smoke.toml");
        RunConfig::parse(text, &[format!("grpo.steps={steps}")]).unwrap()
    }

    #[test]
    fn a_fork_must_have_steps_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunLayout::new(folder.path());
        let checkpoint = |step: u64| run.checkpoints().join(format!("step-{step:06}"));
        // A folder without a checkpoint is refused by the fork.
        check_steps(folder.path(), &config(1)).unwrap();
        for step in [5, 8] {
            make_folder(&checkpoint(step)).unwrap();
            let state = format!("{{\"step\": {step}}}");
            std::fs::write(checkpoint(step).join("state.json"), state).unwrap();
        }
        for (place, done) in [(folder.path(), 8), (&*checkpoint(5), 5)] {
            for steps in [done - 1, done] {
                let error = check_steps(place, &config(steps)).unwrap_err();
                let error = crate::error::causes(&error);
                assert!(error.contains(&format!("give more than {done}")), "{error}");
            }
            check_steps(place, &config(done + 1)).unwrap();
        }
    }

    #[test]
    fn a_checkpoint_says_of_which_settings_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunLayout::new(folder.path());
        assert!(!is_of(&run, "a"));
        let checkpoint = run.checkpoints().join("step-000003");
        make_folder(&checkpoint).unwrap();
        let state = "{\"step\": 3, \"config_digest\": \"a\"}";
        std::fs::write(checkpoint.join("state.json"), state).unwrap();
        assert!(is_of(&run, "a") && !is_of(&run, "b"));
    }

    #[test]
    fn a_fork_says_where_its_own_steps_begin() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunLayout::new(folder.path());
        assert_eq!(Forked::read(&run), None);
        let forked = Forked {
            from: PathBuf::from("runs/a"),
            steps: 2,
        };
        let text = serde_json::to_string(&forked).unwrap();
        std::fs::write(run.forked(), text).unwrap();
        assert_eq!(Forked::read(&run), Some(forked));
        std::fs::write(run.config(), "[grpo]\nsteps = 3\n").unwrap();
        let rows = "{\"step\":0,\"val/ndcg\":0.9,\"time/rollout_s\":8}\n{\"step\":1}\n{\"step\":2,\"time/rollout_s\":2}\n";
        std::fs::write(run.metrics(), rows).unwrap();
        let said = RunFolder::peek(folder.path()).unwrap().records[0].status();
        let words = "all 3 steps are done; forked from runs/a, whose steps come first: its own begin with step 3.";
        assert!(said.ends_with(words), "{said}");
        let listed = TrackedRun::all(folder.path()).unwrap();
        assert_eq!(listed[0].taken_over().as_deref(), Some("2 of runs/a"));
        // The validation and the time of the other run are not this one's.
        assert_eq!((listed[0].validation, listed[0].best()), (None, None));
        assert_eq!((listed[0].steps, listed[0].seconds), (3, Some(2.0)));
    }

    #[test]
    fn a_fork_into_another_environment_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunLayout::new(folder.path());
        let checkpoint = run.checkpoints().join("step-000001");
        make_folder(&checkpoint).unwrap();
        std::fs::write(checkpoint.join("state.json"), "{\"step\": 1}").unwrap();
        let text = include_str!("../../configs/smoke.toml");
        std::fs::write(run.config(), text).unwrap();
        let math = RunConfig::parse(text, &["environment={ id = \"math\" }".to_owned()]).unwrap();
        for place in [folder.path(), &*checkpoint] {
            assert_eq!(elsewhere(place, &config(4)), None);
            let told = elsewhere(place, &math).unwrap();
            assert!(
                told.contains("was taught search-r1 and plays math"),
                "{told}"
            );
        }
    }
}

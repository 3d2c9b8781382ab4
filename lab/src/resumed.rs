//! Settings of a resumed run that are not those it was started with: reasons why it cannot go on, and what it says where it can.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use forage_trainer::checkpoint::CheckpointError;
use forage_trainer::run::RunError as TrainerError;
use serde_json::Value;

use crate::config::{Resolved, Stamp};
use crate::error::RunError;
use crate::run_folder::settings;
use crate::tracked::flatten;

/// Differences that are named, at most.
const NAMED: usize = 5;
/// Longest value that is shown, characters.
const SHOWN: usize = 60;

/// The error of a run; one that refuses its checkpoint for its settings says which they are, one of lost episodes how the run goes on.
/// `shapes` are the settings that a resumed run must keep, those of `record`, the file with the settings it was started with, and those of
/// now.
pub(crate) fn explained(
    error: TrainerError,
    record: &Path,
    shapes: impl FnOnce() -> Option<[Value; 2]>,
) -> RunError {
    if matches!(&error, TrainerError::Infra { .. }) {
        let what = "the run stopped; mend what failed, and --resume continues it".to_owned();
        let source = Some(error.into());
        return RunError::Stage { what, source };
    }
    let error = match error {
        TrainerError::Checkpoint(error @ CheckpointError::Settings { .. }) => error,
        error @ TrainerError::Shorter { .. } => return RunError::config(error.to_string()),
        error => return error.into(),
    };
    let Some([before, now]) = shapes() else {
        return RunError::config(error.to_string());
    };
    let record = record.display();
    let what = match differences(&before, &now) {
        None => format!(
            "the run has the settings of {record}: what it learns from, what it searches or the program's version is another"
        ),
        Some(others) => format!("{record} has other settings: {others}"),
    };
    RunError::config_because(what, error)
}

/// The settings of a config that are not those of a run's record, with both values; `None` where there are none or no record can be read.
pub(crate) fn changed(record: &Path, config: &Resolved) -> Option<String> {
    let text = |config: &Resolved| {
        let mut config = (**config).clone();
        config.data.digests = None;
        config.stamp = Stamp::default();
        config.to_toml().ok()
    };
    let before = Resolved::read(record, &[], None).ok()?;
    let [before, now] = [text(&before)?, text(config)?].map(|text| settings(&text));
    differences(&before, &now)
}

/// The settings that differ in words, the first of many; `None` where all are the same.
pub(crate) fn differences(before: &Value, now: &Value) -> Option<String> {
    let mut found = differing(before, now);
    let more = found.len().saturating_sub(NAMED);
    found.truncate(NAMED);
    if more > 0 {
        found.push(format!("{more} more"));
    }
    (!found.is_empty()).then(|| found.join("; "))
}

/// The settings that differ, with both values.
fn differing(before: &Value, now: &Value) -> Vec<String> {
    let [before, now] = [before, now].map(|settings| {
        let mut flat = BTreeMap::new();
        flatten(settings, "", &mut flat);
        flat
    });
    let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let others = keys
        .into_iter()
        .filter(|&key| before.get(key) != now.get(key));
    let told = |key: &String| {
        let [was, is] = [before.get(key), now.get(key)].map(shown);
        format!("{key} was {was} and is {is}")
    };
    others.map(told).collect()
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "not set".to_owned();
    };
    let text = value.to_string();
    if text.chars().count() <= SHOWN {
        return text;
    }
    let begin: String = text.chars().take(SHOWN).collect();
    format!("{begin}...")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use forage_contracts::{Boundary, Ending, Episode, Task};
    use forage_env::InfraBudget;
    use serde_json::json;

    use super::*;
    use crate::config::RunConfig;
    use crate::error::causes;

    fn settings_error() -> TrainerError {
        let path = PathBuf::from("state.json");
        TrainerError::Checkpoint(CheckpointError::Settings { path })
    }

    #[test]
    fn the_settings_that_differ_are_named_with_both_values() {
        let told = |before: Value, now: Value| {
            let record = Path::new("run/config.toml");
            explained(settings_error(), record, || Some([before, now])).to_string()
        };
        let before = json!({"seed": 1, "grpo": {"group_size": 5, "rules": ["a"]}});
        let now = json!({"seed": 1, "grpo": {"group_size": 4}, "name": "x"});
        assert_eq!(
            told(before.clone(), now),
            "run/config.toml has other settings: grpo.group_size was 5 and is 4; grpo.rules was [\"a\"] and is not set; \
             name was not set and is \"x\""
        );
        assert!(told(before.clone(), before).contains("what it learns from"));
        let many: serde_json::Map<_, _> = (0..7)
            .map(|key| (key.to_string(), "y".repeat(99).into()))
            .collect();
        let words = told(json!({}), many.into());
        assert!(words.ends_with("yyy...; 2 more"), "{words}");
    }

    #[test]
    fn settings_that_a_resumed_run_changes_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("config.toml");
        let text = include_str!("../../configs/quickstart.toml");
        let of = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
            RunConfig::parse(text, &keys)
                .unwrap()
                .resolve(None)
                .unwrap()
        };
        let begun = of(&["grpo.steps=40", "grpo.checkpoint_every=10"]);
        std::fs::write(&record, begun.record(None, None).unwrap()).unwrap();
        assert_eq!(changed(&record, &begun), None);
        let told = changed(
            &record,
            &of(&["grpo.steps=100", "grpo.checkpoint_every=50"]),
        );
        let words = "grpo.checkpoint_every was 10 and is 50; grpo.steps was 40 and is 100";
        assert_eq!(told.as_deref(), Some(words));
    }

    #[test]
    fn another_error_is_left_as_it_is() {
        let error = TrainerError::NoTasks;
        let words = error.to_string();
        let left = explained(error, Path::new("x"), || unreachable!("not asked"));
        assert_eq!(left.to_string(), words);
        let unread = explained(settings_error(), Path::new("x"), || None);
        assert!(!unread.to_string().contains("has other settings"));
    }

    #[test]
    fn a_run_that_lost_its_episodes_says_how_it_goes_on() {
        let budget = InfraBudget::default();
        let lost = Episode {
            ending: Ending::Infra {
                boundary: Boundary::Environment,
                message: "down".into(),
            },
            ..Episode::new(Task::new("a", "Who?"))
        };
        let source = budget.check(&[lost]).unwrap_err();
        let error = TrainerError::Infra { step: 0, source };
        let told = explained(error, Path::new("x"), || unreachable!("not asked"));
        let words = causes(&told);
        assert!(
            words.contains("--resume") && words.contains("step 0 lost too many episodes"),
            "{words}"
        );
    }
}

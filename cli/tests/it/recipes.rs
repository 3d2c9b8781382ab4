//! `forage recipes`: what is printed is a config that `forage train` takes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{done, forage, text};

/// The configs that nobody published, behind the recipes of the list.
const OWN: [&str; 5] = [
    "quickstart",
    "quickstart-code",
    "smoke",
    "query-writer",
    "rerank",
];

#[test]
fn a_recipe_that_was_shown_is_a_config() {
    let folder = tempfile::tempdir().unwrap();
    let listed = done(&["recipes", "list"]);
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(
        names.len() >= 12 && names.contains(&"search_r1_v02") && names.ends_with(&OWN),
        "{listed}"
    );
    for name in names {
        let file = folder.path().join(format!("{name}.toml"));
        std::fs::write(&file, done(&["recipes", "show", name])).unwrap();
        // The plan is printed whatever is missing of the published data and models.
        let output = forage(&["train", name, "--dry-run"]);
        let plan = String::from_utf8(output.stdout).unwrap();
        assert!(plan.contains("episodes in all"), "{name}: {plan}");
        let same = done(&["recipes", "diff", name, text(&file)]);
        assert!(same.contains("say the same"), "{same}");
    }
}

/// The same file with a tiny model of its family and tiny data of its shape: three steps, of which most recipes learn something.
#[test]
fn every_recipe_runs_in_miniature() {
    let folder = tempfile::tempdir().unwrap();
    let listed = done(&["recipes", "list"]);
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let names = names.strip_suffix(&OWN).unwrap();
    let waiting = Mutex::new(names.iter().copied());
    let learned = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(name) = { waiting.lock().unwrap().next() } {
                    let place = folder.path().join(name);
                    let said =
                        done(&["recipes", "run", name, "--miniature", "--out", text(&place)]);
                    for changed in ["policy.checkpoint ", "grpo.steps ", "data.files.train "] {
                        let row = said.lines().find(|line| line.starts_with(changed));
                        assert!(row.is_some(), "{name}: {changed} is not told: {said}");
                    }
                    let rows = std::fs::read_to_string(place.join("run/metrics.jsonl")).unwrap();
                    let rows: Vec<serde_json::Value> = rows
                        .lines()
                        .map(|row| serde_json::from_str(row).unwrap())
                        .collect();
                    assert_eq!(rows.len(), 3, "{name}");
                    let updates = |row: &serde_json::Value| row["policy/updates"].as_f64().unwrap();
                    if rows.iter().map(updates).sum::<f64>() > 0.0 {
                        learned.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(
        learned.into_inner() * 4 >= names.len() * 3,
        "most of them learn"
    );
}

#[test]
fn machines_read_a_diff_with_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let shown = done(&["recipes", "show", "search_r1_v02"]);
    let changed = shown
        .replace("learning_rate = 1e-6", "learning_rate = 2e-6")
        .replace("learning_rate = 0.000001", "learning_rate = 2e-6");
    assert_ne!(changed, shown);
    std::fs::write(&file, changed).unwrap();
    let found: serde_json::Value = serde_json::from_str(&done(&[
        "recipes",
        "diff",
        "search_r1_v02",
        text(&file),
        "--json",
    ]))
    .unwrap();
    let expected =
        serde_json::json!([{"key": "grpo.update.optimizer.learning_rate", "a": 1e-6, "b": 2e-6}]);
    assert_eq!(found["differences"], expected);
}

#[test]
fn the_steps_of_a_batch_are_side_by_side() {
    let table = done(&["recipes", "diff", "search_r1_v02", "verl"]);
    let row = table
        .lines()
        .find(|line| line.starts_with("grpo.update.minibatches"))
        .unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["grpo.update.minibatches", "10", "2"]
    );
}

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    for arguments in [
        &["recipes", "show", "search_r1_v2"][..],
        &["recipes", "diff", "search_r1_v2", "verl"],
    ] {
        let output = forage(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains("did you mean `search_r1_v0"),
            "{error}"
        );
    }
    let output = forage(&["recipes", "diff", "verl", "nowhere.toml"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && error.contains("no config file nowhere.toml"),
        "{error}"
    );
}

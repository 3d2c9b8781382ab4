//! The commands of the guide, run in its order.

use std::path::Path;
use std::process::{Command, Stdio};

/// The commands of `docs/plugging-in.md`, as words.
fn commands(guide: &str) -> Vec<Vec<String>> {
    let fenced = guide.split("```").skip(1).step_by(2).flat_map(str::lines);
    let ours = fenced.filter_map(|line| line.strip_prefix("forage-examples "));
    ours.map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect()
}

#[test]
fn the_guide_can_be_followed_to_the_end() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guide = std::fs::read_to_string(root.join("docs/plugging-in.md")).expect("the guide");
    let place = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(place.path().join("examples")).expect("a folder");
    for file in ["sql.toml", "notes.toml", "notes.jsonl", "quiz.jsonl"] {
        let file = Path::new("examples").join(file);
        std::fs::copy(root.join(&file), place.path().join(&file)).expect("a file of the example");
    }
    let commands = commands(&guide);
    assert!(commands.len() >= 10, "{commands:?}");
    let mut said = String::new();
    for words in &commands {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forage-examples"));
        let ran = command
            .args(words)
            .current_dir(place.path())
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let (out, err) = (
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr),
        );
        assert!(ran.status.success(), "{words:?}: {out}{err}");
        said.push_str(&out);
    }
    for part in [
        "lab/sql-v0",
        "rows_match",
        "Question: ",
        "50 equal, 0 different",
        "trained policy in runs/sql/policy",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let metrics =
        std::fs::read_to_string(place.path().join("runs/sql/metrics.jsonl")).expect("metrics");
    assert_eq!(metrics.lines().count(), 2, "{metrics}");
    assert!(metrics.contains("rows_match"), "{metrics}");
    let resolved = std::fs::read_to_string(place.path().join("runs/sql/config.toml"))
        .expect("the resolved config");
    let resolved: toml::Table = resolved.parse().expect("TOML");
    assert!(
        resolved["data"]["digests"]["train"]
            .as_str()
            .is_some_and(|digest| digest.len() == 64)
    );
}

#[test]
fn a_config_without_the_plug_ins_is_refused_by_name() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forage-examples"));
    let ran = command
        .args(["train", "--dry-run"])
        .arg(&config)
        .args(["--set", "environment.id=sqll"])
        .output()
        .expect("it runs");
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.code() == Some(2) && err.contains("did you mean `sql`?"),
        "{err}"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_forage-examples"));
    let ran = command
        .args(["train", "--dry-run"])
        .arg(&config)
        .args([
            "--set",
            "environment.id=search-r1",
            "--set",
            "environment.settings={}",
        ])
        .output()
        .expect("it runs");
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.code() == Some(2) && err.contains("has no questions of its own"),
        "{err}"
    );
}

//! The commands of the guide, run in its order: those of the page about plug-ins, and the tutorial about an environment.

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

/// The fenced blocks of a document: what follows the fence, and the text.
fn blocks(document: &str) -> Vec<(&str, &str)> {
    let fenced = document.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n')).collect()
}

/// `forage` and `forage-examples` are one program here: the plug-ins change nothing for the commands that name none of them.
#[test]
fn what_the_tutorial_plays_in_python_plays_again_in_rust() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tutorial = std::fs::read_to_string(root.join("docs/tutorial-environment.md"));
    let tutorial = tutorial.expect("the tutorial");
    let place = tempfile::tempdir().expect("a folder");
    let program = env!("CARGO_BIN_EXE_forage-examples");
    let mut script = format!(
        "set -euo pipefail\nforage() {{ '{program}' \"$@\"; }}\nforage-examples() {{ '{program}' \"$@\"; }}\n"
    );
    for (fence, text) in blocks(&tutorial) {
        if let Some((_, name)) = fence.split_once(",file=") {
            std::fs::write(place.path().join(name), text).expect("a file of the tutorial");
        }
        if fence == "sh" || fence == "sh,examples" {
            script.push_str(text);
        }
    }
    let ran = Command::new("bash")
        .args(["-c", &script])
        .current_dir(place.path())
        // As if the package were installed.
        .env("PYTHONPATH", root.join("clients/python/src"))
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{out}{err}");
    assert!(
        out.contains("200 episodes: 200 equal, 0 different"),
        "{out}{err}"
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

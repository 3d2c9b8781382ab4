//! Calling the program.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) const SMOKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/smoke.toml");

/// Runs the program to its end.
pub(crate) fn forage(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forage"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs a command that must succeed; returns what it prints.
pub(crate) fn done(arguments: &[&str]) -> String {
    let ran = forage(arguments);
    assert!(
        ran.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
    String::from_utf8(ran.stdout).unwrap()
}

/// What a command that must succeed prints with `--json`.
pub(crate) fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&done(&[arguments, &["--json"]].concat())).unwrap()
}

/// Runs a command that must fail; returns its exit code and stderr.
pub(crate) fn fails(arguments: &[&str]) -> (i32, String) {
    let output = forage(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && !stderr.contains("panicked"),
        "{arguments:?}: {stderr}"
    );
    (output.status.code().unwrap(), stderr)
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file of JSON lines.
pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

//! The log: silent unless asked, lines that parse when it is.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const SMOKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/smoke.toml");

/// Trains two steps and returns the text of stderr.
fn trained(folder: &Path, name: &str, log: &[&str], variable: Option<&str>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forage"));
    command.env_remove("FORAGE_LOG");
    if let Some(filter) = variable {
        command.env("FORAGE_LOG", filter);
    }
    let out = folder.join(name);
    let ran = command
        .args(["train", SMOKE, "--set", "grpo.steps=2", "--out"])
        .arg(out)
        .args(log)
        .output()
        .unwrap();
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.success(), "{stderr}");
    stderr
}

#[test]
fn a_run_logs_a_line_per_step_when_asked_and_nothing_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let silent = trained(folder.path(), "silent", &[], None);
    assert!(!silent.contains("step done"), "{silent}");
    for part in [
        "memory: about",
        "train 2/2",
        "next: ",
        "; forage eval --controls ",
    ] {
        assert!(silent.contains(part), "{part}: {silent}");
    }
    let quiet = trained(folder.path(), "quiet", &["-q"], None);
    assert_eq!(quiet, "", "nothing to warn of");

    let text = trained(folder.path(), "text", &["--log", "info"], None);
    let steps: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("step done"))
        .collect();
    assert_eq!(steps.len(), 2, "{text}");
    for (step, line) in steps.into_iter().enumerate() {
        let (head, fields) = line.split_once("step done").unwrap();
        assert!(
            head.contains(&format!("INFO step{{step={step}}}: forage_trainer::run")),
            "{line}"
        );
        for field in fields.split_whitespace() {
            let (name, value) = field.split_once('=').unwrap();
            assert!(!name.is_empty() && value.parse::<f64>().is_ok(), "{line}");
        }
    }

    let variable = Some("forage_trainer=info,forage_env=debug");
    let json = trained(folder.path(), "json", &["--log-json"], variable);
    let lines: Vec<Value> = json
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let named = |message: &str| {
        let named = lines
            .iter()
            .filter(|line| line["fields"]["message"] == message);
        named.collect::<Vec<&Value>>()
    };
    let steps = named("step done");
    assert_eq!(steps.len(), 2);
    assert_eq!(
        steps[1]["span"],
        serde_json::json!({"name": "step", "step": 1})
    );
    let episodes = named("episode done");
    let asked: u64 = steps
        .iter()
        .map(|step| step["fields"]["episodes"].as_u64().unwrap())
        .sum();
    assert!(asked > 0 && episodes.len() as u64 >= asked, "{json}");
    for episode in episodes {
        assert!(episode["fields"]["tokens"].as_u64() > Some(0), "{episode}");
        assert!(episode["span"]["task"].is_string(), "{episode}");
    }
}

#[test]
fn a_filter_that_does_not_parse_is_an_error_of_the_command_line() {
    for log in [["--log", "forage_env=loud"], ["--log", "a=b=c"]] {
        let ran = Command::new(env!("CARGO_BIN_EXE_forage"))
            .arg("envs")
            .args(log)
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&ran.stderr).contains("--log"));
    }
}

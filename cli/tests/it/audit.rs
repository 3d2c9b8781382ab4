//! `forage audit`: every check with its status, for people and for programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn smoke() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/smoke.toml")
}

fn audit(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forage"))
        .arg("audit")
        .arg(smoke())
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_sound_experiment_passes_in_both_forms() {
    let few = ["--groups", "2"];
    let output = audit(&[&few[..], &["--json"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["holds"], true);
    let checks = found["checks"].as_array().unwrap();
    assert!(checks.len() > 20, "{checks:?}");
    for check in checks {
        assert!(
            ["pass", "warn"].contains(&check["status"].as_str().unwrap()),
            "{check}"
        );
        // What passes says nothing to do, a warning does.
        assert_eq!(check["fix"].is_null(), check["status"] == "pass", "{check}");
    }
    let output = audit(&few);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "config\n  pass  files: ",
        "  disk: about ",
        "\ncost\n  pass  time: 8 episodes in ",
        "\nrollouts\n",
        " to look at, 0 failed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_fails_ends_in_exit_code_one() {
    let gone = ["--set", "retriever.reranker=no-such-folder"];
    let output = audit(&gone);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("FAIL  files: retriever.reranker: there is no no-such-folder"),
        "{text}"
    );
}

#[test]
fn a_server_that_is_not_asked_is_named() {
    let settings = [
        "sampler.kind=sglang",
        "sampler.url=http://127.0.0.1:9",
        "sampler.context=320",
    ];
    let set = settings.iter().flat_map(|setting| ["--set", setting]);
    let output = audit(&["--groups", "1"].into_iter().chain(set).collect::<Vec<_>>());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("[sampler] is not asked"), "{told}");
}

#[test]
fn a_policy_that_cannot_be_fetched_fails_alone() {
    let cache = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_forage"))
        .args([
            "audit",
            "smoke",
            "--set",
            "policy.checkpoint=org/unheard-of",
        ])
        .env("HF_HOME", cache.path())
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "FAIL  policy: policy org/unheard-of cannot be used",
        "pass  leaks into dev: ",
        "rollouts\n  WARN  all checks: left out: needs the policy",
        " 1 failed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

//! Runs as people read them: `forage report` and `forage inspect`, on complete runs and on one that is being written.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/smoke.toml");

fn forage(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forage")).args(arguments).output().unwrap()
}

fn done(arguments: &[&str]) -> String {
    let ran = forage(arguments);
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

fn append(path: &Path, text: &str) {
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_quickstart_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let place = run.to_str().unwrap();
    done(&["quickstart", "--config", CONFIG, "--out", place]);
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    // 30 questions of three policies, greedy and sampled, and a group of four of both runs.
    assert!(page.contains("12 of 188 trajectories"), "the page of the run itself");
    assert!(page.contains("start, greedy") && page.contains("class=\"index\"") && page.contains("train questions"));
    let json: Value = serde_json::from_str(&done(&["report", place, "--json"])).unwrap();
    assert!(json["verdicts"]["run"]["gain"].is_f64());
    assert_eq!(json["evaluations"]["trained, sampled"]["questions"], 30);
    assert_eq!(json["training"][0]["arm"], "trained");
    let markdown = done(&["report", place, "--markdown"]);
    assert!(markdown.contains("| metric | start, greedy | start, sampled | trained, greedy |"), "{markdown}");

    let wrong = done(&["inspect", place, "--wrong", "-n", "3"]);
    assert!(wrong.contains("trained: all 4 steps are done.") && wrong.contains("[policy] "), "{wrong}");
    assert_eq!(wrong.matches("start, greedy, question").count(), 3, "{wrong}");
    assert!(!wrong.contains("em 1.00") && !wrong.contains('\x1b'), "{wrong}");
    let step = done(&["inspect", place, "--step", "0", "-n", "9"]);
    assert_eq!(step.matches(", step 0, group 0, member ").count(), 8, "{step}");
    assert!(done(&["inspect", place, "--question", "nobody's"]).contains("No recorded trajectory"));

    let episodes = run.join("evaluation/start.jsonl");
    let both = run.join("evaluation/trained.jsonl");
    let files: Value =
        serde_json::from_str(&done(&["report", episodes.to_str().unwrap(), both.to_str().unwrap(), "--json"])).unwrap();
    assert_eq!(files["evaluations"]["start"]["episodes"], 30);
    assert!(files["evaluations"]["trained"].is_object() && files["training"].as_array().unwrap().is_empty());
}

#[test]
fn a_run_that_is_being_written_is_read_as_far_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, two) = (place("seed-1"), place("seed-2"));
    done(&["train", CONFIG, "--out", &one, "--set", "grpo.steps=2"]);
    done(&["train", CONFIG, "--out", &two, "--set", "grpo.steps=2", "--set", "seed=2"]);
    let arms: Value = serde_json::from_str(&done(&["report", &one, &two, "--json"])).unwrap();
    assert_eq!(
        (&arms["training"][0]["arm"], &arms["training"][0]["runs"]),
        (&"seed-1, seed-2 (2 runs)".into(), &2.into())
    );
    assert_eq!(arms["training"].as_array().unwrap().len(), 1, "seeds make one arm");

    let rollouts = folder.path().join("seed-1/rollouts/step-000000.jsonl");
    append(&rollouts, "{\"schema\":1,\"rew");
    append(&folder.path().join("seed-1/metrics.jsonl"), "{\"step\":2,\"rew");
    let config = std::fs::read_to_string(folder.path().join("seed-1/config.toml")).unwrap();
    std::fs::write(folder.path().join("seed-1/config.toml"), config.replacen("steps = 2\n", "steps = 9\n", 1)).unwrap();
    let page = place("report.html");
    done(&["report", &one, "--out", &page, "--most", "3"]);
    let html = std::fs::read_to_string(&page).unwrap();
    for needle in [
        "seed-1: 2 of 9 steps are done",
        "whose next row is half written",
        "step-000000.jsonl: its last line is half written and left out",
        "3 trajectories are shown",
        "3 of 3 trajectories",
    ] {
        assert!(html.contains(needle), "{needle}");
    }
    assert!(done(&["inspect", &one]).contains("its last line is half written and left out"));
}

#[test]
fn what_is_no_run_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    for command in ["report", "inspect"] {
        let ran = forage(&[command, place]);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1));
        assert!(said.contains("is no run folder") && said.lines().count() == 1, "{said}");
    }
    let file = folder.path().join("words.jsonl");
    std::fs::write(&file, "not json\n").unwrap();
    let ran = forage(&["report", file.to_str().unwrap(), "--json"]);
    assert!(String::from_utf8_lossy(&ran.stderr).contains("line 1 is not an episode record"));
}

//! From questions to a policy that imitates its own best episodes: `forage collect`, then `forage sft`.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{SMOKE, done, fails, forage, json, lines, text};

#[test]
fn a_policy_imitates_its_own_best_episodes() {
    let folder = tempfile::tempdir().unwrap();
    let (config, best) = (SMOKE, folder.path().join("best.jsonl"));
    let collect = [
        "collect",
        config,
        "--samples",
        "4",
        "--questions",
        "150",
        "--temperature",
        "1.6",
        "--out",
    ];
    let output = forage(&[&collect[..], &[text(&best)]].concat());
    assert!(output.status.success());
    let next = format!(
        "next: forage sft {} --policy builtin:quickstart --out ",
        best.display()
    );
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(&next), "{told}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("150 questions, 600 episodes: kept")
            && said.contains(" of them, of ")
            && said.contains("0 infrastructure faults"),
        "{said}"
    );
    let kept = lines(&best);
    assert!(kept.len() > 10, "{} kept", kept.len());
    let questions: HashSet<&str> = kept
        .iter()
        .map(|record| record["episode"]["task"]["question"].as_str().unwrap())
        .collect();
    assert_eq!(questions.len(), kept.len(), "one of each question");
    assert!(
        kept.iter()
            .all(|record| record["reward"].as_f64() == Some(1.0))
    );

    let all = folder.path().join("all.jsonl");
    let said = json(&[&collect[..], &[text(&all), "--keep", "all-correct"]].concat());
    assert!(said["duplicates"].as_u64() > Some(0), "{said}");
    let correct = lines(&all);
    assert_eq!(said["kept"], correct.len());
    assert!(correct.len() > kept.len());
    let mut shortest: BTreeMap<String, u64> = BTreeMap::new();
    let question = |record: &Value| record["episode"]["task"]["question"].to_string();
    let length = |record: &Value| record["policy_tokens"].as_u64().unwrap();
    for record in &correct {
        let least = shortest.entry(question(record)).or_insert(u64::MAX);
        *least = (*least).min(length(record));
    }
    assert_eq!(shortest.len(), kept.len());
    assert!(
        kept.iter()
            .all(|record| shortest[&question(record)] == length(record)),
        "the best are the shortest"
    );

    let run = folder.path().join("run");
    let sft = [
        "sft",
        text(&best),
        "--policy",
        "builtin:quickstart",
        "--out",
        text(&run),
        "--epochs",
        "4",
    ];
    let said = done(
        &[
            &sft[..],
            &[
                "--learning-rate",
                "3e-4",
                "--validation",
                "0.2",
                "--validate-every",
                "2",
            ],
        ]
        .concat(),
    );
    let policy = run.join("policy");
    assert!(said.contains(text(&policy)), "{said}");
    let rows = lines(&run.join("metrics.jsonl"));
    let losses: Vec<f64> = rows
        .iter()
        .map(|row| row["sft/loss"].as_f64().unwrap())
        .collect();
    let quarter = losses.len().div_ceil(4);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let last = &losses[losses.len() - quarter..];
    assert!(mean(last) < mean(&losses[..quarter]), "{losses:?}");
    assert!(rows[rows.len() - 1]["sft/val_loss"].is_f64() && rows[0]["optim/lr"].is_f64());
    let (_, error) = fails(&sft);
    assert!(error.contains("--resume"), "{error}");

    let played = json(&[
        "eval",
        config,
        "--policy",
        text(&policy),
        "--limit",
        "10",
        "--samples",
        "0",
    ]);
    assert!(played["greedy"].is_object());
    // What reinforcement learns from is of the same form.
    let again = folder.path().join("again");
    let policy = format!("policy.checkpoint={:?}", text(&policy));
    let grpo = [
        "train",
        config,
        "--out",
        text(&again),
        "--set",
        &policy,
        "--set",
        "grpo.steps=1",
    ];
    let recorded = forage(&[&grpo[..], &["--rollouts", text(&all)]].concat());
    let told = String::from_utf8_lossy(&recorded.stderr);
    assert!(recorded.status.success(), "{told}");
    // What comes next is said of what was trained, --set included.
    let next = format!(
        "; forage eval {} --policy",
        text(&again.join("config.toml"))
    );
    assert!(told.contains(&next), "{told}");
}

#[test]
fn an_adapter_is_trained_alone_and_a_stopped_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("texts.jsonl");
    let line = |number: usize| serde_json::json!({"prompt": format!("Question: {number}?\n"), "completion": "<answer>x</answer>"});
    let texts: Vec<String> = (0..40).map(|number| line(number).to_string()).collect();
    std::fs::write(&file, texts.join("\n")).unwrap();
    let run = folder.path().join("run");
    let mut arguments = vec![
        "sft",
        text(&file),
        "--policy",
        "builtin:quickstart",
        "--out",
        text(&run),
        "--epochs",
        "50",
    ];
    arguments.extend(["--batch", "8", "--lora-rank", "2", "--lora-alpha", "4"]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_forage"))
        .args(&arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let steps = || {
        std::fs::read_to_string(run.join("metrics.jsonl")).map_or(0, |text| text.lines().count())
    };
    while steps() < 3 {
        assert!(started.elapsed() < Duration::from_mins(2), "no steps");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let mut stderr = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(
        stderr.contains("interrupted") && stderr.contains("--resume"),
        "{stderr}"
    );
    let (code, error) = fails(&[&arguments[..], &["--resume", "--seed", "2"]].concat());
    assert!(
        code == 2 && error.contains("sft.json has other settings: seed was 1 and is 2"),
        "{error}"
    );
    let trained = json(&[&arguments[..], &["--resume"]].concat());
    assert_eq!(trained["policy"], text(&run.join("policy")));
    assert_eq!(steps(), 250);
    assert!(run.join("policy/adapter_model.safetensors").exists());
    assert!(!run.join("policy/model.safetensors").exists());
    // A run that was stopped before its first checkpoint begins anew, and has the settings that it is resumed with.
    std::fs::remove_dir_all(run.join("checkpoints")).unwrap();
    done(&[&arguments[..], &["--resume", "--micro-batch-tokens", "512"]].concat());
    let kept = std::fs::read_to_string(run.join("sft.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["learning"]["micro_batch_tokens"], 512);
    assert_eq!(steps(), 250);
    // Its base is inside the binary, wherever the adapter is read.
    let (whole, alone) = (folder.path().join("whole"), folder.path().join("alone"));
    done(&["export", text(&run), "--merged", text(&whole)]);
    done(&["export", text(&run), "--adapter", text(&alone)]);
    let eval = |policy: &Path| {
        json(&[
            "eval",
            SMOKE,
            "--policy",
            text(policy),
            "--limit",
            "5",
            "--samples",
            "0",
        ])
    };
    assert_eq!(eval(&alone)["greedy"], eval(&run.join("policy"))["greedy"]);
    assert!(eval(&whole)["greedy"].is_object());
    let policy = format!("policy.checkpoint={:?}", text(&alone));
    done(&[
        "train",
        SMOKE,
        "--out",
        text(&folder.path().join("on")),
        "--set",
        &policy,
        "--set",
        "grpo.steps=1",
    ]);
}

#[test]
fn wrong_input_is_named_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (bad, good) = (
        folder.path().join("bad.jsonl"),
        folder.path().join("good.jsonl"),
    );
    std::fs::write(
        &bad,
        "{\"prompt\":\"a\",\"completion\":\"b\"}\n{\"prompt\":\"a\"}\n",
    )
    .unwrap();
    std::fs::write(&good, "{\"prompt\":\"a\",\"completion\":\"b\"}\n").unwrap();
    let out = folder.path().join("out");
    let cases: [(&Path, &[&str], i32, &str); 7] = [
        (&bad, &[], 1, "bad.jsonl: line 2 is not a demonstration"),
        (
            Path::new("none.jsonl"),
            &[],
            1,
            "none.jsonl: cannot be read",
        ),
        (&good, &["--epochs", "0"], 2, "epochs must be at least 1"),
        (
            &good,
            &["--learning-rate", "0"],
            2,
            "the learning rate is 0",
        ),
        (
            &good,
            &["--validation", "0.5"],
            2,
            "takes 1 of 1 demonstrations",
        ),
        (&good, &["--context", "2"], 1, "more than the context of 2"),
        (
            &good,
            &["--lora-rank", "0", "--lora-alpha", "1"],
            2,
            "rank must be at least 1",
        ),
    ];
    for (file, more, status, words) in cases {
        let sft = [
            "sft",
            text(file),
            "--policy",
            "builtin:quickstart",
            "--out",
            text(&out),
        ];
        let (code, error) = fails(&[&sft[..], more].concat());
        assert!(
            code == status && error.contains(words),
            "{more:?}: {code} {error}"
        );
        assert!(!out.exists());
    }
    let (config, file) = (SMOKE, folder.path().join("kept.jsonl"));
    let collect = [
        "collect",
        config,
        "--out",
        text(&file),
        "--questions",
        "2",
        "--samples",
    ];
    for (more, status, words) in [
        (["0", "--temperature", "1"], 2, "--samples"),
        (["1", "--temperature", "nan"], 2, "--temperature"),
        (["1", "--min-reward", "5"], 1, "none of 2 episodes earned 5"),
    ] {
        let (code, error) = fails(&[&collect[..], &more[..]].concat());
        assert!(
            code == status && error.contains(words),
            "{more:?}: {code} {error}"
        );
    }
    let mut left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["bad.jsonl", "good.jsonl"]);
}

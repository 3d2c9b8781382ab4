//! Conduct on the command line: runs leave telemetry, evaluations are probed, alarms are findings.

use crate::support::{SMOKE, done, fails, forage, json, lines, text};

#[test]
fn a_run_leaves_telemetry_that_a_resumed_run_continues() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    done(&["train", SMOKE, "--out", text(&run), "--set", "grpo.steps=2"]);
    let resumed = forage(&[
        "train",
        SMOKE,
        "--out",
        text(&run),
        "--set",
        "grpo.steps=9",
        "--resume",
    ]);
    let words = String::from_utf8_lossy(&resumed.stderr);
    assert!(
        resumed.status.success() && words.contains("train: resuming from step 2"),
        "{words}"
    );
    let rows = lines(&run.join("telemetry.jsonl"));
    let steps: Vec<u64> = rows
        .iter()
        .map(|row| row["step"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let found = json(&["telemetry", text(&run)]);
    let course = &found["runs"][0];
    assert_eq!(
        (course["steps"][1].as_u64(), course["source"].as_str()),
        (Some(8), Some(text(&run)))
    );
    let tokens = &course["items"]["policy_tokens"];
    assert!(
        tokens["first"].as_f64() > Some(0.0) && tokens["change"]["low"].is_f64(),
        "{tokens}"
    );
    assert!(done(&["telemetry", text(&run)]).contains("first quarter  last quarter"));

    // The folder says what it was resumed with, and goes on with no less.
    let config = || std::fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(config().contains("\nsteps = 9\n"), "{}", config());
    let resume = ["train", SMOKE, "--out", text(&run), "--resume"];
    let (code, error) = fails(&[&resume[..], &["--set", "grpo.steps=5"]].concat());
    assert!(
        code == 2 && error.contains("has done 9 steps, and grpo.steps is 5; give 9 or more"),
        "{error}"
    );
    assert!(config().contains("\nsteps = 9\n"), "{}", config());

    let (code, nothing) = fails(&["telemetry", text(folder.path())]);
    assert_eq!(code, 1);
    assert!(nothing.contains("holds no telemetry; give the folder of a run"));
}

#[test]
fn a_guesser_is_told_apart_from_an_oracle() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (guesses, found) = (place("guesses.jsonl"), place("found.jsonl"));
    let told = done(&[
        "eval",
        SMOKE,
        "--policy",
        "constant:Velm",
        "--out",
        &guesses,
    ]);
    assert!(
        told.starts_with("environment search-r1, policy constant:Velm\n")
            && told.contains("sign unsearched_answer: 1.000 (95 % interval"),
        "{told}"
    );
    let told = done(&["eval", SMOKE, "--policy", "oracle", "--out", &found]);
    assert!(!told.contains("sign "), "{told}");
    let both = json(&["telemetry", &guesses, &found]);
    let alarms = |place: usize| both["sets"][place]["alarms"].as_array().unwrap().clone();
    assert_eq!((alarms(0).len(), alarms(1).len()), (1, 0));
    assert_eq!(alarms(0)[0]["kind"], "unsearched_answer");
    assert_eq!(alarms(0)[0]["examples"].as_array().unwrap().len(), 3);
}

#[test]
fn a_policy_that_writes_escape_sequences_does_not_steer_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let guesses = folder.path().join("guesses.jsonl");
    let policy = "constant:Ve\x1b[31mlm";
    let told = done(&["eval", SMOKE, "--policy", policy, "--out", text(&guesses)]);
    // The first line names the policy as the command line does.
    let (_, evaluated) = told.split_once('\n').unwrap();
    let played = done(&["play", SMOKE, "--policy", policy]);
    for told in [evaluated, &done(&["telemetry", text(&guesses)]), &played] {
        assert!(
            told.contains("Ve\u{fffd}[31mlm") && !told.contains('\x1b'),
            "{told:?}"
        );
    }
}

#[test]
fn passages_and_questions_do_not_steer_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let (corpus, index, questions) = (place("corpus.jsonl"), place("index"), place("q.jsonl"));
    let passage = r#"{"_id": "a", "title": "", "text": "river \u001b[2J one\nand two"}"#;
    std::fs::write(&corpus, format!("{passage}\n")).unwrap();
    let question = r#"{"question": "Is \u001b[31mred?", "answer": "x"}"#;
    std::fs::write(&questions, format!("{question}\n{question}\n")).unwrap();
    let build = [
        "index",
        "build",
        "--corpus",
        text(&corpus),
        "--format",
        "beir",
    ];
    done(&[&build[..], &["--out", text(&index)]].concat());
    let found = done(&["search", text(&index), "river"]);
    assert!(
        found.contains("    river \u{fffd}[2J one\n    and two"),
        "{found:?}"
    );
    let checked = done(&["data", "check", text(&questions)]);
    assert!(checked.contains("Is \u{fffd}[31mred?"), "{checked:?}");
    assert!(![found, checked].concat().contains('\x1b'));
}

#[test]
fn an_evaluation_is_probed_on_the_same_questions() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("episodes.jsonl");
    let eval = ["eval", SMOKE, "--policy", "oracle", "--out", text(&out)];
    let probes = [
        "--probe",
        "no-search",
        "--probe",
        "poisoned-passages",
        "--probe",
        "paraphrased-prompt",
    ];
    let found = json(&[&eval[..], &probes[..]].concat());
    let probes = found["probes"].as_array().unwrap();
    let em = &probes[0]["change"]["metrics"]["em"];
    assert!(
        em["a"].as_f64() > Some(0.9) && em["difference"]["high"].as_f64() < Some(-0.5),
        "{em}"
    );
    assert_eq!(
        (probes[0]["probe"].as_str(), em["questions"].as_u64()),
        (Some("no-search"), Some(30))
    );
    let unfounded = probes[0]["telemetry"]["items"]["unfounded_answer"]["estimate"].as_f64();
    assert!(unfounded.is_some(), "{}", probes[0]["telemetry"]);
    assert!(probes[1]["telemetry"]["items"]["poison_believed"]["estimate"].is_f64());
    assert_eq!(probes[2]["wordings"].as_array().unwrap().len(), 4);
    assert!(
        probes[2]["spread"]["estimate"]
            .as_f64()
            .is_some_and(|spread| spread < 1e-9)
    );
    for name in ["no-search", "poisoned-passages", "paraphrased-prompt-3"] {
        assert!(
            out.with_extension(format!("{name}.jsonl")).exists(),
            "{name}"
        );
    }
    let told = done(&[
        "eval",
        SMOKE,
        "--policy",
        "oracle",
        "--probe",
        "missing-passages",
    ]);
    assert!(
        told.contains("probe missing-passages\n")
            && told.contains("Plain beats missing-passages by"),
        "{told}"
    );

    let query = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/query-writer.toml");
    let small = [
        "--set",
        "data.world.pages=200",
        "--set",
        "data.test_questions=5",
        "--set",
        "data.train_questions=5",
    ];
    let none = folder.path().join("none.jsonl");
    let written = ["--out", text(&none)];
    let (code, error) = fails(
        &[
            &["eval", query, "--policy", "oracle", "--probe", "no-search"],
            &small[..],
            &written[..],
        ]
        .concat(),
    );
    assert_eq!(code, 2);
    assert!(!none.exists(), "refused before anything was played");
    assert!(
        error.contains("--probe no-search") && error.contains("judged by what it finds"),
        "{error}"
    );
}

#[test]
fn a_policy_ranks_its_samples_by_its_own_grades() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("episodes.jsonl");
    let eval = [
        "eval",
        SMOKE,
        "--policy",
        "constant:7",
        "--limit",
        "5",
        "--self-grade",
        "--samples",
    ];
    let found = json(&[&eval[..], &["2", "--out", text(&out)]].concat());
    let ranked = &found["answers"]["self_graded"];
    // It answers 7 to everything, which is a grade and never right.
    assert_eq!(ranked["graded_frac"], 1.0, "{ranked}");
    assert_eq!(ranked["best_at_k"][1]["k"], 2, "{ranked}");
    assert_eq!(ranked["best_at_k"][1]["value"]["estimate"], 0.0, "{ranked}");
    assert_eq!(lines(&out.with_extension("grades.jsonl")).len(), 10);
    let told = done(&[&eval[..], &["2"]].concat());
    assert!(told.contains("best by own grade less majority"), "{told}");
    let (code, error) = fails(&[&eval[..], &["1"]].concat());
    assert_eq!(code, 2);
    assert!(error.contains("--samples 2 or more"), "{error}");
}

#[test]
fn a_constant_answer_has_the_form_of_its_environment() {
    let folder = tempfile::tempdir().unwrap();
    let (problems, out) = (folder.path().join("a.jsonl"), folder.path().join("b.jsonl"));
    std::fs::write(&problems, r#"{"problem": "3 + 4?", "answer": "7"}"#).unwrap();
    let eval = ["eval", "--env", "math", "--policy", "constant:7.0", "--out"];
    done(&[&eval[..], &[text(&out), "--questions", text(&problems)]].concat());
    assert_eq!(lines(&out)[0]["answer"], "7");
    // What searches nothing needs no index to be played.
    let play = |of: &'static str| ["play", of, "--policy", "constant:7.0", "--questions"];
    let played = done(&[&play("math")[..], &[text(&problems)]].concat());
    assert!(played.contains("reward 1.000"), "{played}");
    for (of, words) in [("search-r1", "--index"), (SMOKE, "either a config")] {
        let (_, error) = fails(&[&play(of)[..], &[text(&problems)]].concat());
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_policy_with_weights_has_a_prompt_sensitivity_index() {
    let eval = [
        "eval",
        SMOKE,
        "--limit",
        "5",
        "--samples",
        "0",
        "--probe",
        "paraphrased-prompt",
        "--policy",
    ];
    let found = json(&[&eval[..], &["builtin:quickstart"]].concat());
    let index = &found["probes"][0]["index"];
    assert_eq!(index["questions"], 5, "{index}");
    let [estimate, low, high] = ["estimate", "low", "high"].map(|key| index[key].as_f64().unwrap());
    assert!(0.0 < low && low <= estimate && estimate <= high, "{index}");
    let told = done(&[&eval[..], &["builtin:quickstart"]].concat());
    assert!(told.contains("POSIX (nats per token)"), "{told}");
    let script = json(&[&eval[..], &["oracle"]].concat());
    assert_eq!(script["probes"][0]["index"], serde_json::Value::Null);
}

#[test]
fn a_policy_with_weights_criticises_itself() {
    let eval = [
        "eval",
        SMOKE,
        "--limit",
        "8",
        "--samples",
        "0",
        "--probe",
        "self-critique",
        "--policy",
    ];
    let found = json(&[&eval[..], &["builtin:quickstart"]].concat());
    let probe = &found["probes"][0];
    let questions = probe["questions"].as_object().unwrap();
    assert_eq!(questions.len(), 8);
    let scores: Vec<f64> = questions
        .values()
        .map(|score| score.as_f64().unwrap())
        .collect();
    assert!(
        scores.iter().all(|score| (0.0..=1.0).contains(score))
            && scores.iter().any(|score| *score > 0.0)
    );
    let mean = scores.iter().sum::<f64>() / 8.0;
    assert!(
        (probe["similarity"]["estimate"].as_f64().unwrap() - mean).abs() < 1e-9,
        "{probe}"
    );
    let (code, error) = fails(&[&eval[..], &["oracle"]].concat());
    assert!(
        code == 2 && error.contains("scripts and servers tell no entropies"),
        "{error}"
    );
}

#[test]
fn self_critique_is_held_against_the_questions_that_are_learned_from() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let world = place("world");
    done(&[
        "world",
        "--pages",
        "200",
        "--questions",
        "8",
        "--out",
        &world,
    ]);
    let questions = place("world/search-r1/test.jsonl");
    let asked = lines(std::path::Path::new(&questions));
    let half: Vec<&str> = asked
        .iter()
        .step_by(2)
        .map(|row| row["id"].as_str().unwrap())
        .collect();
    std::fs::write(place("half.ids"), half.join("\n")).unwrap();
    let smoke = std::fs::read_to_string(SMOKE).unwrap();
    let (before, rest) = smoke.split_once("[data.world]").unwrap();
    let (_, after) = rest.split_once("[environment]\n").unwrap();
    let files = format!(
        "[data.files]\ncorpus = {:?}\ntrain = {questions:?}\ndev = {questions:?}\ntest = {questions:?}\n\
         [data.files.ids]\ntrain = {:?}\n\n[environment]\n",
        place("world/beir"),
        place("half.ids")
    );
    let config = place("half.toml");
    std::fs::write(&config, [before, &files, after].concat()).unwrap();
    let found = json(&[
        "eval",
        &config,
        "--policy",
        "builtin:quickstart",
        "--samples",
        "0",
        "--probe",
        "self-critique",
    ]);
    let probe = &found["probes"][0];
    assert_eq!(probe["learned_from"], 4, "{probe}");
    let area = &probe["separation"]["estimate"];
    let is_area = |area: f64| (0.0..=1.0).contains(&area);
    assert!(area.as_f64().is_some_and(is_area), "{probe}");
}

//! `forage policy` from the outside.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn forage(command: &str, input: &Path, output: &Path, more: &[&str]) -> Output {
    let mut forage = Command::new(env!("CARGO_BIN_EXE_forage"));
    forage
        .args([
            "policy",
            command,
            "--model",
            "builtin:quickstart",
            "--cache-mib",
            "16",
            "--input",
        ])
        .arg(input);
    forage
        .arg("--output")
        .arg(output)
        .args(more)
        .output()
        .unwrap()
}

fn lines(folder: &Path, lines: &[Value]) -> PathBuf {
    let path = folder.join("prompts.jsonl");
    let text: Vec<String> = lines.iter().map(|line| format!("{line}\n\n")).collect();
    std::fs::write(&path, text.concat()).unwrap();
    path
}

fn rows(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn completions_come_in_order_and_their_log_probabilities_are_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = [
        json!({"id": "a", "text": "Question: Who"}),
        json!({"id": 2, "tokens": [70, 71, 72]}),
    ];
    let prompts: Vec<Value> = prompts.iter().cycle().take(40).cloned().collect();
    let input = lines(folder.path(), &prompts);
    let output = folder.path().join("completions.jsonl");
    let more = [
        "--max-tokens",
        "12",
        "--temperature",
        "0.7",
        "--top-k",
        "50",
        "--seed",
        "4",
        "--stop",
        "e",
        "--ignore-eos",
    ];
    let done = forage("generate", &input, &output, &more);
    assert!(done.status.success(), "{}", stderr(&done));
    let found = rows(&output);
    assert_eq!(found.len(), 40);
    let mut whole = Vec::new();
    for (row, prompt) in found.iter().zip(&prompts) {
        assert_eq!(row["id"], prompt["id"]);
        let count = row["tokens"].as_array().unwrap().len();
        assert_eq!(row["logprobs"].as_array().unwrap().len(), count);
        match row["finish"].as_str().unwrap() {
            "stop" => assert!(row["text"].as_str().unwrap().contains('e')),
            "length" => assert_eq!(count, 12),
            other => panic!("{other}"),
        }
        if let Some(tokens) = prompt["tokens"].as_array() {
            let tokens: Vec<&Value> = tokens
                .iter()
                .chain(row["tokens"].as_array().unwrap())
                .collect();
            whole.push(json!({"id": row["logprobs"], "tokens": tokens}));
        }
    }
    assert!(
        found
            .windows(3)
            .any(|rows| rows[0]["tokens"] != rows[2]["tokens"]),
        "draws differ by row"
    );
    let again = folder.path().join("again.jsonl");
    assert!(forage("generate", &input, &again, &more).status.success());
    assert_eq!(
        std::fs::read(&output).unwrap(),
        std::fs::read(&again).unwrap()
    );

    let scores = folder.path().join("logprobs.jsonl");
    let done = forage(
        "logprobs",
        &lines(folder.path(), &whole),
        &scores,
        &["--temperature", "0.7"],
    );
    assert!(done.status.success(), "{}", stderr(&done));
    for row in rows(&scores) {
        let (generated, scored) = (
            row["id"].as_array().unwrap(),
            row["logprobs"].as_array().unwrap(),
        );
        assert_eq!(
            scored.len(),
            generated.len() + 2,
            "one fewer than three tokens and the completion"
        );
        for (generated, scored) in generated.iter().zip(&scored[2..]) {
            assert!((generated.as_f64().unwrap() - scored.as_f64().unwrap()).abs() < 1e-4);
        }
    }
}

#[test]
fn bad_lines_are_named_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("rows.jsonl");
    let good = json!({"id": 1, "text": "a"});
    for (line, words) in [
        (json!({"id": 1}), "line 3: give `text` or `tokens`"),
        (
            json!({"id": 1, "text": "a", "tokens": [1]}),
            "line 3: give `text` or `tokens`",
        ),
        (
            json!({"id": 1, "text": ""}),
            "line 3: the prompt has no tokens",
        ),
        (
            json!({"id": 1, "tokens": [1024]}),
            "line 3: token id 1024 is outside the vocabulary of 1024",
        ),
        (
            json!({"id": 1, "tekst": "a"}),
            "line 3: not {\"id\", \"text\"}",
        ),
        (json!("a"), "line 3: not {\"id\", \"text\"}"),
    ] {
        let input = lines(folder.path(), &[good.clone(), line]);
        for command in ["generate", "logprobs"] {
            let done = forage(command, &input, &output, &[]);
            let said = stderr(&done);
            assert!(
                !done.status.success() && said.contains("prompts.jsonl") && said.contains(words),
                "{said}"
            );
            assert!(!output.exists());
        }
    }
}

#[test]
fn a_prompt_without_an_answer_is_a_row_and_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("rows.jsonl");
    let long: Vec<u32> = vec![70; 600];
    let input = lines(
        folder.path(),
        &[
            json!({"id": 1, "tokens": long}),
            json!({"id": 2, "tokens": [70, 71]}),
        ],
    );
    for command in ["generate", "logprobs"] {
        let done = forage(command, &input, &output, &[]);
        assert_eq!(done.status.code(), Some(1));
        assert!(
            stderr(&done).contains("1 of 2 prompts were not answered"),
            "{}",
            stderr(&done)
        );
        let rows = rows(&output);
        assert_eq!(rows[0]["error"]["kind"], "bad_request");
        assert!(
            rows[0]["error"]["message"]
                .as_str()
                .unwrap()
                .contains("context of 512")
        );
        assert!(rows[1]["logprobs"].is_array());
    }
}

#[test]
fn changes_of_a_run_are_shown_by_layer() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let smoke = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/smoke.toml");
    let call = |arguments: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_forage"))
            .args(arguments)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", stderr(&ran));
        String::from_utf8(ran.stdout).unwrap()
    };
    let run = run.to_str().unwrap();
    call(&["train", smoke, "--out", run, "--set", "grpo.steps=1"]);
    let texts = [
        json!({"id": 1, "text": "Who is the mentor of Velm?"}),
        json!({"id": 2, "tokens": [70, 71, 72]}),
    ];
    let texts = lines(folder.path(), &texts);
    let input = ["--input", texts.to_str().unwrap()];
    let words = [
        &["policy", "changes", "builtin:quickstart", run][..],
        &input[..],
    ]
    .concat();
    let found: Value = serde_json::from_str(&call(&[&words[..], &["--json"]].concat())).unwrap();
    let parameters = found["parameters"].as_array().unwrap();
    let sum = |key: &str| {
        parameters
            .iter()
            .map(|one| one[key].as_u64().unwrap())
            .sum::<u64>()
    };
    assert!(
        sum("changed") > sum("entries") / 2,
        "AdamW moves nearly every weight"
    );
    assert!(sum("changed_in_bf16") < sum("changed"));
    for one in parameters {
        let [norm, difference] = ["norm", "difference"].map(|key| one[key].as_f64().unwrap());
        assert!(difference < norm, "a step is small: {one}");
        assert!(
            one["stable_rank"].as_f64().is_none_or(|rank| rank >= 0.999),
            "{one}"
        );
    }
    let alignment = found["linear_cka"].as_array().unwrap();
    let told = call(&words);
    assert!(
        told.contains("linear CKA")
            && told.contains("mlp.up_proj.weight")
            && told.contains("A token of the 2 texts has a log-probability of"),
        "{told}"
    );
    let layers = parameters.iter().filter(|one| {
        one["parameter"]
            .as_str()
            .unwrap()
            .ends_with(".mlp.up_proj.weight")
    });
    assert_eq!(alignment.len(), layers.count());
    let near = |cka: &Value| cka.as_f64().is_some_and(|cka| cka > 0.9 && cka < 1.0001);
    assert!(alignment.iter().all(near), "{alignment:?}");
    let likelihood = &found["likelihood"];
    let [before, after, change] = [
        &likelihood["before"],
        &likelihood["after"],
        &likelihood["change"]["estimate"],
    ]
    .map(|value| value.as_f64().unwrap());
    assert!(before < 0.0 && (after - before - change).abs() < 1e-9);
    assert!(change.abs() > 0.0, "{likelihood}");
    let same = call(&["policy", "changes", run, run, "--json"]);
    let same: Value = serde_json::from_str(&same).unwrap();
    assert!(same["likelihood"].is_null());
    let parameters = same["parameters"].as_array().unwrap();
    assert!(
        parameters
            .iter()
            .all(|one| one["changed"] == 0 && one["stable_rank"].is_null())
    );
}

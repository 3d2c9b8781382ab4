//! Recorded episodes are played again without the passages; data sets are checked against each other.

use std::path::Path;

use crate::support::{done, forage};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The config with a server nobody runs in place of its world.
fn offline(config: &str, questions: &Path) -> String {
    let mut table: toml::Table = config.parse().unwrap();
    let data = table["data"].as_table_mut().unwrap();
    data.remove("world");
    let files = toml::Table::from_iter([("train".to_owned(), questions.to_str().unwrap().into())]);
    data.insert("files".to_owned(), files.into());
    let remote: toml::Table = "remote = { kind = \"search-r1\", url = \"http://127.0.0.1:9\" }"
        .parse()
        .unwrap();
    table.insert("retriever".to_owned(), remote.into());
    table.remove("warm_start");
    toml::to_string(&table).unwrap()
}

#[test]
fn episodes_replay_from_a_tape_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/smoke.toml");
    let (episodes, tape) = (place("episodes.jsonl"), place("tools.jsonl"));
    let sampled = place("episodes.sampled.jsonl");
    done(&[
        "eval",
        config,
        "--limit",
        "12",
        "--out",
        &episodes,
        "--record-tools",
        &tape,
    ]);
    // The config by its name.
    let whole = done(&["replay", &episodes, &sampled, "--config", "smoke"]);
    assert!(
        whole.contains("24 episodes: 24 equal, 0 different"),
        "{whole}"
    );

    // Of a policy the tokenizer alone is read.
    let lean = place("lean");
    done(&["export", "builtin:quickstart", "--merged", &lean]);
    std::fs::remove_file(Path::new(&lean).join("model.safetensors")).unwrap();
    let named = done(&["replay", &episodes, "--config", config, "--policy", &lean]);
    assert!(named.contains("12 equal"), "{named}");

    // With the tape no passage is needed: the config may name a server that is gone.
    let written = std::fs::read_to_string(config).unwrap();
    let gone = place("gone.toml");
    std::fs::write(&gone, offline(&written, Path::new(&place("none.jsonl")))).unwrap();
    let taped = done(&[
        "replay", &episodes, &sampled, "--config", &gone, "--tools", &tape,
    ]);
    assert!(taped.contains("24 equal"), "{taped}");

    // Another environment is another story, told by turn.
    let other = forage(&[
        "replay",
        &sampled,
        "--config",
        &gone,
        "--tools",
        &tape,
        "--set",
        "environment.settings.observation.opening=<info>",
    ]);
    assert_eq!(other.status.code(), Some(1));
    assert!(
        text(&other.stdout).contains("turn 1 observation"),
        "{}",
        text(&other.stdout)
    );
    // So is another reward, and a tape that lacks an answer is an error that names the question.
    let other = forage(&[
        "replay",
        &sampled,
        "--config",
        &gone,
        "--tools",
        &tape,
        "--set",
        "reward.em=0.5",
        "--json",
    ]);
    let found: serde_json::Value = serde_json::from_slice(&other.stdout).unwrap();
    let different = found["different"].as_array().unwrap();
    let rewards = different
        .iter()
        .all(|one| one["differences"][0]["place"] == "reward");
    assert!(rewards && !different.is_empty(), "{found}");
    let whole = std::fs::read_to_string(&tape).unwrap();
    let header = whole.split_inclusive('\n').next().unwrap();
    std::fs::write(&tape, header).unwrap();
    let lacking = forage(&["replay", &sampled, "--config", &gone, "--tools", &tape]);
    assert!(
        !lacking.status.success() && text(&lacking.stderr).contains("has no answer to"),
        "{}",
        text(&lacking.stderr)
    );
}

#[test]
fn gradients_are_compared_too() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/smoke.toml");
    let (greedy, sampled) = (place("episodes.jsonl"), place("episodes.sampled.jsonl"));
    let eval = ["eval", config, "--limit", "4", "--samples", "3"];
    done(&[&eval[..], &["--out", &greedy]].concat());
    let replay = ["replay", &sampled, "--config", config, "--gradients"];
    let told = done(&replay);
    assert!(
        told.contains("12 equal") && told.contains("; equal, digest "),
        "{told}"
    );
    // Half the reward is another update.
    let other = forage(&[&replay[..], &["--set", "reward.em=0.5", "--json"]].concat());
    let found: serde_json::Value = serde_json::from_slice(&other.stdout).unwrap();
    assert!(found["gradients"]["norms"][0].is_f64(), "{found}");
    for (arguments, fault) in [
        (&[greedy.as_str()][..], "no question has two episodes"),
        (&[sampled.as_str(), "--policy", "oracle"][..], "is a script"),
    ] {
        let refused = ["replay", "--config", config, "--gradients"];
        let refused = forage(&[&refused[..], arguments].concat());
        let error = text(&refused.stderr);
        assert!(
            !refused.status.success() && error.contains(fault),
            "{error}"
        );
    }
}

#[test]
fn programs_and_queries_replay_too() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, config) in [
        ("code", "quickstart-code.toml"),
        ("query", "query-writer.toml"),
    ] {
        let config = format!("{}/../configs/{config}", env!("CARGO_MANIFEST_DIR"));
        let (episodes, tape) = (
            place(&format!("{name}.jsonl")),
            place(&format!("{name}.tools.jsonl")),
        );
        let small = [
            "--set",
            "data.world.pages=200",
            "--set",
            "data.test_questions=12",
            "--set",
            "data.train_questions=40",
        ];
        let eval = [
            "eval",
            &config,
            "--policy",
            "oracle",
            "--out",
            &episodes,
            "--record-tools",
            &tape,
        ];
        done(&[&eval[..], &small[..]].concat());
        let replay = [
            "replay", &episodes, "--policy", "oracle", "--config", &config, "--tools", &tape,
        ];
        let told = done(&[&replay[..], &small[..]].concat());
        assert!(told.contains("12 equal, 0 different"), "{name}: {told}");
    }
}

#[test]
fn findings_that_are_not_shown_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    let twice = |number: usize| {
        format!("{{\"question\":\"Who is {number}?\",\"answer\":\"Ada\"}}\n").repeat(2)
    };
    std::fs::write(&file, (0..7).map(twice).collect::<String>()).unwrap();
    let told = done(&["data", "check", file.to_str().unwrap()]);
    for words in [
        "14 questions; digest of all ids: ",
        "\naccepted answers of a question: 1 to 1, 1.0 on average\n",
        "asked more than once: 7\n",
        "  and 2 more (--json lists all)",
        "compared with no other set (--against FILE)",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn a_set_without_answers_and_answers_in_questions_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let train = write(
        "a.jsonl",
        "{\"question\":\"Is Ada or Bea older?\",\"answer\":\"Ada\"}\n{\"question\":\"Why?\",\"answer\":\"rain\"}\n",
    );
    let test = write(
        "b.jsonl",
        "{\"question\":\"Where?\",\"answer\":null}\n{\"question\":\"When?\",\"answer\":null}\n",
    );
    let told = done(&["data", "check", &test]);
    assert!(
        told.contains("none of them has an answer, as in published test sets, or where answers have a name that is not read"),
        "{told}"
    );
    let told = done(&["data", "check", &train, "--against", &test]);
    for words in [
        "answer in the question: 1 (no search is needed there: remove them",
        "compared with 2 questions, none of which has an answer\n",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let told: serde_json::Value =
        serde_json::from_str(&done(&["data", "check", &test, "--json"])).unwrap();
    assert_eq!(told["unanswered"], true);
}

#[test]
fn leaks_between_data_sets_are_exit_code_one() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let train = write(
        "a.jsonl",
        "{\"question\":\"Who leads it?\",\"answer\":\"Ada\"}\n{\"question\":\"Why?\",\"answer\":\"yes\"}\n",
    );
    let clean = write("b.jsonl", "{\"question\":\"Where?\",\"answer\":\"yes\"}\n");
    let answer = write(
        "c.jsonl",
        "{\"question\":\"Where is she?\",\"answer\":\"ada.\"}\n",
    );
    let leak = write(
        "d.jsonl",
        "{\"question\":\"who leads  it\",\"answer\":\"Bea\"}\n",
    );
    assert!(done(&["data", "check", &train, "--against", &clean]).contains("same answer: 0"));
    let found = forage(&["data", "check", &train, "--against", &leak, "--json"]);
    assert_eq!(found.status.code(), Some(1));
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(
        found["same_question"][0]["shared"].as_str(),
        Some("who leads it")
    );
    // Trades and years answer many questions: told, and no leak.
    let told: serde_json::Value = serde_json::from_str(&done(&[
        "data",
        "check",
        &train,
        "--against",
        &answer,
        "--json",
    ]))
    .unwrap();
    assert_eq!(
        (
            told["same_answer"][0]["shared"].as_str(),
            told["questions"].as_u64()
        ),
        (Some("ada"), Some(2))
    );
}

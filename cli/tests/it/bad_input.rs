//! Bad input and bad luck: one clear error, a non-zero exit, nothing half-written.

mod interrupted;

use std::path::{Path, PathBuf};

use crate::support::{done, forage, text};

/// Runs a command that must fail; returns its exit code and stderr.
fn fails(arguments: &[&str]) -> (i32, String) {
    let output = forage(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?} succeeded");
    let errors = stderr
        .lines()
        .filter(|line| line.starts_with("error:"))
        .count();
    assert_eq!(errors, 1, "one error: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    (output.status.code().unwrap(), stderr)
}

fn smoke() -> String {
    text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/smoke.toml")).to_owned()
}

fn corpus(folder: &Path, lines: &str) -> PathBuf {
    let path = folder.join("corpus.jsonl");
    std::fs::write(&path, lines).unwrap();
    path
}

const GOOD: &str = "{\"_id\":\"a\",\"title\":\"Apple\",\"text\":\"a fruit\"}\n";

#[test]
fn a_missing_corpus_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("index");
    let (code, error) = fails(&[
        "index",
        "build",
        "--corpus",
        "/nowhere/c.jsonl",
        "--format",
        "beir",
        "--out",
        text(&out),
    ]);
    assert!(code == 1 && error.contains("/nowhere/c.jsonl"), "{error}");
    assert!(!out.exists());
}

#[test]
fn a_file_without_episodes_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none.jsonl");
    std::fs::write(&file, "").unwrap();
    let none = text(&file);
    for command in [vec!["telemetry", none], vec!["compare", none, none]] {
        let (_, error) = fails(&command);
        assert!(error.contains("none.jsonl` holds no episode"), "{error}");
    }
    let run = text(folder.path());
    let (_, error) = fails(&["compare", run, run]);
    assert!(error.contains("`forage runs compare`"), "{error}");
}

#[test]
fn a_file_without_answers_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answers.jsonl");
    std::fs::write(&file, "\n").unwrap();
    for form in [vec!["grade"], vec!["grade", "--json"], vec!["rules"]] {
        let (_, error) = fails(&[vec!["judge"], form, vec![text(&file)]].concat());
        assert!(error.contains("answers.jsonl has no line"), "{error}");
    }
}

#[test]
fn a_remote_retriever_is_asked_about_a_generated_world_too() {
    let remote = "retriever.remote={ kind = \"search-r1\", url = \"http://127.0.0.1:9/retrieve\" }";
    let (_, error) = fails(&[
        "eval",
        &smoke(),
        "--policy",
        "oracle",
        "--limit",
        "2",
        "--set",
        remote,
    ]);
    assert!(error.contains("127.0.0.1:9"), "{error}");
}

#[test]
fn nothing_is_resumed_where_nothing_was_begun() {
    let folder = tempfile::tempdir().unwrap();
    let (smoke, out) = (smoke(), folder.path().join("episodes.jsonl"));
    let eval = ["eval", &smoke, "--policy", "oracle", "--resume"];
    let (code, error) = fails(&eval);
    assert!(code == 2 && error.contains("name it"), "{error}");
    let collect = ["collect", &smoke, "--samples", "2", "--resume"];
    let controls = ["eval", "--controls", text(folder.path()), "--resume"];
    let there = ["--out", text(&out)];
    for words in [
        [&eval[..], &there].concat(),
        [&collect[..], &there].concat(),
        controls.to_vec(),
    ] {
        let (code, error) = fails(&words);
        assert!(
            code == 1 && error.contains("there is nothing to resume: no "),
            "{error}"
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_server_where_none_can_be_is_refused_with_the_fix() {
    let (smoke, server) = (smoke(), "http://127.0.0.1:9");
    let cases: [(&[&str], &str); 7] = [
        (&["compare", server, server], "forage eval CONFIG --policy"),
        (
            &["eval", &smoke, "--model", "m"],
            "--model and --token-file are for servers",
        ),
        (
            &["eval", &smoke, "--policy", server, "--tokens-of", "x"],
            "--tokens-of is for scripts",
        ),
        (
            &["play", "search-r1", "--token-file", "x"],
            "go with a server as --policy",
        ),
        (
            &["sft", "x", "--policy", server, "--out", "y"],
            "is a server",
        ),
        (&["export", server, "--merged", "y"], "is a server"),
        (
            &[
                "eval",
                &smoke,
                "--policy",
                "http://models.example",
                "--token-file",
                "x",
            ],
            "use https",
        ),
    ];
    for (arguments, words) in cases {
        let (_, error) = fails(arguments);
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    let (_, error) = fails(&["play", "search-r1", "--policy", server]);
    assert!(
        error.contains(server) && error.contains("cannot connect"),
        "{error}"
    );
}

#[test]
fn a_command_that_serves_an_environment_needs_its_config() {
    let commands: [&[&str]; 3] = [
        &["eval"],
        &["play", "search-r1"],
        &["serve", "env", "search-r1"],
    ];
    for command in commands {
        let (code, error) = fails(&[command, &["--env-command", "true"]].concat());
        assert!(
            code == 2 && error.contains("--env-command serves the environment of a config"),
            "{error}"
        );
    }
}

#[test]
fn what_is_searched_and_how_is_a_configs_own_where_there_is_one() {
    let smoke = smoke();
    let commands: [&[&str]; 3] = [
        &["eval", &smoke],
        &["eval", "--controls", "run"],
        &["serve", "env", "--config", &smoke],
    ];
    let flags: [&[&str]; 7] = [
        &["--mode", "boolean"],
        &["--encoder", "folder"],
        &["--reranker", "folder"],
        &["--rerank-depth", "5"],
        &["--cache-entries", "5"],
        &["--model-device", "cpu"],
        &["--format", "beir"],
    ];
    let own: [&[&str]; 3] = [
        &["eval", &smoke, "--env", "code-search"],
        &["eval", "--controls", "run", "--env", "code-search"],
        &["serve", "env", "--config", &smoke, "--pages", "5"],
    ];
    let all = commands
        .iter()
        .flat_map(|command| flags.map(|flag| [*command, flag].concat()));
    for arguments in all.chain(own.map(<[&str]>::to_vec)) {
        let (code, error) = fails(&arguments);
        assert!(
            code == 2 && error.contains("cannot be used with"),
            "{arguments:?}: {error}"
        );
    }
    let (code, error) = fails(&["eval", &smoke, "--questions", "q.jsonl"]);
    assert!(
        code == 2 && error.contains("--set data.files.test=FILE asks others"),
        "{error}"
    );
}

#[test]
fn a_depth_of_reranking_that_nothing_would_read_is_refused() {
    let cases: [(&[&str], &str); 4] = [
        (&["search", "index", "query"], "--reranker"),
        (&["serve", "env", "search-r1"], "--reranker"),
        (&["serve", "retriever", "index"], "cannot be used with"),
        (
            &["serve", "retriever", "index", "--reranker", "folder"],
            "cannot be used with",
        ),
    ];
    for (command, words) in cases {
        let (code, error) = fails(&[command, &["--rerank-depth", "5"]].concat());
        assert!(code == 2 && error.contains(words), "{command:?}: {error}");
    }
}

#[test]
fn an_encoder_that_no_search_would_use_is_refused() {
    let retrieval = "eval retrieval --index i --queries q --qrels r --encoder e";
    for command in [
        "search i query --encoder e",
        "search i query --encoder e --mode boolean",
        retrieval,
        "eval --policy oracle --index i --questions q --encoder e",
        "serve env search-r1 --index i --questions q --encoder e",
    ] {
        let (code, error) = fails(&command.split(' ').collect::<Vec<_>>());
        let what = "add --mode dense or --mode hybrid";
        assert!(code == 2 && error.contains(what), "{command}: {error}");
    }
    let (_, error) = fails(
        &[
            &retrieval.split(' ').collect::<Vec<_>>()[..],
            &["--mode", "hybrid"],
        ]
        .concat(),
    );
    assert!(!error.contains("--mode"), "{error}");
}

#[test]
fn a_ranking_of_no_documents_is_refused() {
    let files = ["--index", "i", "--queries", "q", "--qrels", "r"];
    let command = [&["eval", "retrieval"][..], &files, &["-k", "0"]].concat();
    let (code, error) = fails(&command);
    assert!(code == 2 && error.contains("'--k <K>'"), "{error}");
}

#[test]
fn an_index_is_built_on_some_threads_and_on_no_more_than_can_run() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, out) = (corpus(folder.path(), GOOD), folder.path().join("index"));
    let files = ["--corpus", text(&corpus), "--out", text(&out)];
    let build = [&["index", "build"][..], &files].concat();
    let (code, error) = fails(&[&build[..], &["--threads", "0"]].concat());
    assert!(
        code == 2 && error.contains("'--threads <THREADS>'"),
        "{error}"
    );
    done(&[&build[..], &["--threads", "1000000"]].concat());
}

#[test]
fn a_malformed_line_is_named_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("index");
    for bad in [
        "{\"_id\":\"b\",\"title\":\"B\"",
        "{\"_id\":\"b\"}",
        "[]",
        "{\"_id\":\"a\",\"title\":\"x\",\"text\":\"y\"}",
    ] {
        let path = corpus(
            folder.path(),
            &format!("{GOOD}{bad}\n{}", GOOD.replace("\"a\"", "\"c\"")),
        );
        let (_, error) = fails(&[
            "index",
            "build",
            "--corpus",
            text(&path),
            "--format",
            "beir",
            "--out",
            text(&out),
        ]);
        assert!(
            error.contains("corpus.jsonl") && error.contains('2'),
            "{bad}: {error}"
        );
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["corpus.jsonl"], "{bad}");
    }
}

#[test]
fn a_truncated_corpus_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("corpus.jsonl.gz");
    // The first bytes of a gzip stream, then nothing.
    std::fs::write(&path, [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xab, 0x56]).unwrap();
    let out = folder.path().join("index");
    let (_, error) = fails(&[
        "index",
        "build",
        "--corpus",
        text(&path),
        "--format",
        "beir",
        "--out",
        text(&out),
    ]);
    assert!(error.contains("corpus.jsonl.gz"), "{error}");
}

#[test]
fn unknown_config_keys_exit_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let (code, error) = fails(&[
        "train",
        &smoke(),
        "--out",
        text(&out),
        "--set",
        "grpo.stepz=3",
    ]);
    assert!(code == 2 && error.contains("stepz"), "{code} {error}");
    assert!(!out.exists());
}

#[test]
fn an_index_of_another_corpus_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("one"), folder.path().join("two"));
    for place in [&first, &second] {
        std::fs::create_dir(place).unwrap();
    }
    let indexed = corpus(&first, GOOD);
    let other = corpus(&second, &GOOD.replace("fruit", "firm"));
    let index = folder.path().join("index");
    done(&[
        "index",
        "build",
        "--corpus",
        text(&indexed),
        "--format",
        "beir",
        "--out",
        text(&index),
    ]);
    let questions = folder.path().join("questions.jsonl");
    std::fs::write(
        &questions,
        "{\"question\":\"What is an apple?\",\"answer\":\"fruit\"}\n",
    )
    .unwrap();
    let set = |key: &str, value: &Path| format!("{key}={:?}", text(value));
    let run = folder.path().join("run");
    let config = folder.path().join("files.toml");
    let smoke = std::fs::read_to_string(smoke()).unwrap();
    let start = smoke.find("[data.world]").unwrap();
    let end = smoke.find("[environment]").unwrap();
    std::fs::write(
        &config,
        format!(
            "{}[data.files]\nformat = \"beir\"\n{}",
            &smoke[..start],
            &smoke[end..]
        ),
    )
    .unwrap();
    let arguments = |corpus: &Path| {
        vec![
            set("data.files.corpus", corpus),
            set("data.files.index", &index),
            set("data.files.train", &questions),
        ]
    };
    let overrides = arguments(&other);
    let mut command = vec!["train", text(&config), "--out", text(&run)];
    for item in &overrides {
        command.extend(["--set", item]);
    }
    let (_, error) = fails(&command);
    assert!(
        error.contains(text(&indexed)) && error.contains("build the index again"),
        "{error}"
    );
}

#[test]
fn a_checkpoint_without_a_tensor_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    let builtin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/quickstart");
    for name in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ] {
        std::fs::copy(builtin.join(name), model.join(name)).unwrap();
    }
    // Renaming a tensor in the header keeps the file's shape: one is missing, one is unexpected.
    let path = model.join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let name = b"model.norm.weight";
    let place = bytes
        .windows(name.len())
        .position(|window| window == name)
        .unwrap();
    bytes[place..place + name.len()].copy_from_slice(b"model.gone.weight");
    std::fs::write(&path, bytes).unwrap();
    let run = folder.path().join("run");
    let set = format!("policy.checkpoint={:?}", text(&model));
    let (_, error) = fails(&["train", &smoke(), "--out", text(&run), "--set", &set]);
    assert!(
        error.contains("model.norm.weight") && error.contains("model.gone.weight"),
        "{error}"
    );
}

#[test]
fn exports_are_whole_and_what_cannot_be_exported_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (full, half) = (folder.path().join("full"), folder.path().join("half"));
    done(&["export", "builtin:quickstart", "--merged", text(&full)]);
    done(&[
        "export",
        text(&full),
        "--merged",
        text(&half),
        "--type",
        "bf16",
    ]);
    let size = |folder: &Path| {
        std::fs::metadata(folder.join("model.safetensors"))
            .unwrap()
            .len()
    };
    assert!(size(&half) * 2 < size(&full) + 10_000);
    let out = folder.path().join("out");
    for (arguments, expected) in [
        (["export", text(&full), "--merged", text(&half)], "exists"),
        (
            ["export", text(&full), "--adapter", text(&out)],
            "no adapter",
        ),
        (
            ["export", "./nowhere", "--merged", text(&out)],
            "neither a folder nor a name",
        ),
        (
            ["export", "builtin:other", "--merged", text(&out)],
            "no builtin policy",
        ),
    ] {
        let (code, error) = fails(&arguments);
        assert!(code == 1 && error.contains(expected), "{error}");
        assert!(!out.exists());
    }
    let adapter = ["export", text(&full), "--adapter", text(&out)];
    let (code, error) = fails(&[&adapter[..], &["--type", "bf16"]].concat());
    assert!(
        code == 2 && error.contains("cannot be used with"),
        "{error}"
    );
    // A measurement writes no policy over another folder.
    let load = ["bench", "load", text(&full), "--save", text(folder.path())];
    let (code, error) = fails(&load);
    assert!(code == 1 && error.contains("exists"), "{error}");
    assert!(full.join("model.safetensors").exists());
}

#[test]
fn two_processes_do_not_write_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("episodes.jsonl");
    let elsewhere = tempfile::tempdir().unwrap();
    let [other, run] = ["other.jsonl", "run"].map(|name| elsewhere.path().join(name));
    // As another process holds it.
    let held = std::fs::File::create(folder.path().join(".episodes.jsonl.lock")).unwrap();
    held.lock().unwrap();
    let config = smoke();
    let arguments = [
        "eval",
        &config,
        "--policy",
        "oracle",
        "--limit",
        "2",
        "--out",
        text(&out),
    ];
    let collected = [
        "collect",
        &config,
        "--samples",
        "1",
        "--questions",
        "1",
        "--out",
    ];
    let recorded = ["--record-tools", text(&out)];
    let trained = ["train", &config, "--out", text(&run)];
    for refused in [
        arguments.to_vec(),
        [&collected[..], &[text(&out)]].concat(),
        [&collected[..], &[text(&other)], &recorded].concat(),
        [&trained[..], &recorded].concat(),
    ] {
        let (code, error) = fails(&refused);
        assert_eq!(code, 1);
        assert!(
            error.contains("episodes.jsonl is being written by another process"),
            "{refused:?}: {error}"
        );
    }
    assert!(!other.exists());
    drop(held);
    done(&arguments);
    let left = std::fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["episodes.jsonl"]);
}

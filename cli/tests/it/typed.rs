//! Arguments as people type them, and answers as they read them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{SMOKE, done, forage, text};

fn stderr(arguments: &[&str]) -> (Option<i32>, String) {
    let output = forage(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    let error = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), error)
}

/// A world and its index.
fn world(folder: &Path) -> (PathBuf, PathBuf) {
    let (world, index) = (folder.join("world"), folder.join("index"));
    done(&[
        "world",
        "--pages",
        "100",
        "--seed",
        "3",
        "--out",
        text(&world),
    ]);
    let corpus = world.join("beir");
    done(&[
        "index",
        "build",
        "--corpus",
        text(&corpus),
        "--out",
        text(&index),
    ]);
    (world, index)
}

#[test]
fn a_report_of_two_evaluations_is_paired() {
    let folder = tempfile::tempdir().unwrap();
    let (world, index) = world(folder.path());
    let questions = world.join("questions.jsonl");
    let evaluate = |policy: &str, limit: &str| {
        let out = folder.path().join(format!("{policy}-{limit}.jsonl"));
        let evaluation = [
            "eval",
            "--policy",
            policy,
            "--limit",
            limit,
            "--index",
            text(&index),
        ];
        let files = ["--questions", text(&questions), "--out", text(&out)];
        let shown = done(&[&evaluation[..], &files[..]].concat());
        let heading =
            "\nhow well the retriever finds the evidence when the question itself is the query\n";
        assert!(shown.contains(heading), "{shown}");
        out
    };
    let [title, oracle] = ["search-title", "oracle"].map(|policy| evaluate(policy, "20"));
    let shown = done(&["runs", "report", text(&title), text(&oracle), "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let paired = &shown["comparison"];
    let compared = done(&["compare", text(&title), text(&oracle), "--json"]);
    let compared: serde_json::Value = serde_json::from_str(&compared).unwrap();
    assert_eq!(
        paired["comparison"]["metrics"]["em"]["difference"],
        compared["metrics"]["em"]["difference"]
    );
    assert_eq!(paired["a"], "search-title-20");
    let words = paired["words"].as_str().unwrap();
    assert!(
        words.starts_with("oracle-20 beats search-title-20 by"),
        "{words}"
    );
    let fewer = evaluate("oracle", "10");
    let shown = done(&["runs", "report", text(&title), text(&fewer), "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert!(shown["comparison"].is_null());
    let notes = shown["notes"].to_string();
    assert!(notes.contains("answer different questions"), "{notes}");
}

#[test]
fn an_index_is_described_for_people_and_programs() {
    let folder = tempfile::tempdir().unwrap();
    let (world, index) = world(folder.path());
    let shown = done(&["index", "info", text(&index)]);
    let manifest = done(&["index", "info", text(&index), "--json"]);
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let passages = &manifest["counts"]["passages"];
    for part in [
        format!("{}: {passages} passages, ", index.display()),
        format!(
            "{} (beir), {passages} passages\n",
            world.join("beir").display()
        ),
        "BM25, k1 0.9, b 0.4, analyzer lucene-english-".to_owned(),
        "vectors   none".to_owned(),
        " 0 changes since it was built".to_owned(),
    ] {
        assert!(shown.contains(&part), "{part}: {shown}");
    }
    let (code, error) = stderr(&["search", text(&index), "birthplace", "-k", "0"]);
    assert!(
        code == Some(2) && error.contains("a whole number from 1 on"),
        "{error}"
    );
    let found = |filter: &str| forage(&["search", text(&index), "birthplace", "--filter", filter]);
    let nothing = found("title=Nowhere");
    assert!(nothing.status.success());
    assert_eq!(nothing.stdout, b"no passage matches\n");
    let unknown = found("titel=Nowhere");
    let error = String::from_utf8_lossy(&unknown.stderr);
    assert!(
        unknown.status.code() == Some(1) && error.contains("did you mean `title`?"),
        "{error}"
    );
    let (_, error) = stderr(&[
        "index",
        "build",
        "--corpus",
        text(&world.join("beir")),
        "--out",
        text(&index),
    ]);
    assert!(error.contains("`--replace`"), "{error}");
}

#[test]
fn a_recipe_stands_where_a_config_does() {
    let run = |name: &str, change: &str| stderr(&["train", name, "--dry-run", "--set", change]);
    let (code, error) = run("search_r1_v02", "grpo.step=3");
    assert!(
        code == Some(2) && error.contains("recipe search_r1_v02"),
        "{error}"
    );
    assert!(error.contains("`step`"), "{error}");
    let (code, error) = run("search_r1_v92", "grpo.steps=3");
    assert!(
        code == Some(2) && error.contains("did you mean `search_r1_v02`"),
        "{error}"
    );
    let (code, error) = run("nowhere.toml", "grpo.steps=3");
    let fix = "no config file nowhere.toml; check the path, begin one with `forage config init nowhere.toml`";
    assert!(code == Some(2) && error.contains(fix), "{error}");
}

#[test]
fn a_config_is_played_where_an_environment_is() {
    let play = |more: &[&'static str]| [&["play", SMOKE], more].concat();
    let watched = done(&play(&["--policy", "builtin:quickstart"]));
    assert!(
        watched.contains("reward ") && watched.contains("(0.0 to 1.0)"),
        "{watched}"
    );
    let halved = done(&play(&["--policy", "oracle", "--set", "reward.em=0.5"]));
    assert!(halved.contains("reward 0.500 (0.0 to 0.5)"), "{halved}");
    // A question has the number and the id that an inspection shows.
    let asked = |question: &'static str| {
        let played = forage(&play(&["--policy", "oracle", "--question", question]));
        String::from_utf8(played.stderr).unwrap()
    };
    for question in ["3", "fw-test-2", "forage-world/fw-test-2"] {
        let said = asked(question);
        assert!(
            said.contains("question 3, forage-world/fw-test-2"),
            "{said}"
        );
    }
    assert!(asked("31").contains("a number from 1 to 30, or the id of one"));
    let both = play(&["--index", "x", "--questions", "y"]);
    assert!(stderr(&both).1.contains("give either a config or"));
    let (code, error) = stderr(&["play", "search-r1", "--set", "seed=2"]);
    assert!(
        code == Some(2) && error.contains("--set changes a config"),
        "{error}"
    );
    let (_, error) = stderr(&["play", "serach-r1"]);
    assert!(
        error.contains("a config file or the name of a recipe")
            && error.contains("did you mean `search-r1`?"),
        "{error}"
    );
}

#[test]
fn an_evaluation_with_wrong_answers_says_how_to_read_them() {
    let folder = tempfile::tempdir().unwrap();
    let said = |policy: &str, more: &[&str]| {
        let evaluation = ["eval", SMOKE, "--limit", "2", "--policy", policy];
        let evaluated = forage(&[&evaluation[..], more].concat());
        assert!(evaluated.status.success(), "{policy}");
        String::from_utf8(evaluated.stderr).unwrap()
    };
    assert!(said("constant:Velm", &[]).contains("forage runs show FILE --wrong"));
    assert!(!said("oracle", &[]).contains("next: "));
    let file = folder.path().join("wrong.jsonl");
    let next = format!("; forage runs show {} --wrong; ", file.display());
    let kept = said("constant:Velm", &["--out", text(&file)]);
    assert!(kept.contains(&next), "{kept}");
    assert!(done(&["runs", "show", text(&file), "--wrong"]).contains("<answer>Velm</answer>"));
    let inspected = |n| {
        let shown = forage(&["runs", "show", text(&file), "--wrong", "-n", n]);
        String::from_utf8(shown.stderr).unwrap()
    };
    assert!(inspected("1").contains("; -n 10 shows more of these trajectories"));
    assert!(!inspected("2").contains("shows more"));
}

#[test]
fn an_oracle_without_known_queries_is_no_upper_bound() {
    let folder = tempfile::tempdir().unwrap();
    let (world, index) = world(folder.path());
    let own = folder.path().join("own.jsonl");
    let row = r#"{"id": "1", "question": "Where is it?", "golden_answers": ["here"]}"#;
    std::fs::write(&own, row).unwrap();
    for (questions, told) in [(own, true), (world.join("questions.jsonl"), false)] {
        let eval = ["eval", "--policy", "oracle", "--limit", "1"];
        let asked = ["--index", text(&index), "--questions", text(&questions)];
        let shown = done(&[&eval[..], &asked[..]].concat());
        let words = "1 of 1 questions come without known queries: the oracle, a script, searches once, for the question as it is, \
                     and gives an accepted answer only where it stands in what it read. Its score is not an upper bound";
        assert_eq!(shown.contains(words), told, "{shown}");
    }
}

#[test]
fn an_operator_that_is_read_as_a_word_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let (_, index) = world(folder.path());
    let noted = |query: &str, mode: &str| {
        let searched = forage(&["search", text(&index), query, "--mode", mode]);
        assert!(searched.status.success(), "{query}");
        let told = String::from_utf8(searched.stderr).unwrap();
        told.contains("was read as a word; --mode boolean reads it as an operator")
    };
    assert!(noted("river AND (NOT town)", "bm25"));
    assert!(!noted("river and not town", "bm25"));
    assert!(!noted("river AND NOT town", "boolean"));
}

#[test]
fn fewer_questions_than_were_asked_for_are_told_of() {
    let said = |limit: &str| {
        let evaluated = forage(&["eval", SMOKE, "--policy", "oracle", "--limit", limit]);
        assert!(evaluated.status.success(), "{limit}");
        String::from_utf8(evaluated.stderr).unwrap()
    };
    assert!(said("31").contains("warning: --limit is 31, and there are 30"));
    assert!(!said("30").contains("warning: --limit"));
}

#[test]
fn fewer_questions_than_the_config_asks_for_are_told_of_by_collect() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, row: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, row).unwrap();
        path
    };
    let corpus = write(
        "corpus.jsonl",
        r#"{"_id": "a", "title": "A", "text": "a fruit"}"#,
    );
    let train = write("one.jsonl", r#"{"question": "Why?", "answer": "a fruit"}"#);
    let files = format!("files = {{ corpus = {corpus:?}, train = {train:?} }}");
    let data = format!("data={{ {files}, train_questions = 5 }}");
    let kept = folder.path().join("kept.jsonl");
    let collect = ["collect", SMOKE, "--samples", "1", "--min-reward", "0"];
    let settings = ["--set", &data, "--set", "grpo.evaluate_every=0", "--out"];
    let collected = forage(&[&collect[..], &settings[..], &[text(&kept)]].concat());
    let said = String::from_utf8_lossy(&collected.stderr);
    assert!(collected.status.success(), "{said}");
    assert!(
        said.contains("warning: data.train_questions is 5, and there are 1"),
        "{said}"
    );
}

#[test]
fn a_path_into_a_folder_that_is_here_is_no_name_on_the_hub() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("runs")).unwrap();
    let evaluated = Command::new(env!("CARGO_BIN_EXE_forage"))
        .args(["eval", SMOKE, "--policy", "runs/none"])
        .current_dir(folder.path())
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&evaluated.stderr);
    assert!(
        !evaluated.status.success()
            && error.contains("there is no folder `runs/none` here, and `runs` is one"),
        "{error}"
    );
}

/// What a run needs to be told: a policy, what it searches, what it is asked.
#[test]
fn a_config_of_few_lines_trains() {
    let folder = tempfile::tempdir().unwrap();
    let (world, index) = world(folder.path());
    let config = folder.path().join("mine.toml");
    let lines = format!(
        "[policy]\ncheckpoint = \"builtin:quickstart\"\n[data.files]\nindex = {:?}\ntrain = {:?}\n",
        text(&index),
        text(&world.join("questions.jsonl"))
    );
    std::fs::write(&config, lines).unwrap();
    // A policy with a small window needs smaller limits than the defaults, and is told before anything is opened.
    let too_long = "max_episode_tokens is 4096, the policy's window 512";
    let planned = forage(&["train", text(&config), "--dry-run"]);
    let error = String::from_utf8_lossy(&planned.stderr);
    assert!(
        planned.status.code() == Some(2) && error.contains(too_long),
        "{error}"
    );
    let (code, error) = stderr(&["config", "check", text(&config)]);
    assert!(code == Some(2) && error.contains(too_long), "{error}");
    let plan = String::from_utf8_lossy(&planned.stdout);
    for part in [
        "seed = 1\n",
        "id = \"search-r1\"",
        "em = 1.0",
        "context_tokens = 4096",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let run = folder.path().join("run");
    let train = |change: &[&str]| {
        let mut arguments = vec!["train", text(&config), "--out", text(&run)];
        for item in change {
            arguments.extend(["--set", item]);
        }
        forage(&arguments)
    };
    let nowhere = ["--dry-run", "--set", "data.files.dev=nowhere.jsonl"];
    let (code, error) = stderr(&[&["train", text(&config)][..], &nowhere[..]].concat());
    assert!(
        code == Some(2) && error.contains("data.files.dev: there is no nowhere.jsonl"),
        "{error}"
    );
    let refused = train(&["grpo.steps=1"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains(too_long), "{error}");
    let small = [
        "grpo.steps=1",
        "grpo.prompts_per_step=2",
        "environment.settings.prompt=short",
        "environment.settings.max_turn_tokens=24",
        "environment.settings.max_episode_tokens=320",
        "data.train_questions=9000",
        "grpo.evaluate_every=1",
    ];
    let trained = train(&small);
    let said = String::from_utf8_lossy(&trained.stderr);
    assert!(trained.status.success(), "{said}");
    assert!(
        said.contains("data.train_questions is 9000, and there are"),
        "{said}"
    );
    assert!(
        said.contains("names no `dev`: nothing is validated"),
        "{said}"
    );
}

#[test]
fn settings_that_an_environment_lacks_are_refused_before_anything_is_opened() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/smoke.toml");
    let set = ["--dry-run", "--set", "environment.settings.topk=3"];
    let (code, error) = stderr(&[&["train", text(&config)][..], &set[..]].concat());
    assert!(
        code == Some(2) && error.contains("`topk`") && error.contains("did you mean `top_k`?"),
        "{error}"
    );
    let set = ["--dry-run", "--set", "gpro.steps=3"];
    let (code, error) = stderr(&[&["train", text(&config)][..], &set[..]].concat());
    assert!(
        code == Some(2) && error.contains("did you mean `grpo`?"),
        "{error}"
    );
}

#[test]
fn misspelt_scripts_and_missing_questions_are_told_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (world, index) = world(folder.path());
    let questions = world.join("questions.jsonl");
    let asked = ["--questions", text(&questions), "--index", text(&index)];
    let evaluate = ["eval", "--policy", "search-titel"];
    let (code, error) = stderr(&[&evaluate[..], &asked[..]].concat());
    let scripts = "no policy `search-titel`; did you mean the script `search-title`?";
    assert!(code == Some(1) && error.contains(scripts), "{error}");
    assert!(error.contains("neither a folder nor a name"), "{error}");
    let other = ["eval", "--policy", "quux"];
    let (_, error) = stderr(&[&other[..], &asked[..]].concat());
    let scripts = "no policy `quux`; the scripts of search-r1 are `oracle`, `search-title`, `random` and `constant:ANSWER`";
    assert!(error.contains(scripts), "{error}");
    let config = folder.path().join("mine.toml");
    let lines = format!(
        "[policy]\ncheckpoint = \"builtin:quickstart\"\n[data.files]\nindex = {:?}\ntrain = {:?}\n",
        text(&index),
        text(&questions)
    );
    std::fs::write(&config, lines).unwrap();
    let (code, error) = stderr(&["eval", text(&config), "--policy", "oracle"]);
    assert!(
        code == Some(2)
            && error.contains("data.files.test or data.files.train_share")
            && error.contains("the environment's own `questions`"),
        "{error}"
    );
}

#[test]
fn warnings_of_a_plan_that_goes_into_a_file_are_on_stderr_too() {
    let few = ["--set", "data.train_questions=7"];
    let planned = forage(&[&["train", "smoke", "--dry-run"][..], &few[..]].concat());
    let written = [planned.stdout, planned.stderr];
    let [plan, said] = written.map(|text| String::from_utf8(text).unwrap());
    let warning = "warning: 7 training questions for 4 groups a step";
    for part in ["\n# disk: about ", &format!("\n# {warning}")] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    assert!(said.contains(warning), "{said}");
}

#[test]
fn a_small_world_has_as_many_questions_as_fit() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("world");
    let pages = ["world", "--pages", "100", "--out", text(&out), "--json"];
    let made = done(&[&pages[..], &["--hops", "1,0,0,0"]].concat());
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let counts = serde_json::json!({"train": 100, "dev": 46, "test": 91});
    assert_eq!(made["questions"], counts);
}

#[test]
fn what_can_be_done_next_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (first, index) = world(folder.path());
    let said = |arguments: &[&str]| {
        let output = forage(arguments);
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let again = folder.path().join("again");
    let made = said(&["world", "--pages", "100", "--out", text(&again)]);
    assert!(made.contains("next: forage index build"), "{made}");
    let (questions, out) = (first.join("questions.jsonl"), folder.path().join("e.jsonl"));
    let asked = ["--questions", text(&questions), "--index", text(&index)];
    let written = ["--limit", "2", "--samples", "2", "--out", text(&out)];
    let evaluate = ["eval", "--policy", "search-title"];
    let evaluated = said(&[&evaluate[..], &asked[..], &written[..]].concat());
    assert!(
        evaluated.contains("greedy: played 2/2") && evaluated.contains("next: forage runs report"),
        "{evaluated}"
    );
    let samples = out.with_extension("sampled.jsonl");
    let compared = format!("forage compare OTHER {} for pass@k", text(&samples));
    assert!(evaluated.contains(&compared), "{evaluated}");
    let (episodes, folder) = (text(&out), folder.path());
    let [page, policy] = ["page.html", "policy"].map(|name| folder.join(name));
    let cases: [(&[&str], &str); 11] = [
        (
            &["config", "check", "smoke", "--set", "seed=2"],
            "forage audit smoke --set seed=2; ",
        ),
        (
            &["audit", "smoke", "--groups", "2", "--set", "seed=1"],
            "forage train smoke --set seed=1",
        ),
        // Every episode of the one group is right.
        (
            &["audit", "smoke", "--groups", "1", "--set", "seed=2"],
            "mend what `directions` says; forage audit smoke --set seed=2",
        ),
        (
            &["data", "check", text(&questions)],
            "forage config init CONFIG --questions ",
        ),
        (&["telemetry", episodes], "forage runs show "),
        (&["runs", "show", episodes], "forage runs report "),
        (&["index", "merge", text(&index)], "forage search "),
        (&["search", text(&index), "birthplace"], "forage serve "),
        (&["compare", episodes, episodes], "forage compare "),
        (&["runs", "report", episodes, "--out", text(&page)], "open "),
        (
            &["export", "builtin:quickstart", "--merged", text(&policy)],
            "forage eval CONFIG ",
        ),
    ];
    for (arguments, next) in cases {
        let told = said(arguments);
        assert!(told.contains(&format!("next: {next}")), "{told}");
    }
    let told = said(&["search", text(&index), "birthplace", "--json"]);
    assert!(told.is_empty(), "{told}");
}

#[test]
fn pages_are_not_read_from_passages() {
    let folder = tempfile::tempdir().unwrap();
    let (world, beir) = world(folder.path());
    let index = folder.path().join("passages");
    let pages = world.join("pages/pages.jsonl");
    done(&[
        "index",
        "build",
        "--corpus",
        text(&pages),
        "--format",
        "pages",
        "--out",
        text(&index),
    ]);
    let questions = world.join("questions.jsonl");
    let evaluate = ["eval", "--env", "code-search", "--policy", "oracle"];
    let asked = ["--questions", text(&questions), "--limit", "2", "--index"];
    for (index, words) in [(index, "(format pages)"), (beir, " for instance, ")] {
        let (_, error) = stderr(&[&evaluate[..], &asked, &[text(&index)]].concat());
        assert!(
            error.contains("--format whole-pages") && error.contains(words),
            "{error}"
        );
    }
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let bash = done(&["shell", "completions", "bash"]);
    assert!(bash.contains("forage__subcmd__quickstart") || bash.contains("forage__quickstart"));
    let folder = tempfile::tempdir().unwrap();
    done(&["shell", "man", text(folder.path())]);
    for page in ["forage.1", "forage-train.1", "forage-index-build.1"] {
        let page = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
}

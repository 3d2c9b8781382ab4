//! Runs as people read them: `forage runs report` and `forage runs show`, on complete runs and on one that is being written.

use std::io::Write;
use std::path::Path;

use crate::support::{SMOKE, done, fails, forage, json, lines, text};

/// Appends what a writer that was stopped within a character leaves.
fn tear(path: &Path) {
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(b"{\"step\":2,\"name\":\"\xc3").unwrap();
}

#[test]
fn a_quickstart_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let place = run.to_str().unwrap();
    let told = json(&["quickstart", "--config", SMOKE, "--out", place]);
    let verdict = std::fs::read_to_string(run.join("verdict.json")).unwrap();
    let verdict: serde_json::Value = serde_json::from_str(&verdict).unwrap();
    assert_eq!(told["verdict"], verdict);
    assert_eq!(told["evaluations"]["trained"]["questions"], 30);
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    // 30 questions of three policies, greedy and sampled, and a group of four of the first and the last step of both runs.
    assert!(
        page.contains("12 of 196 trajectories"),
        "the page of the run itself"
    );
    assert!(
        page.contains("start, greedy")
            && page.contains("class=\"index\"")
            && page.contains("train questions")
    );
    let told = json(&["runs", "report", place]);
    assert!(told["verdicts"]["run"]["gain"].is_f64());
    assert_eq!(told["evaluations"]["trained, sampled"]["questions"], 30);
    assert_eq!(told["training"][0]["arm"], "trained");
    assert!(
        told["conduct"]["trained"]["policy_tokens"]["last"].as_f64() > Some(0.0),
        "{}",
        told["conduct"]
    );
    assert!(page.contains("<h2>Conduct</h2>"));
    let markdown = done(&["runs", "report", place, "--markdown"]);
    assert!(
        markdown.contains("| metric | start, greedy | start, sampled | trained, greedy |"),
        "{markdown}"
    );
    // Beside another run the parts have its name before theirs.
    let both = json(&["runs", "report", place, place])["notes"].to_string();
    let status = format!("{place}: trained: all 4 steps are done.");
    assert!(both.contains(&status), "{both}");

    let wrong = done(&["runs", "show", place, "--wrong", "-n", "3"]);
    assert!(
        wrong.contains("trained: all 4 steps are done.") && wrong.contains("[policy] "),
        "{wrong}"
    );
    assert_eq!(
        wrong.matches("start, greedy, question").count(),
        3,
        "{wrong}"
    );
    assert!(
        !wrong.contains("em 1.00") && !wrong.contains('\x1b'),
        "{wrong}"
    );
    let step = done(&["runs", "show", place, "--step", "0", "-n", "9"]);
    assert_eq!(
        step.matches(", step 0, group 0, member ").count(),
        8,
        "{step}"
    );
    let last = done(&["runs", "show", place, "--step", "3", "-n", "9"]);
    assert_eq!(
        last.matches(", step 3, group 0, member ").count(),
        8,
        "{last}"
    );
    let none = done(&["runs", "show", place, "--step", "200"]);
    assert!(none.contains("the nearest recorded: 3."), "{none}");
    let (code, nobody) = fails(&["runs", "show", place, "--question", "nobody's"]);
    assert!(
        code == 1 && nobody.contains("no trajectory of a question `nobody's`"),
        "{nobody}"
    );
    let asked = &lines(&run.join("evaluation/trained.jsonl"))[0]["episode"]["task"];
    let part = |key: &str| asked[key].as_str().unwrap_or_default();
    let whole = format!("{}/{}", part("data_source"), part("id"));
    for id in [part("id"), whole.trim_start_matches('/')] {
        let found = done(&["runs", "show", place, "--question", id, "-n", "1"]);
        assert!(found.contains(part("question")), "{id}: {found}");
    }
    let third = done(&["runs", "show", place, "--question", "3", "-n", "1"]);
    assert!(
        third.contains("start, greedy, question 3, member 0"),
        "{third}"
    );
    let found = json(&["runs", "show", place, "--wrong", "-n", "3"]);
    let trained = &found["runs"][0];
    assert_eq!(trained["name"], "trained");
    let reward = &trained["metrics"]["reward/mean"];
    assert!(
        reward["newest"].is_number() && found["verdict"].is_object(),
        "{trained}"
    );
    let trajectories = found["trajectories"].as_array().unwrap();
    assert_eq!(trajectories.len(), 3);
    assert_eq!(trajectories[0]["texts"][0]["author"], "prompt");
    assert!(trajectories.iter().all(|one| one["score"]["em"] == 0.0));

    let episodes = run.join("evaluation/start.jsonl");
    let both = run.join("evaluation/trained.jsonl");
    let files = json(&["runs", "report", text(&episodes), text(&both)]);
    assert_eq!(files["evaluations"]["start"]["episodes"], 30);
    let guesses = folder.path().join("guesses.jsonl");
    done(&[
        "eval",
        SMOKE,
        "--policy",
        "constant:Velm",
        "--out",
        text(&guesses),
    ]);
    let sign = &json(&["runs", "report", text(&guesses)])["alarms"][0];
    assert_eq!(
        (sign["kind"].as_str(), sign["severity"].as_str()),
        (Some("unsearched_answer"), Some("sign")),
        "{sign}"
    );
    assert!(
        files["evaluations"]["trained"].is_object()
            && files["training"].as_array().unwrap().is_empty()
    );
}

#[test]
fn a_run_that_is_being_written_is_read_as_far_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, two) = (place("seed-1"), place("seed-2"));
    done(&["train", SMOKE, "--out", &one, "--set", "grpo.steps=2"]);
    done(&[
        "train",
        SMOKE,
        "--out",
        &two,
        "--set",
        "grpo.steps=2",
        "--set",
        "seed=2",
    ]);
    let arms = json(&["runs", "report", &one, &two]);
    assert_eq!(
        (&arms["training"][0]["arm"], &arms["training"][0]["runs"]),
        (&"seed-1, seed-2 (2 runs)".into(), &2.into())
    );
    assert_eq!(
        arms["training"].as_array().unwrap().len(),
        1,
        "seeds make one arm"
    );

    let rollouts = folder.path().join("seed-1/rollouts/step-000001.jsonl");
    tear(&rollouts);
    for file in ["metrics.jsonl", "telemetry.jsonl", "alarms.jsonl"] {
        tear(&folder.path().join("seed-1").join(file));
    }
    let config = std::fs::read_to_string(folder.path().join("seed-1/config.toml")).unwrap();
    std::fs::write(
        folder.path().join("seed-1/config.toml"),
        config.replacen("steps = 2\n", "steps = 9\n", 1),
    )
    .unwrap();
    let page = place("report.html");
    done(&["runs", "report", &one, "--out", &page, "--most", "3"]);
    let html = std::fs::read_to_string(&page).unwrap();
    for needle in [
        "seed-1: 2 of 9 steps are done",
        "the next row is half written",
        "step-000001.jsonl: its last line is half written and left out",
        "3 trajectories are shown",
        "3 of 3 trajectories",
    ] {
        assert!(html.contains(needle), "{needle}");
    }
    assert!(done(&["runs", "show", &one]).contains("its last line is half written and left out"));
    // A resumed run goes on after what is whole.
    std::fs::write(folder.path().join("seed-1/config.toml"), config).unwrap();
    done(&[
        "train",
        SMOKE,
        "--out",
        &one,
        "--set",
        "grpo.steps=3",
        "--resume",
    ]);
    assert!(done(&["runs", "show", &one]).contains("seed-1: all 3 steps are done."));
}

#[test]
fn runs_of_the_same_name_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let place = |at: &str| folder.path().join(at).join("episodes.jsonl");
    for (at, seed) in [
        ("a", "data.world.seed=1000001"),
        ("b", "data.world.seed=2000001"),
    ] {
        std::fs::create_dir(folder.path().join(at)).unwrap();
        done(&[
            "eval",
            SMOKE,
            "--policy",
            "oracle",
            "--limit",
            "9",
            "--set",
            seed,
            "--out",
            text(&place(at)),
        ]);
    }
    let (a, b) = (place("a"), place("b"));
    let both = json(&["runs", "report", text(&a), text(&b)]);
    let evaluations = both["evaluations"].as_object().unwrap();
    assert_eq!(evaluations.keys().collect::<Vec<_>>(), [text(&a), text(&b)]);
    // The questions of the two worlds share their ids alone.
    let (code, refused) = fails(&["compare", text(&a), text(&b)]);
    assert!(
        code == 1
            && refused.contains("9 of A's are missing in B")
            && refused.contains("fw-test-0, \""),
        "{refused}"
    );
    let page = folder.path().join("report.html");
    done(&["runs", "report", text(&a), text(&b), "--out", text(&page)]);
    let html = std::fs::read_to_string(&page).unwrap();
    let index = html
        .split("class=\"index\">")
        .nth(1)
        .unwrap()
        .split("</script>")
        .next()
        .unwrap();
    let index: serde_json::Value = serde_json::from_str(index).unwrap();
    assert_eq!(
        (
            index["questions"].as_array().unwrap().len(),
            index["runs"].as_array().unwrap().len()
        ),
        (18, 2)
    );
}

#[test]
fn two_policies_are_compared_on_one_page() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let (base, trained) = (place("base.jsonl"), place("trained.jsonl"));
    for (policy, path) in [("search-title", &base), ("oracle", &trained)] {
        let eval = ["eval", SMOKE, "--policy", policy, "--limit", "9"];
        done(&[&eval[..], &["--samples", "2", "--out", text(path)]].concat());
    }
    let page = place("compared.html");
    let compare = ["compare", text(&base), text(&trained), "--out", text(&page)];
    assert!(done(&compare).contains("compared.html"));
    let html = std::fs::read_to_string(&page).unwrap();
    for needle in [
        "trained - base",
        "<h2>Failures</h2>",
        "answers without a search",
        "repeats its instructions",
        "18 trajectories",
    ] {
        assert!(html.contains(needle), "{needle}");
    }
    let told = json(&["runs", "report", text(&base), text(&trained)]);
    let failures = told["comparison"]["failures"].as_array().unwrap();
    assert_eq!(failures[0]["name"], "unsearched_answer");
    let samples = [&base, &trained].map(|file| file.with_extension("sampled.jsonl"));
    let sampled = json(&["runs", "report", text(&samples[0]), text(&samples[1])]);
    let words = sampled["comparison"]["words"].as_str().unwrap();
    assert!(
        words.contains("base, sampled") && !words.contains("base.sampled"),
        "{words}"
    );
    // Beside the run that was trained between the two as well.
    let run = place("run");
    let train = ["train", SMOKE, "--out", text(&run), "--set", "grpo.steps=1"];
    done(&[&train[..], &["--set", "grpo.evaluate_every=0"]].concat());
    let report = ["runs", "report", text(&run), text(&base), text(&trained)];
    assert_eq!(json(&report)["comparison"], told["comparison"]);
    let markdown = done(&[&report[..], &["--markdown"]].concat());
    assert!(!markdown.contains("Nothing was validated"), "{markdown}");
    let alone = done(&["runs", "report", text(&run), "--markdown"]);
    assert!(alone.contains("Nothing was validated"), "{alone}");
}

#[test]
fn a_run_that_learned_nothing_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let same = ["--set", "reward={ constant = 1.0 }"];
    let train = ["train", SMOKE, "--out", text(&run), "--set", "grpo.steps=1"];
    let trained = forage(&[&train[..], &same[..]].concat());
    let said = String::from_utf8_lossy(&trained.stderr);
    let told = "no step changed the policy, as no group was learned from";
    assert!(
        trained.status.success() && said.contains(&format!("warning: train: {told}")),
        "{said}"
    );
    let page = folder.path().join("report.html");
    done(&["runs", "report", text(&run), "--out", text(&page)]);
    let shown = [
        std::fs::read_to_string(&page).unwrap(),
        done(&["runs", "report", text(&run), "--markdown"]),
        done(&["runs", "show", text(&run)]),
        done(&["runs", "watch", text(&run)]),
    ];
    for shown in shown {
        let joined = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(joined.contains(told), "{shown}");
    }
}

#[test]
fn a_run_that_has_no_end_has_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    done(&["train", SMOKE, "--out", text(&run), "--set", "grpo.steps=1"]);
    std::fs::rename(run.join("policy"), folder.path().join("away")).unwrap();
    let (_, error) = fails(&["eval", "--controls", text(&run)]);
    assert!(
        error.contains("has not come to its end") && !run.join("evaluation").exists(),
        "{error}"
    );
    // The policy that there is so far is named.
    let (code, error) = fails(&["eval", SMOKE, "--policy", text(&run.join("policy"))]);
    let newest = run.join("checkpoints/step-000001/model");
    let told = format!("its newest checkpoint has {}", newest.display());
    assert!(code == 2 && error.contains(&told), "{error}");
    done(&["eval", SMOKE, "--policy", text(&newest), "--limit", "2"]);
    let (code, error) = fails(&["eval", "--controls", text(&run), "--samples", "3"]);
    assert!(code == 2 && error.contains("--samples"), "{error}");
}

#[test]
fn a_study_in_json_has_its_words() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    done(&["train", SMOKE, "--out", text(&run), "--set", "grpo.steps=1"]);
    let found = json(&["eval", "--controls", text(&run), "--limit", "4"]);
    let words = found["words"].as_array().unwrap();
    assert!(words[0].as_str().unwrap().contains(" EM"), "{words:?}");
    assert!(words.len() > 2, "{words:?}");
    assert_eq!(found["greedy"]["outcome"], "answer");
    let kept = || std::fs::read(run.join("study.json")).unwrap();
    let before = kept();
    let (_, error) = fails(&["eval", "--controls", text(&run), "--limit", "3"]);
    assert!(error.contains("has a study of 4 questions"), "{error}");
    assert!(kept() == before);
}

#[test]
fn what_is_no_run_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    for command in ["report", "show", "watch"] {
        let (code, said) = fails(&["runs", command, place]);
        assert_eq!(code, 1);
        assert!(
            said.contains("is not a run folder") && said.lines().count() == 1,
            "{said}"
        );
    }
    let nowhere = folder.path().join("nowhere");
    let (code, said) = fails(&["runs", "show", text(&nowhere)]);
    assert!(code == 1 && said.contains("there is no "), "{said}");
    // A record that is damaged, with what to do about it.
    std::fs::write(folder.path().join("metrics.jsonl"), "").unwrap();
    for (name, fix) in [
        ("study.json", "forage eval --controls writes another"),
        ("verdict.json", "what else is in the folder can be read"),
    ] {
        let record = folder.path().join(name);
        std::fs::write(&record, "{\"greedy\": ").unwrap();
        let (code, said) = fails(&["runs", "report", place, "--json"]);
        assert!(code == 1 && said.contains(fix), "{said}");
        assert!(
            said.contains(&format!("{} does not hold", text(&record))),
            "{said}"
        );
        std::fs::remove_file(&record).unwrap();
    }
    let file = folder.path().join("words.jsonl");
    std::fs::write(&file, "not json\n").unwrap();
    let (_, said) = fails(&["runs", "report", text(&file), "--json"]);
    assert!(said.contains("line 1 is not an episode record"));
}

//! `forage runs`: what a folder of runs holds, as a table, as JSON and as CSV.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::support::{SMOKE, done, fails, json, lines, text};

fn train(folder: &Path, seed: &str) {
    let seed = format!("seed={seed}");
    let settings = [
        "grpo.steps=3",
        "grpo.evaluate_every=1",
        "data.dev_questions=7",
        &seed,
    ];
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let words: Vec<&str> = ["train", SMOKE, "--out", text(folder)]
        .into_iter()
        .chain(settings)
        .collect();
    let trained = json(&words);
    assert_eq!(trained["policy"], text(&folder.join("policy")));
    assert_eq!(trained["twins"], serde_json::json!([]));
}

fn evaluated(run: &Path, name: &str, policy: &str) {
    let file = run.join("evaluation").join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    done(&["eval", SMOKE, "--policy", policy, "--out", text(&file)]);
}

#[test]
fn runs_are_listed_compared_and_exported_whatever_their_state() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let [one, two] = ["one", "deeper/two"].map(|name| runs.join(name));
    train(&one, "5");
    train(&two, "6");
    let broken = runs.join("broken");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("metrics.jsonl"), "nothing\n").unwrap();
    let begun = runs.join("begun");
    std::fs::create_dir_all(&begun).unwrap();
    std::fs::write(begun.join("config.toml"), "seed = 9\n[grpo]\nsteps = 4\n").unwrap();
    std::fs::write(
        begun.join("metrics.jsonl"),
        "{\"step\":0,\"val/ndcg\":0.25}\n",
    )
    .unwrap();
    std::fs::create_dir_all(runs.join("notes")).unwrap();

    let found = json(&["runs", "list", text(&runs)]);
    let found = found["runs"].as_array().unwrap();
    let states: Vec<&str> = found
        .iter()
        .map(|run| run["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        states,
        ["unfinished", "damaged", "done", "done"],
        "{found:?}"
    );
    let [begun, broken, two, first] = [0, 1, 2, 3].map(|place| &found[place]);
    assert!(
        broken["fault"]
            .as_str()
            .unwrap()
            .contains("line 1 is not a JSON object")
    );
    assert_eq!(
        (&begun["steps"], &begun["steps_planned"]),
        (&1.into(), &4.into())
    );
    assert_eq!(
        begun["validations"]["0"]["low"], 0.25,
        "no number of questions, no interval"
    );
    assert_eq!((&first["seed"], &two["seed"]), (&5.into(), &6.into()));
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    let config = std::fs::read(one.join("config.toml")).unwrap();
    assert_eq!(
        first["config_digest"],
        blake3::hash(&config).to_hex().as_str()
    );

    // The figures are those of the files, read another way.
    let rows = lines(&one.join("metrics.jsonl"));
    let sum = |name: &str| {
        rows.iter()
            .filter_map(|row| row[name].as_f64())
            .sum::<f64>()
    };
    let seconds = ["time/rollout_s", "time/update_s", "time/wait_s"].map(sum);
    assert!((first["seconds"].as_f64().unwrap() - seconds.iter().sum::<f64>()).abs() < 1e-9);
    let played = lines(&one.join("telemetry.jsonl"));
    let episodes = played
        .iter()
        .map(|step| step["items"]["reward"]["episodes"].as_u64().unwrap());
    assert_eq!(first["episodes"], episodes.sum::<u64>());
    for row in rows.iter().filter(|row| row["val/em"].is_number()) {
        let found = &first["validations"][row["step"].to_string()];
        assert_eq!(found["estimate"], row["val/em"]);
        assert_eq!(row["val/questions"], 7.0);
        // Wilson's interval of seven questions is wide, whatever they gave.
        let width = found["high"].as_f64().unwrap() - found["low"].as_f64().unwrap();
        assert!(width > 0.3 && width < 0.7, "{found}");
    }

    let table = done(&["runs", "list", text(&runs)]);
    assert!(
        table.contains("broken is damaged: ") && table.contains("1/4"),
        "{table}"
    );
    shown(&one, first);
    assert!(done(&["runs", "list", text(&runs.join("notes"))]).contains("holds no run"));

    exported(&runs, &one);
}

/// A run that is shown has the figures that the list has of it, once, beside its status, metrics and trajectories.
fn shown(one: &Path, listed: &Value) {
    let told = done(&["runs", "show", text(one)]);
    let digest = &listed["config_digest"].as_str().unwrap()[..8];
    for part in [
        "one: all 3 steps are done.",
        "Training reward",
        "\nstate ",
        "val/em",
        "\nseed ",
        digest,
        "[policy] ",
    ] {
        assert!(told.contains(part), "no `{part}` in\n{told}");
    }
    assert!(
        !told.contains("\nsteps ") && !told.contains("\nalarms "),
        "{told}"
    );
    let all = json(&["runs", "show", text(one)]);
    assert_eq!(all["runs"].as_array().unwrap().len(), 1);
    let run = &all["runs"][0];
    for (key, value) in listed.as_object().unwrap() {
        // The list counts them.
        if key != "alarms" {
            assert_eq!(&run[key], value, "{key}");
        }
    }
    assert_eq!(run["name"], "one");
    assert!(run["alarms"].is_array() && run["signs"].is_array());
    assert!(run["metrics"]["reward/mean"]["newest"].is_number());
    assert_eq!(all["trajectories"].as_array().unwrap().len(), 2);
}

/// Every number of every row is in the export once, and nothing else.
fn exported(runs: &Path, one: &Path) {
    let file = runs.join("all.csv");
    done(&["runs", "export", text(runs), "--out", text(&file)]);
    let csv = std::fs::read_to_string(&file).unwrap();
    assert_eq!(csv, done(&["runs", "export", text(runs)]));
    let of = format!("{},", text(one));
    let found: Vec<&str> = csv
        .lines()
        .filter_map(|line| line.strip_prefix(&of))
        .collect();
    let mut expected = Vec::new();
    for row in lines(&one.join("metrics.jsonl")) {
        let step = row["step"].as_u64().unwrap();
        for (name, value) in row
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| *name != "step")
        {
            expected.extend(value.as_f64().map(|value| format!("{name},{step},{value}")));
        }
    }
    assert!(!expected.is_empty());
    assert_eq!(found, expected);
    assert!(csv.starts_with("run,metric,step,value\n") && csv.contains("begun,val/ndcg,0,0.25\n"));
}

#[test]
fn runs_are_compared_by_settings_figures_and_questions() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
    train(&one, "5");
    train(&two, "6");
    evaluated(&one, "held-out.jsonl", "oracle");
    evaluated(&two, "held-out.jsonl", "constant:Velm");
    evaluated(&two, "alone.jsonl", "oracle");
    let words = ["runs", "compare", text(&one), text(&two)];
    let found = json(&words);
    assert_eq!(found["differences"]["seed"], serde_json::json!([5, 6]));
    assert_eq!(found["differences"]["grpo.steps"], Value::Null);
    let paired = found["paired"].as_array().unwrap();
    assert_eq!(paired.len(), 1, "only one evaluation is on both sides");
    assert_eq!(paired[0]["evaluation"], "held-out, greedy");
    let [a, b] = [&one, &two].map(|run| run.join("evaluation/held-out.jsonl"));
    let alone = json(&["compare", text(&a), text(&b)]);
    let em = &paired[0]["comparison"]["metrics"]["em"];
    assert_eq!(em, &alone["metrics"]["em"], "as forage compare has it");
    let told = done(&words);
    assert!(
        told.contains("held-out, greedy: ") && told.contains(" EM ("),
        "{told}"
    );

    std::fs::write(two.join("metrics.jsonl"), "nothing\n").unwrap();
    let told = done(&words);
    assert!(
        told.contains("damaged")
            && told.contains("two is damaged: ")
            && told.contains("one: training reward "),
        "{told}"
    );
    assert!(
        told.contains("There are no two of which the settings are known.")
            && !told.contains("settings are the same"),
        "{told}"
    );
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    for words in [
        &["runs", "show", text(&other)][..],
        &["runs", "compare", text(&one), text(&other)],
    ] {
        let (code, error) = fails(words);
        assert!(
            code == 1 && error.contains("other is not a run folder"),
            "{error}"
        );
    }
    let (code, error) = fails(&["runs", "show", text(&folder.path().join("none"))]);
    assert!(code == 1 && error.contains("there is no "), "{error}");
    let (code, error) = fails(&["runs", "list", text(&folder.path().join("none"))]);
    assert!(code == 1 && error.contains("cannot read"), "{error}");
}

/// Runs the program in a folder.
fn within(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forage"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn the_newest_run_is_meant_where_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let ran = within(folder.path(), arguments);
        let [out, error] = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
        (ran.status.code(), out, error)
    };
    for words in [
        &["runs", "show"][..],
        &["runs", "watch"],
        &["runs", "report"],
        &["serve", "run", "--addr", "0"],
    ] {
        let (code, _, error) = run(words);
        assert!(
            code == Some(1) && error.contains("no RUN is named") && error.lines().count() == 1,
            "{error}"
        );
    }
    let write = |name: &str, second: u64| {
        let place = folder.path().join("runs").join(name);
        std::fs::create_dir_all(&place).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + second);
        for (record, text) in [
            ("config.toml", "seed = 1\n[grpo]\nsteps = 4\n"),
            ("metrics.jsonl", "{\"step\":0,\"reward/mean\":0.5}\n"),
        ] {
            std::fs::write(place.join(record), text).unwrap();
            let mut options = std::fs::File::options();
            let file = options.append(true).open(place.join(record)).unwrap();
            file.set_modified(time).unwrap();
        }
    };
    for (name, second) in [("a/one", 1), ("b", 3), ("c", 2)] {
        write(name, second);
    }
    for words in [
        &["runs", "show"][..],
        &["runs", "watch"],
        &["runs", "report", "--markdown"],
    ] {
        let (code, out, error) = run(words);
        assert_eq!(code, Some(0), "{error}");
        assert!(out.contains("b: 1 of 4 steps are done"), "{out}");
        assert_eq!(
            error.matches("the newest run: runs/b\n").count(),
            1,
            "{error}"
        );
    }
    write("a/one", 4);
    let (_, out, error) = run(&["runs", "show", "--json"]);
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(found["runs"][0]["path"], "runs/a/one");
    assert_eq!(error, "the newest run: runs/a/one\n");
    let (_, _, error) = run(&["runs", "show", "runs/c"]);
    assert!(!error.contains("newest"), "{error}");
    let [alone, list] = [&["runs"][..], &["runs", "list"]].map(run);
    assert!(alone == list && alone.1.contains("runs/c"), "{alone:?}");
}

#[test]
fn commands_that_stand_below_runs_are_named_there() {
    for (old, new) in [
        ("inspect", "runs show"),
        ("watch", "runs watch"),
        ("report", "runs report"),
    ] {
        let (code, error) = fails(&[old, "runs/mine", "--json"]);
        let told = format!("exists: '{new}'");
        assert!(code == 2 && error.contains(&told), "{error}");
    }
}

#[test]
fn three_policies_are_ranked() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let files = ["oracle", "search-title", "constant:Velm"].map(|policy| {
        let file = place(policy).with_extension("jsonl");
        done(&["eval", SMOKE, "--policy", policy, "--out", text(&file)]);
        file
    });
    let words: Vec<&str> = std::iter::once("compare")
        .chain(files.iter().map(|file| text(file)))
        .collect();
    let found = json(&words);
    let points = found["standings"]["points"].as_array().unwrap();
    assert_eq!(
        (
            points.len(),
            found["standings"]["rounds"].as_array().unwrap().len()
        ),
        (3, 1)
    );
    assert!(points[0].as_f64() > points[2].as_f64(), "{points:?}");
    assert_eq!(found["against_first"].as_array().unwrap().len(), 2);
    let told = done(&words);
    assert!(
        told.contains("expected points: mean over")
            && told.contains("em on ")
            && !told.contains("elimination")
            && told.contains("oracle.jsonl beats"),
        "{told}"
    );
    let (code, error) = fails(&[&words[..], &["--margin", "searches=1"]].concat());
    assert!(
        code == 2 && error.contains("cannot be used with"),
        "{error}"
    );
}

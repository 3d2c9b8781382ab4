//! `forage runs`: what a folder of runs holds, as a table, as JSON and as CSV.

use std::path::Path;

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
    assert!(done(&["runs", "show", text(&one)]).contains("val/em"));
    assert!(done(&["runs", "list", text(&runs.join("notes"))]).contains("holds no run"));

    exported(&runs, &one);
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
        told.contains("damaged") && told.contains("two is damaged: "),
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
    assert!(code == 1 && error.contains("there is no folder"), "{error}");
    let (code, error) = fails(&["runs", "list", text(&folder.path().join("none"))]);
    assert!(code == 1 && error.contains("cannot read"), "{error}");
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

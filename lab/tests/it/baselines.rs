//! Baselines of a study: other ways to spend a run's episodes, in a small world.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use forage_contracts::Episode;
use forage_env::EpisodeRecord;
use forage_lab::{
    Observer, QuickstartOptions, Resolved, RunConfig, RunError, Studied, TrainOptions, page,
    quickstart, study, train,
};
use serde_json::Value;

const METHODS: [&str; 8] = [
    "forced_search",
    "best_of_8",
    "majority_of_8",
    "rejection_sampling",
    "rejection_sampling_timed",
    "demonstrations",
    "demonstrations_timed",
    "search-title",
];

fn config(more: &[&str]) -> Resolved {
    let small = [
        "data.world.pages=300",
        "data.train_questions=12",
        "data.dev_questions=0",
        "data.test_questions=16",
        "reward={ em = 1.0, format = 0.2 }",
        "grpo.steps=2",
        "grpo.group_size=4",
        "grpo.prompts_per_step=4",
        "grpo.evaluate_every=0",
        "evaluation.samples=1",
        "evaluation.resamples=200",
    ];
    let small = small.iter().chain(more).map(|&item| item.to_owned());
    let small: Vec<String> = small.collect();
    let text = include_str!("../../../configs/quickstart.toml");
    let config = RunConfig::parse(text, &small).unwrap();
    config.resolve(None).unwrap()
}

fn studied(run: &Path, overrides: &[String]) -> Result<Studied, RunError> {
    study(&[run.to_owned()], None, overrides, false, &())
}

/// Dies when it hears of an episode after so many.
struct Killed {
    after: usize,
    heard: AtomicUsize,
}

impl Observer for Killed {
    fn progress(&self, _task: &str, _done: u64, _total: u64, _shown: &str) {
        let heard = self.heard.fetch_add(1, Ordering::Relaxed);
        assert!(heard < self.after, "killed");
    }
}

/// A study of a run that dies after so many episodes.
fn killed(run: &Path, overrides: &[String], after: usize) {
    let runs = [run.to_owned()];
    let observer = Killed {
        after,
        heard: AtomicUsize::new(0),
    };
    let ran = AssertUnwindSafe(|| study(&runs, None, overrides, false, &observer));
    assert!(catch_unwind(ran).is_err(), "not killed");
}

/// The files of a run's evaluation and its study.
fn kept(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(run.join("evaluation")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let files = files.chain([run.join("study.json")]);
    files
        .map(|file| (file.display().to_string(), std::fs::read(&file).unwrap()))
        .collect()
}

/// The folders of a baseline in a run's, one for each digest of what shaped it.
fn folders_of(run: &Path, name: &str) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(run.join("baselines")).unwrap();
    let folders = folders.map(|entry| entry.unwrap().path());
    let of = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        file.rsplit_once('-').is_some_and(|(own, _)| own == name)
    };
    folders.filter(of).collect()
}

#[test]
fn baselines_stand_beside_the_trained_policy_in_a_study() {
    let scratch = tempfile::tempdir().unwrap();
    let run = scratch.path().join("run");
    let options = TrainOptions {
        folder: run.clone(),
        ..TrainOptions::default()
    };
    train(&config(&[]), &options, &()).unwrap();
    let plain = studied(&run, &[]).unwrap();
    assert!(!run.join("baselines").exists(), "off unless asked for");

    let asked = [
        "evaluation.samples=8".to_owned(),
        format!("evaluation.baselines={METHODS:?}"),
    ];
    let found = studied(&run, &asked).unwrap();
    assert_eq!(found.greedy.words()[0], plain.greedy.words()[0]);
    let json = |studied: &Studied| {
        let both = (&studied.greedy, &studied.sampled);
        serde_json::to_value(both).unwrap()
    };
    let shown = json(&found);
    for part in [&shown[0], &shown[1]] {
        let baselines = part["baselines"].as_array().unwrap();
        let names: Vec<&str> = baselines
            .iter()
            .map(|arm| arm["name"].as_str().unwrap())
            .collect();
        let expected = METHODS.map(|name| name.replace("search-title", "script-search-title"));
        assert_eq!(names, expected);
        for arm in baselines {
            assert!(
                arm["gain"]["low"].is_f64() && arm["lead"]["difference"]["low"].is_f64(),
                "{arm}"
            );
        }
    }
    // The best of eight samples is right at least as often as one of them, and as their majority.
    let score = |place: usize| shown[1]["baselines"][place]["seeds"][0]["score"].as_f64();
    let start = shown[1]["baselines"][1]["seeds"][0]["start"].as_f64();
    assert!(score(1) >= start && score(1) >= score(2), "{shown}");
    let curve = shown[1]["pass_at_k"]["a"].as_array().unwrap();
    assert_eq!(curve.last().unwrap()["k"], 8);
    let best = curve.last().unwrap()["value"]["estimate"].as_f64().unwrap();
    assert!(
        (best - score(1).unwrap()).abs() < 1e-6,
        "pass@8 is the best of 8"
    );
    let text = found.greedy.to_text();
    for name in METHODS {
        assert!(text.contains(name), "{name}: {text}");
        if name != "search-title" {
            assert!(run.join(format!("evaluation/{name}.jsonl")).exists());
        }
    }

    // The run keeps its study, and its page draws it.
    let page = page(std::slice::from_ref(&run), 0).unwrap().render();
    for drawn in [
        "forced search − start, sampled",
        "<th scope=\"row\">demonstrations</th>",
        "pass@k: a right answer among k samples",
        "share of the gain",
    ] {
        assert!(page.contains(drawn), "{drawn}");
    }

    // Every episode of the forced start searches first.
    let file = run.join("evaluation/forced_search.jsonl");
    let forced = EpisodeRecord::read_all(&file).unwrap();
    let forced: Vec<Episode> = forced.map(|record| record.unwrap().episode).collect();
    assert_eq!(forced.len(), 16);
    for episode in &forced {
        let first = &episode.turns[0].policy;
        assert!(first.starts_with("<search>"), "{first}");
    }
    // Those that learn have learned: as many demonstrations as the run played episodes, and what rounds kept.
    let demonstrations = folders_of(&run, "demonstrations").remove(0).join("round-1");
    assert!(demonstrations.join("policy/model.safetensors").exists());
    let file = std::fs::read_to_string(demonstrations.join("demonstrations.jsonl")).unwrap();
    let shown_by_the_oracle = file.lines().count();
    assert!(
        (1..=32).contains(&shown_by_the_oracle),
        "{shown_by_the_oracle}"
    );
    let rounds = folders_of(&run, "rejection_sampling").remove(0);
    let learned = (1..=4).filter(|round| {
        let round = rounds.join(format!("round-{round}"));
        round.join("policy/model.safetensors").exists()
    });
    assert!(learned.count() > 0, "no round kept anything");
    // Each row says what it has taken: as many episodes as the run, or about as many seconds.
    let cost = |arm: &Value, what: &str| arm["cost"][what].as_f64();
    let trained = &shown[0]["arms"][0];
    assert_eq!(cost(trained, "episodes"), Some(32.0), "{trained}");
    for (place, name) in METHODS.iter().enumerate() {
        let arm = &shown[0]["baselines"][place];
        match *name {
            "rejection_sampling" | "demonstrations" => {
                assert_eq!(cost(arm, "episodes"), Some(32.0), "{arm}");
            }
            "rejection_sampling_timed" | "demonstrations_timed" => {
                assert!(cost(arm, "seconds") > Some(0.0), "{arm}");
            }
            _ => assert_eq!(arm["cost"], Value::Null, "{arm}"),
        }
    }
    assert!(text.contains("seconds of it"), "{text}");

    // What is there is not made anew, and what was played before it was killed is not played again.
    let files = kept(&run);
    let runs = [run.clone()];
    // In the middle of the trained policy's samples: of it and of the start there are 16 greedy episodes and 128 samples.
    killed(&run, &asked, 200);
    let error = studied(&run, &asked).unwrap_err().to_string();
    assert!(error.contains("give --resume to go on"), "{error}");
    let error = study(&runs, Some(8), &asked, true, &()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("questions.count was 16 and is 8"), "{error}");
    let again = study(&runs, None, &asked, true, &()).unwrap();
    assert_eq!(json(&again), shown);
    assert!(kept(&run) == files, "the files are the same");
    assert!(!run.join("evaluation.partial").exists());
    let error = study(&runs, None, &asked, true, &()).unwrap_err();
    assert!(error.to_string().contains("nothing to resume"), "{error}");

    // A baseline under other settings is another one, which takes nothing of the first, nor of its episodes in a study that goes on:
    // of start, trained policy and baseline there are 16 greedy episodes and as many samples.
    let rate = "grpo.update.optimizer.learning_rate=1e-5";
    let both = "evaluation.baselines=[\"demonstrations\", \"search-title\"]";
    killed(&run, &[both.to_owned()], 96);
    let other = [rate, both].map(str::to_owned);
    study(&runs, None, &other, true, &()).unwrap();
    assert_eq!(folders_of(&run, "demonstrations").len(), 2);
    let resumed = kept(&run);
    studied(&run, &other).unwrap();
    assert!(kept(&run) == resumed, "its own episodes");

    let unknown = studied(&run, &["evaluation.baselines=[\"sft\"]".to_owned()]);
    let error = format!("{:?}", unknown.unwrap_err());
    assert!(error.contains("there is no baseline `sft`"), "{error}");
}

#[test]
fn a_study_of_a_quickstart_begins_with_the_start_that_it_made() {
    let scratch = tempfile::tempdir().unwrap();
    let run = scratch.path().join("run");
    // Another policy than that of the config.
    let made = config(&[
        "warm_start.from=\"builtin:quickstart-code\"",
        "warm_start.world.pages=200",
        "warm_start.dev_questions=1",
        "warm_start.learning.stages=[]",
    ]);
    let options = QuickstartOptions {
        folder: run.clone(),
        from_scratch: true,
        resume: false,
    };
    quickstart(&made, &options, &()).unwrap();
    let start = || std::fs::read(run.join("evaluation/start.jsonl")).unwrap();
    let before = start();
    let found = studied(&run, &[]).unwrap();
    assert!(start() == before, "its episodes are the same");
    let found = serde_json::to_value(&found.greedy).unwrap();
    assert_eq!(found["arms"][0]["cost"]["episodes"], 32.0);
}

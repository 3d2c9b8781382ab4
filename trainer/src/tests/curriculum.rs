//! Runs whose questions a curriculum chooses, and whose batches are filled again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Metric, Task};
use forage_trainer::metrics::Row;
use forage_trainer::run::{Control, GrpoConfig, Problem, RunError, RunPlace, Source, run_grpo};
use forage_trainer::sequence::shuffled;
use forage_trainer::{AdamWConfig, UpdateConfig, checkpoint as saved};
use serde_json::{Value, json};

use crate::tests::common::problem::{checkpoint, learner, problem, weights};

const SEED: u64 = 11;
/// Episodes of a question.
const GROUP: usize = 2;

/// Four questions: the rewards of a group, drawn at random for question and member, vary for two of them and never for the others.
async fn four(mut problem: Problem) -> Problem {
    let (mut varied, mut flat) = (Vec::new(), Vec::new());
    for task in problem.train.iter() {
        let mut totals = Vec::new();
        for member in 0..GROUP as u64 {
            let mut episode = Episode::new(Task::clone(task));
            episode.member = member;
            totals.push(problem.rewards.score(task, &episode).await.unwrap().total);
        }
        let kind = if totals[0].to_bits() == totals[1].to_bits() {
            &mut flat
        } else {
            &mut varied
        };
        kind.push(Arc::clone(task));
    }
    problem.train = varied
        .into_iter()
        .take(2)
        .chain(flat.into_iter().take(2))
        .collect();
    assert_eq!(problem.train.len(), 4);
    problem
}

fn config(curriculum: Value, refills: usize) -> GrpoConfig {
    let optimizer = AdamWConfig {
        learning_rate: 1e-3,
        ..AdamWConfig::default()
    };
    GrpoConfig {
        steps: 5,
        prompts_per_step: 3,
        group_size: GROUP,
        update: UpdateConfig {
            optimizer,
            micro_batch_tokens: 300,
            ..UpdateConfig::default()
        },
        curriculum: serde_json::from_value(curriculum).unwrap(),
        refills,
        checkpoint_every: 2,
        ..GrpoConfig::default()
    }
}

/// How a run ended, with what it asked in each step and its weights.
struct Ran {
    result: Result<(), RunError>,
    asked: Vec<Vec<String>>,
    weights: Vec<u8>,
}

/// A run over four questions, until it is done or has done `stop_after` steps.
async fn run(config: &GrpoConfig, folder: &Path, resume: bool, stop_after: usize) -> Ran {
    let start = checkpoint(1);
    let problem = four(problem(&start, &[("random", 1.0)])).await;
    let mut learner = Box::new(learner(start, config.update.clone()));
    let place = RunPlace {
        folder: folder.to_owned(),
        seed: SEED,
        config_digest: "one".to_owned(),
        resume,
        ranks: None,
    };
    let mut asked = Vec::new();
    let source = Source::Play(&problem);
    let ran = run_grpo(&mut learner, source, config, &place, |_, episodes, _| {
        let groups = episodes.chunks(GROUP).map(|group| group[0].task.id.clone());
        asked.push(groups.collect());
        if asked.len() >= stop_after {
            Control::Stop
        } else {
            Control::Continue
        }
    });
    let result = Box::pin(ran).await;
    Ran {
        result,
        asked,
        weights: weights(&learner),
    }
}

/// Metrics without what the clock says.
fn rows(folder: &Path) -> Vec<Row> {
    let mut rows = Row::read_all(&folder.join("metrics.jsonl")).unwrap();
    for row in &mut rows {
        row.0.retain(|name, _| !name.starts_with("time/"));
    }
    rows
}

fn memory(folder: &Path) -> Option<String> {
    let newest = saved::newest(folder).unwrap().unwrap();
    std::fs::read_to_string(newest.join("asked.json")).ok()
}

#[tokio::test]
async fn a_resumed_run_asks_what_an_unbroken_one_does() {
    let difficulty = json!({"difficulty": {
        "target": 0.5, "temperature": 0.1, "reference": 3, "attention": 0.2,
    }});
    // An epoch is measured when the second step ends, the run is interrupted after the third.
    let alignment = json!({"alignment": {"epochs": 1, "threshold": 0.6}});
    let mut seen = BTreeMap::new();
    for (curriculum, refills) in [
        (json!("uniform"), 0),
        (json!("uniform"), 2),
        (difficulty.clone(), 0),
        (difficulty, 2),
        (alignment, 1),
        (json!({"recap": {"window": 2, "temperature": 0.5}}), 1),
    ] {
        for lookahead in [0, 1, 2] {
            let what = format!("{curriculum}, {refills} refills, look-ahead: {lookahead}");
            let config = GrpoConfig {
                lookahead,
                ..config(curriculum.clone(), refills)
            };
            let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let expected = run(&config, whole.path(), false, usize::MAX).await;
            expected.result.unwrap();
            let first = run(&config, broken.path(), false, 3).await;
            let interrupted = matches!(first.result, Err(RunError::Interrupted { step: 3, .. }));
            assert!(interrupted, "{what}");
            let second = run(&config, broken.path(), true, usize::MAX).await;
            second.result.unwrap();
            let found = [first.asked, second.asked].concat();
            assert_eq!(found, expected.asked, "{what}");
            assert!(second.weights == expected.weights, "{what}: weights differ");
            assert_eq!(rows(broken.path()), rows(whole.path()), "{what}");
            assert_eq!(memory(broken.path()), memory(whole.path()), "{what}");
            let plain = curriculum == json!("uniform") && refills == 0;
            assert_eq!(memory(whole.path()).is_none(), plain, "{what}");
            let rule = (curriculum.to_string(), refills);
            let same = seen.insert(found, rule.clone());
            assert!(
                same.as_ref().is_none_or(|same| *same == rule),
                "{what}: {same:?}"
            );
        }
    }
}

#[tokio::test]
async fn without_a_curriculum_questions_follow_from_the_seed_alone() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(
        &config(json!("uniform"), 0),
        folder.path(),
        false,
        usize::MAX,
    )
    .await;
    let problem = four(problem(&checkpoint(1), &[("random", 1.0)])).await;
    let id = |task: &Arc<Task>| task.id.clone();
    let epoch = |epoch: u64| shuffled(4, Seed::root(SEED).child("order", &[epoch]));
    let expected: Vec<String> = (0..4)
        .flat_map(epoch)
        .map(|place| id(&problem.train[place]))
        .collect();
    assert_eq!(ran.asked.concat(), expected[..15]);
}

#[tokio::test]
async fn dropped_groups_are_made_up_for_until_the_batch_is_full_or_the_tries_are_spent() {
    let folder = tempfile::tempdir().unwrap();
    let kept = |row: &Row, refilled: f64| {
        ((3.0 + refilled) * (1.0 - row.get(Metric::FILTERED).unwrap())).round()
    };
    let none = run(
        &config(json!("uniform"), 0),
        folder.path(),
        false,
        usize::MAX,
    )
    .await;
    none.result.unwrap();
    let rows_without = rows(folder.path());
    assert!(rows_without.iter().any(|row| kept(row, 0.0) < 3.0));
    assert!(
        rows_without
            .iter()
            .all(|row| row.get(Metric::REFILLED).is_none())
    );
    let mut short = Vec::new();
    for refills in [1, 20] {
        let folder = tempfile::tempdir().unwrap();
        let ran = run(
            &config(json!("uniform"), refills),
            folder.path(),
            false,
            usize::MAX,
        )
        .await;
        ran.result.unwrap();
        let rows = rows(folder.path());
        for (row, asked) in rows.iter().zip(&ran.asked) {
            let refilled = row.get(Metric::REFILLED).unwrap();
            assert_eq!(asked.len(), 3 + refilled as usize);
            assert!(kept(row, refilled) <= 3.0, "no group too many");
        }
        let is_short = |row: &&Row| kept(row, row.get(Metric::REFILLED).unwrap()) < 3.0;
        short.push(rows.iter().filter(is_short).count());
    }
    // With one try some batch stays short, with twenty none does.
    assert!(short[0] > 0 && short[1] == 0, "{short:?}");
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let unfiltered = |refills| {
        let mut config = config(json!("uniform"), refills);
        let written = json!({"algorithm": "rloo"});
        config.update.objective = serde_json::from_value(written).unwrap();
        config
    };
    let ran = run(&unfiltered(1), folder.path(), false, 1).await;
    let error = ran.result.unwrap_err().to_string();
    assert!(
        error.contains("[grpo]: refills is set, and no group is dropped"),
        "{error}"
    );
    let mut gain = config(json!("uniform"), 1);
    let written = json!({"credit": {"information_gain": {"gamma": 1.0}}});
    gain.update.objective = serde_json::from_value(written).unwrap();
    let error = gain.check_questions().unwrap_err().to_string();
    assert!(error.contains("information_gain"), "{error}");
    let aligned = config(json!({"alignment": {"epochs": 1, "threshold": 0.6}}), 0);
    let start = checkpoint(1);
    let mut learner = learner(start, aligned.update.clone());
    let place = RunPlace {
        folder: folder.path().to_owned(),
        seed: SEED,
        config_digest: "one".to_owned(),
        resume: false,
        ranks: None,
    };
    let recorded = [Vec::new()];
    let source = Source::Recorded(&recorded);
    let ran = run_grpo(&mut learner, source, &aligned, &place, |_, _, _| {
        Control::Stop
    });
    let error = Box::pin(ran).await.unwrap_err().to_string();
    assert!(
        error.contains("[grpo]: curriculum is set, and recorded"),
        "{error}"
    );
}

//! Runs that play several steps ahead: what samples a batch follows from its step and the depth, whatever the clock says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forage_contracts::environment::Outcome;
use forage_contracts::reward::{Reward, RewardError};
use forage_contracts::{Episode, Task};
use forage_env::reward::RewardSet;
use forage_trainer::metrics::Row;
use forage_trainer::run::{Control, GrpoConfig, RunError, RunPlace, Source, run_grpo};
use forage_trainer::{OldLogprobs, RankSettings, UpdateConfig};

use super::resume::{config, place, rows};
use crate::tests::common::problem::{checkpoint, learner, problem, weights};

/// Episodes of a step.
const BATCH: u64 = 6;

/// A reward that follows from the episode's seed, so that every step has a direction. Some episodes are late where it takes its time.
struct Lot {
    is_slow: bool,
}

#[async_trait]
impl Reward for Lot {
    fn name(&self) -> &'static str {
        "lot"
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let drawn = episode.seed.unwrap().child("lot", &[episode.member]).0;
        if self.is_slow && drawn.is_multiple_of(5) {
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        Ok((drawn % 1000) as f32 / 1000.0)
    }
}

/// Seven steps of two questions and three episodes each.
fn ahead(depth: u64) -> GrpoConfig {
    GrpoConfig {
        steps: 7,
        lookahead: depth,
        ..config()
    }
}

/// How a run ended, its weights, and the versions of the weights that sampled each of its steps.
struct Ran {
    result: Result<(), RunError>,
    weights: Vec<u8>,
    versions: Vec<BTreeSet<u64>>,
}

/// A run until it is done or has done `stop_after` steps: on one thread, where episodes go on only while nothing is learned, or with late
/// episodes on several.
fn run(config: &GrpoConfig, place: &RunPlace, stop_after: usize, is_slow: bool) -> Ran {
    let start = checkpoint(1);
    let mut problem = problem(&start, &[("random", 1.0)]);
    let rewards = RewardSet::measure(Outcome::Answer).with(Box::new(Lot { is_slow }), 1.0);
    problem.rewards = Arc::new(rewards);
    let mut learner = Box::new(learner(start, config.update.clone()));
    let mut versions: Vec<BTreeSet<u64>> = Vec::new();
    let source = Source::Play(&problem);
    let ran = run_grpo(&mut learner, source, config, place, |_, episodes, _| {
        let spans = episodes.iter().flat_map(|episode| episode.tokens.spans());
        versions.push(spans.filter_map(|span| span.version).collect());
        if versions.len() >= stop_after {
            Control::Stop
        } else {
            Control::Continue
        }
    });
    let mut runtime = if is_slow {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = runtime.enable_all().build().unwrap();
    let result = runtime.block_on(Box::pin(ran));
    Ran {
        result,
        weights: weights(&learner),
        versions,
    }
}

#[test]
fn a_batch_is_as_old_as_the_depth_says_whatever_the_clock_says() {
    let mut seen = BTreeSet::new();
    for depth in 0..=3 {
        let config = ahead(depth);
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [quick, slow] = [0, 1].map(|place_of| {
            let place = place(folders[place_of].path(), false);
            let ran = run(&config, &place, usize::MAX, place_of == 1);
            ran.result.unwrap();
            (ran.weights, ran.versions)
        });
        assert!(quick.0 == slow.0, "depth {depth}: weights differ");
        assert_eq!(rows(folders[0].path()), rows(folders[1].path()), "{depth}");
        // An update per step: the version before step s is s.
        for (step, versions) in (0..).zip(&quick.1) {
            let begun = step - depth.min(step);
            assert_eq!(*versions, BTreeSet::from([begun]), "depth {depth}");
        }
        assert_eq!(quick.1, slow.1, "depth {depth}");
        let rows = Row::read_all(&folders[0].path().join("metrics.jsonl")).unwrap();
        assert_eq!(rows.len(), 7);
        for row in rows {
            assert_eq!(row.get("policy/updates"), Some(1.0));
            let age = row.get("mismatch/policy_age_mean").unwrap();
            assert_eq!(age as u64, depth.min(row.step()), "depth {depth}");
        }
        assert!(seen.insert(quick.0), "depth {depth} learns as another does");
    }
}

#[test]
fn a_resumed_run_has_the_batches_that_were_in_play() {
    for depth in 1..=3 {
        let config = ahead(depth);
        let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let expected = run(&config, &place(whole.path(), false), usize::MAX, true);
        expected.result.unwrap();
        let first = run(&config, &place(broken.path(), false), 3, true).result;
        assert!(
            matches!(first, Err(RunError::Interrupted { step: 3, .. })),
            "depth {depth}: {first:?}"
        );
        for step in ["step-000003", "step-000002"] {
            let saved = broken.path().join("checkpoints").join(step);
            let kept = std::fs::read_to_string(saved.join("ahead.jsonl")).unwrap();
            assert_eq!(kept.lines().count() as u64, depth * BATCH, "{step}");
        }
        // As if the process had died before it wrote its last checkpoint: the one before was written in the middle of the run.
        std::fs::remove_dir_all(broken.path().join("checkpoints/step-000003")).unwrap();
        let rest = run(&config, &place(broken.path(), true), usize::MAX, false);
        rest.result.unwrap();
        assert_eq!(rest.versions, expected.versions[2..], "depth {depth}");
        assert!(rest.weights == expected.weights, "depth {depth}");
        assert_eq!(rows(broken.path()), rows(whole.path()), "depth {depth}");
    }
}

#[test]
fn what_cannot_be_played_ahead_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |config: &GrpoConfig, place: &RunPlace| {
        let ran = run(config, place, usize::MAX, false);
        ran.result.unwrap_err().to_string()
    };
    let alone = place(folder.path(), false);
    let ranks = RunPlace {
        ranks: Some(RankSettings {
            rank: 0,
            size: 2,
            address: "127.0.0.1:1".to_owned(),
            secret_file: None,
            wait: Duration::from_secs(1),
            silence: Duration::from_secs(1),
        }),
        ..alone.clone()
    };
    let error = refused(&ahead(2), &ranks);
    assert!(
        error.contains("grpo.lookahead: ranks play one step ahead at most"),
        "{error}"
    );
    let with = |update: UpdateConfig| GrpoConfig { update, ..ahead(2) };
    let recomputed = with(UpdateConfig {
        old_logprobs: Some(OldLogprobs::Trainer),
        ..config().update
    });
    let error = refused(&recomputed, &alone);
    assert!(error.contains("nothing that weighs the age"), "{error}");
    let written = serde_json::json!({"loss": "reinforce"});
    let plain = with(UpdateConfig {
        objective: serde_json::from_value(written).unwrap(),
        ..config().update
    });
    let error = refused(&plain, &alone);
    assert!(error.contains("reinforce has no ratio"), "{error}");
}

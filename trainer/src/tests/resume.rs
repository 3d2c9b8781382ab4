//! An interrupted run that is resumed equals the uninterrupted one, bit for bit.

use std::path::Path;

use forage_contracts::seed::Seed;

use crate::tests::common::problem::{checkpoint, learner, problem, weights};
use forage_trainer::metrics::Row;
use forage_trainer::run::{
    Control, GrpoConfig, Problem, ReplayConfig, RunError, RunPlace, Source, run_grpo,
};
use forage_trainer::weights::Checkpoint;
use forage_trainer::{AdamWConfig, LoraConfig, Sample, Targets, UpdateConfig, checkpoint};

pub(super) fn config() -> GrpoConfig {
    let optimizer = AdamWConfig {
        learning_rate: 1e-3,
        warmup_steps: 3,
        ..AdamWConfig::default()
    };
    let update = UpdateConfig {
        optimizer,
        micro_batch_tokens: 300,
        ..UpdateConfig::default()
    };
    GrpoConfig {
        steps: 5,
        prompts_per_step: 2,
        group_size: 3,
        update,
        checkpoint_every: 2,
        keep_checkpoints: 2,
        evaluate_every: 2,
        ..GrpoConfig::default()
    }
}

pub(super) fn place(folder: &Path, resume: bool) -> RunPlace {
    RunPlace {
        folder: folder.to_owned(),
        seed: 11,
        config_digest: "one".to_owned(),
        resume,
        ranks: None,
    }
}

/// Runs until done or until `stop_after` steps of this session.
async fn run(folder: &Path, resume: bool, stop_after: u64) -> (Result<(), RunError>, Vec<u8>) {
    run_from(checkpoint(1), folder, resume, stop_after).await
}

async fn run_from(
    start: Checkpoint,
    folder: &Path,
    resume: bool,
    stop_after: u64,
) -> (Result<(), RunError>, Vec<u8>) {
    run_as(&config(), start, folder, resume, stop_after).await
}

pub(super) async fn run_as(
    config: &GrpoConfig,
    start: Checkpoint,
    folder: &Path,
    resume: bool,
    stop_after: u64,
) -> (Result<(), RunError>, Vec<u8>) {
    let problem = problem(&start, &[("random", 1.0)]);
    run_in(&problem, config, start, folder, resume, stop_after).await
}

pub(super) async fn run_in(
    problem: &Problem,
    config: &GrpoConfig,
    start: Checkpoint,
    folder: &Path,
    resume: bool,
    stop_after: u64,
) -> (Result<(), RunError>, Vec<u8>) {
    let mut learner = Box::new(learner(start, config.update.clone()));
    let mut seen = 0;
    let place = place(folder, resume);
    let ran = run_grpo(
        &mut learner,
        Source::Play(problem),
        config,
        &place,
        |_, _, _| {
            seen += 1;
            if seen >= stop_after {
                Control::Stop
            } else {
                Control::Continue
            }
        },
    );
    // Large, and awaited by every test here.
    let result = Box::pin(ran).await;
    (result, weights(&learner))
}

/// Metrics without what the clock says.
pub(super) fn rows(folder: &Path) -> Vec<String> {
    let rows = Row::read_all(&folder.join("metrics.jsonl")).unwrap();
    rows.into_iter()
        .map(|mut row| {
            row.0.retain(|name, _| !name.starts_with("time/"));
            serde_json::Value::Object(row.0).to_string()
        })
        .collect()
}

#[tokio::test]
async fn resumed_equals_uninterrupted() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (result, expected) = run(whole.path(), false, u64::MAX).await;
    result.unwrap();
    let (first, _) = run(broken.path(), false, 3).await;
    assert!(
        matches!(first, Err(RunError::Interrupted { step: 3, .. })),
        "{first:?}"
    );
    let (second, found) = run(broken.path(), true, u64::MAX).await;
    second.unwrap();
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(broken.path()));
    let moments = |folder: &Path| {
        let newest = checkpoint::newest(folder).unwrap().unwrap();
        std::fs::read(newest.join("optimizer.safetensors")).unwrap()
    };
    assert!(
        moments(whole.path()) == moments(broken.path()),
        "moments differ"
    );
}

#[tokio::test]
async fn fewer_steps_than_are_done_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _ = run(folder.path(), false, 3).await;
    let shorter = GrpoConfig {
        steps: 2,
        ..config()
    };
    let (resumed, _) = run_as(&shorter, checkpoint(1), folder.path(), true, u64::MAX).await;
    assert!(
        matches!(resumed, Err(RunError::Shorter { done: 3, steps: 2 })),
        "{resumed:?}"
    );
}

#[tokio::test]
async fn a_resumed_run_is_watched_under_its_own_settings() {
    let folder = tempfile::tempdir().unwrap();
    let _ = run(folder.path(), false, 3).await;
    let mut config = config();
    config.sentinel.stop = false;
    let (resumed, _) = run_as(&config, checkpoint(1), folder.path(), true, u64::MAX).await;
    resumed.unwrap();
    let newest = checkpoint::newest(folder.path()).unwrap().unwrap();
    let state = std::fs::read_to_string(newest.join("state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state["sentinel"]["config"]["stop"], false);
}

#[tokio::test]
async fn moments_of_8_bits_resume_to_the_bit() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut small = config();
    small.update.optimizer.moments_in_8_bits = true;
    let (result, expected) = run_as(&small, checkpoint(1), whole.path(), false, u64::MAX).await;
    result.unwrap();
    let (first, _) = run_as(&small, checkpoint(1), broken.path(), false, 3).await;
    assert!(first.is_err(), "interrupted");
    let (second, found) = run_as(&small, checkpoint(1), broken.path(), true, u64::MAX).await;
    second.unwrap();
    assert!(expected == found, "weights differ");
    let moments = |folder: &Path| {
        let newest = checkpoint::newest(folder).unwrap().unwrap();
        std::fs::read(newest.join("optimizer.safetensors")).unwrap()
    };
    let bytes = moments(whole.path());
    assert!(bytes == moments(broken.path()), "moments differ");
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let codes = |name: &&str| name.starts_with("first_codes.");
    assert!(file.names().iter().any(codes), "{:?}", file.names());
    // Norms stay as they are.
    assert!(file.names().iter().any(|name| name.starts_with("first.")));
    let (_, full) = run(tempfile::tempdir().unwrap().path(), false, u64::MAX).await;
    assert!(full != expected, "8 bits change nothing");
}

#[tokio::test]
async fn a_run_that_looks_ahead_resumes_with_the_episodes_it_had_played() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ahead = GrpoConfig {
        lookahead: 1,
        ..config()
    };
    let (result, expected) = run_as(&ahead, checkpoint(1), whole.path(), false, u64::MAX).await;
    result.unwrap();
    let (_, synchronous) = run(tempfile::tempdir().unwrap().path(), false, u64::MAX).await;
    assert!(
        expected != synchronous,
        "episodes of older weights teach something else"
    );
    let (first, _) = run_as(&ahead, checkpoint(1), broken.path(), false, 3).await;
    assert!(
        matches!(first, Err(RunError::Interrupted { step: 3, .. })),
        "{first:?}"
    );
    let (second, found) = run_as(&ahead, checkpoint(1), broken.path(), true, u64::MAX).await;
    second.unwrap();
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(broken.path()));
}

#[tokio::test]
async fn temperatures_of_the_episodes_are_those_of_before() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let update = UpdateConfig {
        temperature: [0.7, 1.15],
        ..config().update
    };
    let config = GrpoConfig { update, ..config() };
    let (result, expected) = run_as(&config, checkpoint(1), whole.path(), false, u64::MAX).await;
    result.unwrap();
    for row in Row::read_all(&whole.path().join("metrics.jsonl")).unwrap() {
        let deviation = row.get("mismatch/ratio_deviation_max");
        assert!(deviation.is_none_or(|most| most < 1e-5), "{deviation:?}");
    }
    let _ = run_as(&config, checkpoint(1), broken.path(), false, 3).await;
    let (result, found) = run_as(&config, checkpoint(1), broken.path(), true, u64::MAX).await;
    result.unwrap();
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(broken.path()));
    // Recorded rollouts that do not say how each was drawn cannot be learned from at a range.
    let recorded = r#"{"group":0,"ids":[1,2,3],"mask":[0,1,1],"logprobs":[0,-1,-1],"reward":1}"#;
    let file = whole.path().join("recorded.jsonl");
    std::fs::write(&file, recorded).unwrap();
    let groups = Sample::read_groups(&file, 400, 8, None).unwrap();
    let mut learner = learner(checkpoint(1), config.update.clone());
    let (source, place) = (Source::Recorded(&groups), place(broken.path(), false));
    let ran = run_grpo(&mut learner, source, &config, &place, |_, _, _| {
        Control::Continue
    });
    let error = Box::pin(ran).await.unwrap_err().to_string();
    assert!(error.contains("do not say at which temperature"), "{error}");
}

#[tokio::test]
async fn a_run_that_holds_entropy_resumes_with_its_anchor() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let anchored = serde_json::json!({"weight": 1.0, "top_p": 0.8, "peaks": 0.5});
    let objective = serde_json::json!({"entropy": {"anchored": anchored}});
    let update = UpdateConfig {
        objective: serde_json::from_value(objective).unwrap(),
        ..config().update
    };
    let config = GrpoConfig { update, ..config() };
    let (result, expected) = run_as(&config, checkpoint(1), whole.path(), false, u64::MAX).await;
    result.unwrap();
    let (first, _) = run_as(&config, checkpoint(1), broken.path(), false, 3).await;
    assert!(
        matches!(first, Err(RunError::Interrupted { step: 3, .. })),
        "{first:?}"
    );
    let state = broken.path().join("checkpoints/step-000003/state.json");
    let state: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(state).unwrap()).unwrap();
    assert!(state["anchor"].as_f64().unwrap() > 0.0, "{state}");
    let (second, found) = run_as(&config, checkpoint(1), broken.path(), true, u64::MAX).await;
    second.unwrap();
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(broken.path()));
}

#[tokio::test]
async fn a_run_that_shapes_advantages_resumes_with_its_averages() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let objective = serde_json::json!({"rank_shaping": {"stride": 2, "positions": 16}});
    let update = UpdateConfig {
        objective: serde_json::from_value(objective).unwrap(),
        ..config().update
    };
    let config = GrpoConfig { update, ..config() };
    let (result, expected) = run_as(&config, checkpoint(1), whole.path(), false, u64::MAX).await;
    result.unwrap();
    let (first, _) = run_as(&config, checkpoint(1), broken.path(), false, 3).await;
    assert!(
        matches!(first, Err(RunError::Interrupted { step: 3, .. })),
        "{first:?}"
    );
    let state = broken.path().join("checkpoints/step-000003/state.json");
    let state: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(state).unwrap()).unwrap();
    assert!(state["averages"][0].as_f64().unwrap() > 1.0, "{state}");
    let (second, found) = run_as(&config, checkpoint(1), broken.path(), true, u64::MAX).await;
    second.unwrap();
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(broken.path()));
}

#[tokio::test]
async fn a_run_that_replays_resumes_with_the_groups_it_had_kept() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Look-ahead besides, so that a checkpoint holds episodes of both kinds.
    let replay = Some(ReplayConfig {
        capacity: 2,
        share: 0.5,
    });
    let config = GrpoConfig {
        replay,
        group_size: 4,
        lookahead: 1,
        ..config()
    };
    let (result, expected) = run_as(&config, checkpoint(1), whole.path(), false, u64::MAX).await;
    result.unwrap();
    let replayed: Vec<f64> = Row::read_all(&whole.path().join("metrics.jsonl"))
        .unwrap()
        .iter()
        .map(|row| row.get("replay/groups").unwrap())
        .collect();
    assert_eq!(
        (replayed[0], &replayed[2..]),
        (0.0, [1.0; 3].as_slice()),
        "one group of two, as soon as one is kept"
    );
    let (first, _) = run_as(&config, checkpoint(1), broken.path(), false, 3).await;
    assert!(
        matches!(first, Err(RunError::Interrupted { step: 3, .. })),
        "{first:?}"
    );
    let kept = std::fs::read_to_string(broken.path().join("checkpoints/step-000003/replay.jsonl"))
        .unwrap();
    assert_eq!(kept.lines().count(), 8, "two groups of four");
    let (second, found) = run_as(&config, checkpoint(1), broken.path(), true, u64::MAX).await;
    second.unwrap();
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(broken.path()));
}

#[tokio::test]
async fn what_cannot_be_replayed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let start = checkpoint(1);
    let problem = problem(&start, &[("random", 1.0)]);
    let mut learner = learner(start, config().update);
    let recorded = [Vec::new()];
    for (source, share, expected) in [
        (Source::Play(&problem), 1.0, "grpo.replay: share is 1"),
        (
            Source::Recorded(&recorded),
            0.5,
            "grpo.replay: recorded rollouts are used again",
        ),
    ] {
        let config = GrpoConfig {
            replay: Some(ReplayConfig { capacity: 2, share }),
            ..config()
        };
        let place = place(folder.path(), false);
        let error = run_grpo(&mut learner, source, &config, &place, |_, _, _| {
            Control::Continue
        })
        .await
        .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A start with an adapter that learns with dropout.
pub(super) fn adapted() -> Checkpoint {
    let mut start = checkpoint(1);
    let targets = ["q_proj", "o_proj", "down_proj"].map(str::to_owned);
    let targets = Targets::Names(targets.to_vec());
    let config = LoraConfig {
        rank: 4,
        alpha: 8.0,
        rank_stabilised: false,
        dropout: 0.1,
        targets,
        base: "base".to_owned(),
    };
    start.adapt(config, Seed::root(2)).unwrap();
    start
}

/// The files of the newest checkpoint.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let newest = checkpoint::newest(folder).unwrap().unwrap();
    let mut files = checkpoint::files(&newest).unwrap();
    files.sort();
    let read = |(name, path)| (name, std::fs::read(path).unwrap());
    files.into_iter().map(read).collect()
}

#[tokio::test]
async fn a_run_with_a_critic_resumes_with_what_it_has_learned() {
    let penalty = serde_json::json!({"estimator": "k1", "coefficient": 0.01, "in_reward": true});
    let objective = serde_json::json!({"algorithm": "ppo", "kl": penalty});
    let update = UpdateConfig {
        objective: serde_json::from_value(objective).unwrap(),
        minibatches: 2,
        ..config().update
    };
    let config = GrpoConfig {
        update,
        prompts_per_step: 6,
        group_size: 1,
        ..config()
    };
    for (start, model) in [
        (
            (|| checkpoint(1)) as fn() -> Checkpoint,
            "model.safetensors",
        ),
        (adapted, "adapter_model.safetensors"),
    ] {
        let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (result, _) = run_as(&config, start(), whole.path(), false, u64::MAX).await;
        result.unwrap();
        let (first, _) = run_as(&config, start(), broken.path(), false, 3).await;
        assert!(
            matches!(first, Err(RunError::Interrupted { step: 3, .. })),
            "{first:?}"
        );
        let halfway = files(broken.path());
        run_as(&config, start(), broken.path(), true, u64::MAX)
            .await
            .0
            .unwrap();
        assert_eq!(rows(whole.path()), rows(broken.path()));
        let (expected, found) = (files(whole.path()), files(broken.path()));
        let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
            files.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&expected), names(&found));
        for ((name, expected), (_, found)) in expected.iter().zip(&found) {
            assert!(expected == found, "{name} differs");
        }
        // The critic's weights, head and moments are there, and have moved on.
        for file in [
            &format!("model/{model}"),
            "head.safetensors",
            "optimizer.safetensors",
        ] {
            let name = format!("critic/{file}");
            let of = |files: &[(String, Vec<u8>)]| {
                let found = files.iter().find(|(other, _)| *other == name);
                found.unwrap_or_else(|| panic!("no {name}")).1.clone()
            };
            assert!(of(&found) != of(&halfway), "{name} stands still");
        }
        for row in Row::read_all(&whole.path().join("metrics.jsonl")).unwrap() {
            for name in ["critic/loss", "critic/explained_variance", "policy/kl_ref"] {
                assert!(row.get(name).is_some(), "{row:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_adapter_s_run_keeps_the_adapter_alone_and_resumes() {
    let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (result, base) = run_from(adapted(), whole.path(), false, u64::MAX).await;
    result.unwrap();
    // The base is as it was; what was learned is in the adapter.
    assert!(base == weights(&learner(checkpoint(1), config().update)));
    let adapter = |folder: &Path| {
        let newest = checkpoint::newest(folder).unwrap().unwrap().join("model");
        assert!(!newest.join("model.safetensors").exists());
        std::fs::read(newest.join("adapter_model.safetensors")).unwrap()
    };
    let learned = adapter(whole.path());
    let fresh = tempfile::tempdir().unwrap();
    adapted().save_adapter(fresh.path()).unwrap();
    assert!(learned != std::fs::read(fresh.path().join("adapter_model.safetensors")).unwrap());
    let (first, _) = run_from(adapted(), broken.path(), false, 3).await;
    assert!(
        matches!(first, Err(RunError::Interrupted { step: 3, .. })),
        "{first:?}"
    );
    run_from(adapted(), broken.path(), true, u64::MAX)
        .await
        .0
        .unwrap();
    assert!(learned == adapter(broken.path()), "adapters differ");
    assert_eq!(rows(whole.path()), rows(broken.path()));
}

#[tokio::test]
async fn a_kill_between_checkpoints_loses_only_unfinished_work() {
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, expected) = run(whole.path(), false, u64::MAX).await;
    // Stopped at step 3, then the checkpoint of step 3 vanishes as if the process had died before writing it.
    let _ = run(killed.path(), false, 3).await;
    std::fs::remove_dir_all(killed.path().join("checkpoints/step-000003")).unwrap();
    let partial = killed.path().join("checkpoints/.partial-step-000003-1");
    std::fs::create_dir_all(&partial).unwrap();
    let (result, found) = run(killed.path(), true, u64::MAX).await;
    result.unwrap();
    assert!(!partial.exists(), "a later run clears it");
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(killed.path()));
}

#[tokio::test]
async fn a_checkpoint_of_other_settings_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _ = run(folder.path(), false, 2).await;
    let newest = checkpoint::newest(folder.path()).unwrap().unwrap();
    let resumed = async |digest: &str| {
        let start = checkpoint(1);
        let problem = problem(&start, &[("random", 1.0)]);
        let mut learner = learner(start, config().update);
        let place = RunPlace {
            config_digest: digest.to_owned(),
            ..place(folder.path(), true)
        };
        let source = Source::Play(&problem);
        let config = config();
        let ran = run_grpo(&mut learner, source, &config, &place, |_, _, _| {
            Control::Continue
        });
        match Box::pin(ran).await {
            Err(RunError::Checkpoint(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let error = resumed("two").await;
    assert!(error.contains("other settings"), "{error}");
    std::fs::write(newest.join("optimizer.safetensors"), b"short").unwrap();
    let error = resumed("one").await;
    assert!(
        error.contains("optimizer.safetensors: is damaged"),
        "{error}"
    );
}

#[tokio::test]
async fn a_damaged_checkpoint_is_named_and_the_one_before_it_is_taken_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let _ = run(folder.path(), false, 3).await;
    let newest = checkpoint::newest(folder.path()).unwrap().unwrap();
    let before = newest.with_file_name("step-000002");
    let files = [
        "state.json",
        "optimizer.safetensors",
        "model/model.safetensors",
        "model/config.json",
        "BLAKE3SUMS",
    ];
    for file in files {
        let path = newest.join(file);
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 1;
        for bad in [Some(bad), None] {
            match bad {
                Some(bad) => std::fs::write(&path, bad).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            let (Err(RunError::Checkpoint(error)), _) = run(folder.path(), true, 1).await else {
                panic!("{file} was taken");
            };
            let error = error.to_string();
            assert!(error.contains(newest.to_str().unwrap()), "{error}");
            assert!(
                error.contains(&format!("--from {}", before.display())),
                "{error}"
            );
            assert!(
                file == "BLAKE3SUMS" || error.contains(path.to_str().unwrap()),
                "{error}"
            );
        }
        std::fs::write(&path, good).unwrap();
    }
    let damaged = newest.join("optimizer.safetensors");
    std::fs::write(damaged, b"").unwrap();
    std::fs::remove_dir_all(newest).unwrap();
    run(folder.path(), true, u64::MAX).await.0.unwrap();
}

#[tokio::test]
async fn a_checkpoint_of_a_version_without_digests_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let _ = run(folder.path(), false, 3).await;
    for entry in std::fs::read_dir(folder.path().join("checkpoints")).unwrap() {
        let checkpoint = entry.unwrap().path();
        std::fs::remove_file(checkpoint.join("BLAKE3SUMS")).unwrap();
        let state = checkpoint.join("state.json");
        let text = std::fs::read_to_string(&state).unwrap();
        std::fs::write(state, text.replace("\"format\": 2", "\"format\": 1")).unwrap();
    }
    run(folder.path(), true, u64::MAX).await.0.unwrap();
}

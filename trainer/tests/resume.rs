//! An interrupted run that is resumed equals the uninterrupted one, bit for bit.

mod common;

use std::path::Path;

use common::problem::{checkpoint, learner, problem, weights};
use forage_trainer::checkpoint;
use forage_trainer::learner::UpdateConfig;
use forage_trainer::metrics;
use forage_trainer::optim::AdamWConfig;
use forage_trainer::run::{Control, GrpoConfig, RunError, RunPlace, run_grpo};

fn config() -> GrpoConfig {
    let optimizer = AdamWConfig { learning_rate: 1e-3, warmup_steps: 3, ..AdamWConfig::default() };
    let update = UpdateConfig { optimizer, micro_batch_tokens: 300, ..UpdateConfig::default() };
    GrpoConfig {
        steps: 5,
        prompts_per_step: 2,
        group_size: 3,
        update,
        checkpoint_every: 2,
        keep_checkpoints: 2,
        evaluate_every: 2,
    }
}

fn place(folder: &Path, resume: bool) -> RunPlace {
    RunPlace { folder: folder.to_owned(), seed: 11, config_digest: "one".to_owned(), resume }
}

/// Runs until done or until `stop_after` steps of this session.
async fn run(folder: &Path, resume: bool, stop_after: u64) -> (Result<(), RunError>, Vec<u8>) {
    let start = checkpoint(1);
    let problem = problem(&start, &[("random", 1.0)]);
    let mut learner = learner(start, config().update);
    let mut seen = 0;
    let result = run_grpo(&mut learner, &problem, &config(), &place(folder, resume), |_, _| {
        seen += 1;
        if seen >= stop_after { Control::Stop } else { Control::Continue }
    })
    .await;
    (result, weights(&learner))
}

/// Metrics without what the clock says.
fn rows(folder: &Path) -> Vec<String> {
    let rows = metrics::read(&folder.join("metrics.jsonl")).unwrap();
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
    assert!(matches!(first, Err(RunError::Interrupted { step: 3, .. })), "{first:?}");
    let (second, found) = run(broken.path(), true, u64::MAX).await;
    second.unwrap();
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(broken.path()));
    let moments = |folder: &Path| {
        let newest = checkpoint::list(folder).unwrap().pop().unwrap();
        std::fs::read(newest.join("optimizer.safetensors")).unwrap()
    };
    assert!(moments(whole.path()) == moments(broken.path()), "moments differ");
}

#[tokio::test]
async fn a_kill_between_checkpoints_loses_only_unfinished_work() {
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, expected) = run(whole.path(), false, u64::MAX).await;
    // Stopped at step 3, then the checkpoint of step 3 vanishes as if the process had died before writing it.
    let _ = run(killed.path(), false, 3).await;
    std::fs::remove_dir_all(killed.path().join("checkpoints/step-000003")).unwrap();
    std::fs::create_dir_all(killed.path().join("checkpoints/.partial-step-000003")).unwrap();
    let (result, found) = run(killed.path(), true, u64::MAX).await;
    result.unwrap();
    assert!(expected == found, "weights differ");
    assert_eq!(rows(whole.path()), rows(killed.path()));
}

#[tokio::test]
async fn a_checkpoint_of_other_settings_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _ = run(folder.path(), false, 2).await;
    let newest = checkpoint::list(folder.path()).unwrap().pop().unwrap();
    let device = burn::tensor::Device::flex();
    let error = checkpoint::load(&newest, "two", config().update.optimizer, &device).unwrap_err().to_string();
    assert!(error.contains("other settings"), "{error}");
    std::fs::write(newest.join("optimizer.safetensors"), b"short").unwrap();
    assert!(checkpoint::load(&newest, "one", config().update.optimizer, &device).is_err());
}

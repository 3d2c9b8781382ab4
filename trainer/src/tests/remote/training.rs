//! Whole asynchronous runs on a server: rollouts there, updates here, weights pushed after each.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forage_contracts::Episode;
use forage_contracts::seed::Seed;
use forage_trainer::metrics::Row;
use forage_trainer::objective::{Algorithm, Bound, Correction, ObjectiveConfig, RatioLevel};
use forage_trainer::run::{Control, GrpoConfig, RunError, RunPlace, Source, run_grpo};
use forage_trainer::weights::Checkpoint;
use forage_trainer::{
    AdamWConfig, Learner, LoraConfig, OldLogprobs, RemoteConfig, RemoteKind, RemotePolicy,
    SentinelConfig, Targets, UpdateConfig, Workers,
};

use super::fake::{Fake, Fault};
use super::model::Model;
use super::served::{Flaw, Served};
use super::support::{KINDS, config};
use crate::tests::common::problem::{checkpoint, problem, weights};

pub(crate) fn grpo() -> GrpoConfig {
    let correction = Correction {
        level: RatioLevel::Token,
        bound: Bound::Truncate { cap: 2.0 },
        veto: None,
    };
    let update = UpdateConfig {
        old_logprobs: Some(OldLogprobs::Trainer),
        objective: ObjectiveConfig {
            correction: Some(correction),
            ..serde_json::from_str::<Algorithm>("\"grpo\"")
                .unwrap()
                .into()
        },
        optimizer: AdamWConfig {
            learning_rate: 1e-3,
            warmup_steps: 0,
            ..AdamWConfig::default()
        },
        ..UpdateConfig::default()
    };
    GrpoConfig {
        steps: 4,
        prompts_per_step: 2,
        group_size: 3,
        update,
        lookahead: 1,
        // The fake's tokens are not drawn from the weights, which is a grave alarm.
        sentinel: SentinelConfig {
            stop: false,
            ..SentinelConfig::default()
        },
        ..GrpoConfig::default()
    }
}

/// A learner whose episodes fakes sample, one per flaw, which were started with the same weights.
pub(crate) async fn learner(
    kind: RemoteKind,
    start: Checkpoint,
    flaws: &[Flaw],
    folder: &Path,
    timeout: f64,
) -> (Vec<Arc<Fake>>, Learner) {
    let (mut fakes, mut urls) = (Vec::new(), Vec::new());
    for flaw in flaws {
        let fake = Fake {
            served: Some(Served::new(&start, *flaw).into()),
            ..Fake::new(Model::Hash)
        };
        let (fake, url) = fake.serve().await;
        fakes.push(fake);
        urls.push(url);
    }
    let config = RemoteConfig {
        request_timeout_s: timeout,
        context: 256,
        url: urls,
        ..config(kind, "")
    };
    let policy = RemotePolicy::connect(&config).await.unwrap();
    for fake in &fakes {
        fake.take_calls();
    }
    let pushed = folder.join("pushed");
    std::fs::create_dir_all(&pushed).unwrap();
    let learner = Learner::remote(start, grpo().update, 256, Workers::new(2), policy, pushed);
    (fakes, learner)
}

pub(crate) fn adapted() -> Checkpoint {
    let mut start = checkpoint(1);
    let config = LoraConfig {
        rank: 4,
        alpha: 8.0,
        rank_stabilised: false,
        dropout: 0.0,
        targets: Targets::AllLinear,
        base: "base".to_owned(),
    };
    start.adapt(config, Seed::root(2)).unwrap();
    start
}

pub(crate) fn place(folder: &Path) -> RunPlace {
    RunPlace {
        folder: folder.to_owned(),
        seed: 11,
        config_digest: "one".to_owned(),
        resume: false,
        ranks: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_looks_ahead_by_one_update_and_survives_passing_faults() {
    for kind in KINDS {
        for start in [checkpoint(1), adapted()] {
            let folder = tempfile::tempdir().unwrap();
            let adapter = start.lora.is_some();
            let before = weights(&crate::tests::common::problem::learner(
                start.clone(),
                UpdateConfig::default(),
            ));
            let problem = problem(&start, &[("random", 1.0)]);
            let (fakes, mut learner) =
                learner(kind, start, &[Flaw::None], folder.path(), 20.0).await;
            let fake = &fakes[0];
            fake.inject([Fault::Status(500), Fault::Reset, Fault::Body("<html>")]);
            let watch = |_: &Row, _: &[_], _: &[_]| {
                fake.inject([Fault::Status(503)]);
                Control::Continue
            };
            run_grpo(
                &mut learner,
                Source::Play(&problem),
                &grpo(),
                &place(folder.path()),
                watch,
            )
            .await
            .unwrap();
            let rows = Row::read_all(&folder.path().join("metrics.jsonl")).unwrap();
            let all = |name: &str| {
                rows.iter()
                    .map(|row| row.get(name).unwrap())
                    .collect::<Vec<_>>()
            };
            assert_eq!(all("mismatch/policy_age_mean"), [0.0, 1.0, 1.0, 1.0]);
            assert_eq!(all("episode/infra_frac"), [0.0; 4]);
            // The fake's log-probabilities are not those of the weights here.
            assert!(
                all("mismatch/logprob_abs_diff")
                    .iter()
                    .all(|&gap| gap > 0.1)
            );
            let pushes = fake
                .take_calls()
                .iter()
                .filter(|(path, _)| is_push(path))
                .count();
            assert_eq!(pushes, 6, "the proof, the start and every update");
            assert_eq!(
                adapter,
                before == weights(&learner),
                "an adapter leaves the base as it is"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn episodes_several_steps_ahead_stay_under_their_adapters() {
    for (kind, depth) in KINDS.into_iter().zip([2, 3]) {
        let folder = tempfile::tempdir().unwrap();
        let start = adapted();
        let problem = problem(&start, &[("random", 1.0)]);
        let flaws = [Flaw::None; 2];
        let (fakes, mut learner) = learner(kind, start, &flaws, folder.path(), 20.0).await;
        let config = GrpoConfig {
            steps: 6,
            lookahead: depth,
            ..grpo()
        };
        let mut sampled: Vec<BTreeSet<u64>> = Vec::new();
        let watch = |_: &Row, episodes: &[Episode], _: &[_]| {
            let spans = episodes.iter().flat_map(|episode| episode.tokens.spans());
            sampled.push(spans.filter_map(|span| span.version).collect());
            Control::Continue
        };
        let (source, place) = (Source::Play(&problem), place(folder.path()));
        let ran = run_grpo(&mut learner, source, &config, &place, watch);
        Box::pin(ran).await.unwrap();
        let rows = Row::read_all(&folder.path().join("metrics.jsonl")).unwrap();
        let mut version = 0;
        let mut published = Vec::new();
        for row in &rows {
            // An adapter that was unloaded too early would be a fault.
            assert_eq!(row.get("episode/infra_frac"), Some(0.0), "{kind:?}");
            published.push(version);
            version += row.get("policy/updates").unwrap() as u64;
        }
        assert!(version > depth, "{kind:?}: {version} updates");
        for (step, versions) in (0..).zip(&sampled) {
            let begun = published[step - step.min(depth as usize)];
            assert_eq!(*versions, BTreeSet::from([begun]), "{kind:?}, step {step}");
        }
        for fake in &fakes {
            let kept = fake.adapters.lock().unwrap().len();
            assert_eq!(kept, depth as usize, "{kind:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_whole_weights_plays_one_step_ahead_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let start = checkpoint(1);
    let problem = problem(&start, &[("random", 1.0)]);
    let kind = RemoteKind::Vllm;
    let (fakes, mut learner) = learner(kind, start, &[Flaw::None], folder.path(), 20.0).await;
    let config = GrpoConfig {
        lookahead: 2,
        ..grpo()
    };
    let (source, place) = (Source::Play(&problem), place(folder.path()));
    let ran = run_grpo(&mut learner, source, &config, &place, |_, _, _| {
        Control::Continue
    });
    let error = Box::pin(ran).await.unwrap_err().to_string();
    assert!(
        error.contains("grpo.lookahead: a server has one set of whole weights"),
        "{error}"
    );
    assert!(fakes[0].take_calls().is_empty(), "nothing was pushed");
}

pub(crate) fn is_push(path: &str) -> bool {
    [
        "load_lora_adapter",
        "collective_rpc",
        "update_weights_from_disk",
    ]
    .iter()
    .any(|step| path.ends_with(step))
        && !path.contains("unload")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stalls_ends_the_run_with_its_reason() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let start = adapted();
        let problem = problem(&start, &[("random", 1.0)]);
        let (fakes, mut learner) = learner(kind, start, &[Flaw::None], folder.path(), 0.3).await;
        let fake = &fakes[0];
        let watch = |row: &Row, _: &[_], _: &[_]| {
            *fake.stalled.lock().unwrap() = row.step() >= 1;
            Control::Continue
        };
        let begun = Instant::now();
        let ended = run_grpo(
            &mut learner,
            Source::Play(&problem),
            &grpo(),
            &place(folder.path()),
            watch,
        )
        .await;
        let error = ended.unwrap_err();
        assert!(
            matches!(error, RunError::Infra { step: 3, .. }),
            "{error:?}"
        );
        assert!(
            begun.elapsed() < Duration::from_mins(1),
            "{:?}",
            begun.elapsed()
        );
    }
}

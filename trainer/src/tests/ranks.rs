//! Several ranks learn what one process learns, bit for bit, and go on when one of them is lost.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use crate::tests::common::problem::{checkpoint, learner, problem, weights};
use forage_contracts::Episode;
use forage_env::Alarm;
use forage_trainer::metrics::Row;
use forage_trainer::run::{
    Control, GrpoConfig, ReplayConfig, RunError, RunPlace, Source, run_grpo,
};
use forage_trainer::{AdamWConfig, Checkpoint, Learner, OldLogprobs, RankSettings, UpdateConfig};

use super::resume::{adapted, place, rows};

/// Four parts: so many sums, whatever the number of ranks.
fn config() -> GrpoConfig {
    let optimizer = AdamWConfig {
        learning_rate: 1e-3,
        warmup_steps: 3,
        ..AdamWConfig::default()
    };
    let update = UpdateConfig {
        optimizer,
        micro_batch_tokens: 300,
        parts: Some(4),
        ..UpdateConfig::default()
    };
    GrpoConfig {
        steps: 4,
        prompts_per_step: 3,
        group_size: 4,
        update,
        checkpoint_every: 0,
        evaluate_every: 2,
        ..GrpoConfig::default()
    }
}

/// What a rank leaves: its result, its weights, and the numbers of moments that it keeps.
type Left = (Result<(), RunError>, Vec<u8>, usize);

/// The start of a run whose weights all learn.
fn start() -> Checkpoint {
    checkpoint(1)
}

/// Trains with so many ranks, each of which goes when `goes` says so: of the number of the rank and of the step it has just done.
fn train(
    start: fn() -> Checkpoint,
    config: &GrpoConfig,
    folder: &Path,
    size: usize,
    resume: bool,
    goes: impl Fn(usize, u64) -> Option<Control> + Sync,
) -> Vec<Left> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let goes = &goes;
    std::thread::scope(|scope| {
        let rank = |rank: usize| {
            let settings = RankSettings {
                rank,
                size,
                address: address.clone(),
                secret_file: None,
                wait: Duration::from_secs(30),
                silence: Duration::from_secs(10),
            };
            let folder = if rank == 0 {
                folder.to_owned()
            } else {
                folder.join(format!("rank-{rank}"))
            };
            let run = move || {
                let start = start();
                let problem = problem(&start, &[("random", 1.0)]);
                let mut learner = learner(start, config.update.clone());
                let place = RunPlace {
                    folder,
                    seed: 11,
                    config_digest: "one".to_owned(),
                    resume: resume && rank == 0,
                    ranks: Some(settings),
                };
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .enable_all()
                    .build()
                    .unwrap();
                let ran = runtime.block_on(async {
                    let gone = tokio::sync::Notify::new();
                    let ran = run_grpo(
                        &mut learner,
                        Source::Play(&problem),
                        config,
                        &place,
                        |row, _, _| {
                            goes(rank, row.step()).unwrap_or_else(|| {
                                // Dies in the middle of what comes next.
                                gone.notify_one();
                                Control::Continue
                            })
                        },
                    );
                    tokio::select! {
                        biased;
                        () = gone.notified() => Err(RunError::NoTasks),
                        ran = Box::pin(ran) => ran,
                    }
                });
                let critic = learner.critic_state();
                let kept = critic.map_or(0, |(_, optimizer)| optimizer.kept());
                (ran, weights(&learner), learner.optimizer().kept() + kept)
            };
            scope.spawn(run)
        };
        let threads: Vec<_> = (0..size).map(rank).collect();
        let left = threads.into_iter().map(|thread| thread.join().unwrap());
        left.collect()
    })
}

/// The weights of a run that all ranks end with.
fn whole(config: &GrpoConfig, folder: &Path, size: usize, resume: bool) -> Vec<u8> {
    whole_from(start, config, folder, size, resume).0
}

/// The same with another start, and the numbers of moments that each rank keeps.
fn whole_from(
    start: fn() -> Checkpoint,
    config: &GrpoConfig,
    folder: &Path,
    size: usize,
    resume: bool,
) -> (Vec<u8>, Vec<usize>) {
    let goes = |_, _| Some(Control::Continue);
    let left = train(start, config, folder, size, resume, goes);
    for (ran, weights, _) in &left {
        assert!(ran.is_ok(), "{ran:?}");
        assert!(*weights == left[0].1, "ranks have different weights");
    }
    let kept = left.iter().map(|(.., kept)| *kept).collect();
    (left.into_iter().next().unwrap().1, kept)
}

/// Every file of the newest checkpoint.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let newest = forage_trainer::checkpoint::newest(folder).unwrap().unwrap();
    let mut files = forage_trainer::checkpoint::files(&newest).unwrap();
    files.sort();
    files
        .into_iter()
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect()
}

fn assert_same(found: &Path, expected: &Path, what: &str) {
    let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
        files.iter().map(|(name, _)| name.clone()).collect()
    };
    let (ours, theirs) = (files(found), files(expected));
    assert_eq!(names(&ours), names(&theirs), "{what}");
    for ((name, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        assert!(ours == theirs, "{what}: {name} differs");
    }
    assert_eq!(rows(found), rows(expected), "{what}");
}

#[test]
fn ranks_learn_what_one_process_learns() {
    let alone = tempfile::tempdir().unwrap();
    let expected = whole(&config(), alone.path(), 1, false);
    for size in [2, 3, 4] {
        let folder = tempfile::tempdir().unwrap();
        let found = whole(&config(), folder.path(), size, false);
        assert!(found == expected, "{size} ranks");
        assert_same(folder.path(), alone.path(), &format!("{size} ranks"));
    }
    let fewer = GrpoConfig {
        update: UpdateConfig {
            parts: Some(1),
            ..config().update
        },
        ..config()
    };
    let folder = tempfile::tempdir().unwrap();
    let other = whole(&fewer, folder.path(), 1, false);
    assert!(other != expected, "the parts decide the order of sums");
}

/// The result and the weights of each learner of a run whose ranks are threads of this process; the first stops after `last` steps.
fn on_threads(
    config: &GrpoConfig,
    folder: &Path,
    size: usize,
    resume: bool,
    last: u64,
) -> Vec<(Result<(), RunError>, Vec<u8>)> {
    let start = checkpoint(1);
    let problem = problem(&start, &[("random", 1.0)]);
    let make = |_| learner(start.clone(), config.update.clone());
    let mut learners: Vec<Learner> = (0..size).map(make).collect();
    Learner::together(&mut learners).unwrap();
    let problem = &problem;
    std::thread::scope(|scope| {
        let run = |(rank, mut learner): (usize, Learner)| {
            let place = place(folder, resume);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .enable_all()
                    .build()
                    .unwrap();
                let watch = |row: &Row, _: &[Episode], _: &[Alarm]| {
                    if rank == 0 && row.step() + 1 == last {
                        Control::Stop
                    } else {
                        Control::Continue
                    }
                };
                let source = Source::Play(problem);
                let ran = run_grpo(&mut learner, source, config, &place, watch);
                (runtime.block_on(ran), weights(&learner))
            })
        };
        let threads: Vec<_> = learners.into_iter().enumerate().map(run).collect();
        let found = threads.into_iter().map(|thread| thread.join().unwrap());
        found.collect()
    })
}

#[test]
fn threads_of_one_process_learn_what_one_learner_learns() {
    let configs = [
        config(),
        every_part(),
        sharded(config()),
        sharded(criticised()),
    ];
    for config in configs {
        let alone = tempfile::tempdir().unwrap();
        let expected = whole(&config, alone.path(), 1, false);
        for size in [2, 3] {
            let folder = tempfile::tempdir().unwrap();
            for (ran, found) in on_threads(&config, folder.path(), size, false, u64::MAX) {
                assert!(ran.is_ok(), "{ran:?}");
                assert!(found == expected, "{size} threads");
            }
            assert_same(folder.path(), alone.path(), &format!("{size} threads"));
        }
    }
}

#[test]
fn threads_of_one_process_go_on_from_the_folder_of_the_first() {
    let alone = tempfile::tempdir().unwrap();
    let config = sharded(every_part());
    let expected = whole(&config, alone.path(), 1, false);
    let folder = tempfile::tempdir().unwrap();
    let left = on_threads(&config, folder.path(), 3, false, 2);
    let ends = left.iter().map(|(ran, _)| ran);
    for (rank, ran) in ends.enumerate() {
        let stopped = match ran {
            Err(RunError::Interrupted { step: 2, .. }) => rank == 0,
            Err(RunError::Followed { step: 2 }) => rank > 0,
            _ => false,
        };
        assert!(stopped, "{rank}: {ran:?}");
    }
    let held = files(folder.path());
    for (ran, found) in on_threads(&config, folder.path(), 2, true, u64::MAX) {
        assert!(ran.is_ok(), "{ran:?}");
        assert!(found == expected);
    }
    assert_same(folder.path(), alone.path(), "gone on with");
    // All have read it where it is.
    let there = folder.path().join("checkpoints/step-000002");
    for (name, bytes) in held {
        assert!(std::fs::read(there.join(&name)).unwrap() == bytes, "{name}");
    }
}

#[test]
fn threads_of_one_process_play_one_step_ahead_at_most() {
    let start = checkpoint(1);
    let problem = problem(&start, &[("random", 1.0)]);
    let mut config = GrpoConfig {
        lookahead: 2,
        ..config()
    };
    config.update.old_logprobs = Some(OldLogprobs::Sampler);
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path(), false);
    let mut learners = [(); 2].map(|()| learner(start.clone(), config.update.clone()));
    Learner::together(&mut learners).unwrap();
    let watch = |_: &Row, _: &[Episode], _: &[Alarm]| Control::Continue;
    let source = Source::Play(&problem);
    let ran = run_grpo(&mut learners[0], source, &config, &place, watch);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = runtime.block_on(ran).unwrap_err().to_string();
    assert!(error.contains("one step ahead at most"), "{error}");
}

/// Look-ahead, replay, trees that grow at their frontier, a curriculum that fills batches again, several optimizer
/// steps, and the sampler's log-probabilities.
fn every_part() -> GrpoConfig {
    let replay = Some(ReplayConfig {
        capacity: 4,
        share: 0.5,
    });
    let update = UpdateConfig {
        minibatches: 2,
        old_logprobs: Some(OldLogprobs::Sampler),
        ..config().update
    };
    let curriculum = serde_json::json!({"difficulty": {
        "target": 0.5, "temperature": 0.1, "reference": 2, "attention": 0.2,
    }});
    GrpoConfig {
        prompts_per_step: 4,
        trees: Some(2),
        branching: serde_json::from_value(serde_json::json!({"frontier": {}})).unwrap(),
        confident_wrong: true,
        curriculum: serde_json::from_value(curriculum).unwrap(),
        refills: 1,
        replay,
        lookahead: 1,
        update,
        ..config()
    }
}

/// A critic beside the policy.
fn criticised() -> GrpoConfig {
    let update = UpdateConfig {
        objective: serde_json::from_value(serde_json::json!({"algorithm": "ppo"})).unwrap(),
        minibatches: 2,
        ..config().update
    };
    GrpoConfig { update, ..config() }
}

#[test]
fn ranks_look_ahead_replay_grow_trees_and_criticise() {
    let recomputed = UpdateConfig {
        old_logprobs: Some(OldLogprobs::Trainer),
        ..config().update
    };
    let recomputed = GrpoConfig {
        update: recomputed,
        ..config()
    };
    for config in [every_part(), recomputed, criticised()] {
        let (alone, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let expected = whole(&config, alone.path(), 1, false);
        assert!(whole(&config, folder.path(), 3, false) == expected);
        assert_same(folder.path(), alone.path(), "three ranks");
    }
}

#[test]
fn a_lost_rank_stops_all_with_a_checkpoint_from_which_any_number_goes_on() {
    let alone = tempfile::tempdir().unwrap();
    let expected = whole(&every_part(), alone.path(), 1, false);
    for (going, then) in [(1, 2), (2, 1), (0, 4)] {
        let folder = tempfile::tempdir().unwrap();
        let goes = |rank, step| (rank != going || step < 1).then_some(Control::Continue);
        let left = train(start, &every_part(), folder.path(), 3, false, goes);
        for (rank, (ran, ..)) in left
            .into_iter()
            .enumerate()
            .filter(|(rank, _)| *rank != going)
        {
            let Err(RunError::Ranks { fix, source, .. }) = &ran else {
                panic!("{ran:?}");
            };
            let words = source.to_string();
            assert!(
                words.starts_with(&format!("rank {going} has closed")),
                "{words}"
            );
            let holds = if rank == 0 {
                "holds the run"
            } else {
                "rank 0 keeps"
            };
            assert!(fix.contains(holds), "rank {rank}: {fix}");
        }
        // Where rank 0 itself is gone, the run begins anew.
        let resume = going != 0;
        let folder = if resume {
            folder
        } else {
            tempfile::tempdir().unwrap()
        };
        let found = whole(&every_part(), folder.path(), then, resume);
        assert!(found == expected, "rank {going} lost, {then} ranks then");
        assert_same(folder.path(), alone.path(), "resumed");
    }
}

#[test]
fn one_that_is_asked_to_stop_stops_all_at_the_same_step() {
    let alone = tempfile::tempdir().unwrap();
    let expected = whole(&config(), alone.path(), 1, false);
    let folder = tempfile::tempdir().unwrap();
    let goes = |rank, step| {
        Some(if rank == 1 && step == 1 {
            Control::Stop
        } else {
            Control::Continue
        })
    };
    let left = train(start, &config(), folder.path(), 2, false, goes);
    assert!(matches!(
        left[0].0,
        Err(RunError::Interrupted { step: 2, .. })
    ));
    assert!(matches!(left[1].0, Err(RunError::Followed { step: 2 })));
    let found = whole(&config(), folder.path(), 3, true);
    assert!(found == expected);
    assert_same(folder.path(), alone.path(), "stopped and resumed");
}

/// The same with moments that the ranks share, and a checkpoint on the way.
fn sharded(config: GrpoConfig) -> GrpoConfig {
    let mut config = GrpoConfig {
        checkpoint_every: 2,
        ..config
    };
    config.update.optimizer.sharded = true;
    config
}

fn in_8_bits() -> GrpoConfig {
    let mut config = config();
    config.update.optimizer.moments_in_8_bits = true;
    config
}

#[test]
fn shared_moments_teach_what_those_of_one_process_do() {
    type Case = (fn() -> Checkpoint, GrpoConfig, &'static [usize]);
    let cases: [Case; 5] = [
        (start, config(), &[1, 2, 3, 4]),
        (start, in_8_bits(), &[2, 3]),
        (adapted, config(), &[2, 3]),
        (start, criticised(), &[2, 3]),
        (adapted, criticised(), &[3]),
    ];
    for (case, (start, config, sizes)) in cases.into_iter().enumerate() {
        let alone = tempfile::tempdir().unwrap();
        let (expected, all) = whole_from(start, &config, alone.path(), 1, false);
        let config = sharded(config);
        for &size in sizes {
            let what = format!("case {case}, {size} ranks");
            let folder = tempfile::tempdir().unwrap();
            let (found, kept) = whole_from(start, &config, folder.path(), size, false);
            assert!(found == expected, "{what}");
            assert_same(folder.path(), alone.path(), &what);
            assert_eq!(kept.iter().sum::<usize>(), all[0], "{what}");
            // A number of each parameter, or a block of the largest one.
            let most = if config.update.optimizer.moments_in_8_bits {
                600
            } else {
                120
            };
            for kept in kept {
                assert!(kept.abs_diff(all[0] / size) <= most, "{what}: {kept}");
            }
        }
    }
}

#[test]
fn shared_moments_go_on_with_any_number_of_ranks() {
    let alone = tempfile::tempdir().unwrap();
    let config = criticised();
    let expected = whole(&config, alone.path(), 1, false);
    let stop = |rank, step| {
        Some(if rank == 1 && step == 2 {
            Control::Stop
        } else {
            Control::Continue
        })
    };
    for (size, shared, then, still) in [
        (3, true, 2, true),
        (2, true, 1, true),
        (2, true, 3, false),
        (2, false, 4, true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = [shared, still].map(|shares| {
            let config = config.clone();
            if shares { sharded(config) } else { config }
        });
        let left = train(start, &first, folder.path(), size, false, stop);
        assert!(
            matches!(left[0].0, Err(RunError::Interrupted { step: 3, .. })),
            "{:?}",
            left[0].0
        );
        for (ran, ..) in &left[1..] {
            assert!(
                matches!(ran, Err(RunError::Followed { step: 3 })),
                "{ran:?}"
            );
        }
        let found = whole(&second, folder.path(), then, true);
        assert!(found == expected, "{size} ranks, then {then}");
        assert_same(folder.path(), alone.path(), "gone on with");
    }
}

#[test]
fn a_lost_rank_takes_its_moments_and_the_last_checkpoint_is_left() {
    let alone = tempfile::tempdir().unwrap();
    let config = sharded(every_part());
    let expected = whole(&every_part(), alone.path(), 1, false);
    // The rank, and the last step that it does: of which there is a checkpoint, or none before it.
    for (going, last, then) in [(1, 2, 2), (2, 0, 1), (0, 2, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let goes = |rank, step| (rank != going || step < last).then_some(Control::Continue);
        let left = train(start, &config, folder.path(), 3, false, goes);
        let others = left.into_iter().enumerate();
        for (rank, (ran, ..)) in others.filter(|(rank, _)| *rank != going) {
            let Err(RunError::Ranks { step, fix, source }) = &ran else {
                panic!("{ran:?}");
            };
            assert_eq!(*step, last + 1, "rank {rank}");
            let words = source.to_string();
            let named = format!("rank {going} has closed");
            assert!(words.starts_with(&named), "{words}");
            let holds = match (rank, last) {
                (0, 0) => "no checkpoint was due yet",
                (0, _) => "what is left is the last checkpoint",
                _ => "rank 0 keeps the last checkpoint",
            };
            for part in ["are gone with it", holds, "--resume"] {
                assert!(fix.contains(part), "rank {rank}: {fix}");
            }
            if rank == 0 {
                let there = folder.path().join("checkpoints/step-000002");
                assert_eq!(there.exists(), last > 0);
                assert_eq!(fix.contains("step-000002"), last > 0, "{fix}");
            }
        }
        let found = whole(&config, folder.path(), then, true);
        assert!(found == expected, "rank {going} lost, {then} ranks then");
        assert_same(folder.path(), alone.path(), "resumed");
    }
}

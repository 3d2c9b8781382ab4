//! Several servers: episodes are dealt, stay where they are, and outlive a server.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use forage_contracts::{Ending, Episode};
use forage_env::InfraBudget;
use forage_trainer::metrics::Row;
use forage_trainer::run::{Control, GrpoConfig, RunError, Source, run_grpo};
use forage_trainer::{LearnError, RemoteError};

use super::fake::{Fake, Fault};
use super::rollouts::{Stage, stage_of};
use super::served::{Flaw, Served};
use super::support::{KINDS, expected, request};
use super::training::{adapted, grpo, learner, place};
use crate::tests::common::problem::{checkpoint, problem};

/// The prompts that a server continued.
fn prompts(fake: &Fake) -> BTreeSet<Vec<u32>> {
    let calls = fake.calls.lock().unwrap();
    let prompts = calls.iter().filter_map(|(path, body)| match path.as_str() {
        "/v1/completions" => Some(&body["prompt"]),
        "/generate" => Some(&body["input_ids"]),
        _ => None,
    });
    prompts
        .filter_map(|prompt| serde_json::from_value(prompt.clone()).ok())
        .collect()
}

fn turns(episodes: &[Episode]) -> u64 {
    episodes
        .iter()
        .map(|episode| episode.turns.len() as u64)
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_and_its_turns_stay_on_one_server() {
    for kind in KINDS {
        let Stage {
            fakes,
            policy,
            rollout,
            jobs,
        } = stage_of(3, kind, 20.0).await;
        let episodes = rollout.run(jobs).await;
        assert!(
            episodes
                .iter()
                .all(|episode| episode.ending == Ending::Answered)
        );
        let completed = policy
            .servers()
            .iter()
            .map(|server| server.stats().completed);
        assert_eq!(completed.sum::<u64>(), turns(&episodes), "{kind:?}");
        let prompts: Vec<BTreeSet<Vec<u32>>> = fakes.iter().map(|fake| prompts(fake)).collect();
        for (place, own) in prompts.iter().enumerate() {
            assert!(own.len() > 1, "{kind:?}: eight groups on three servers");
            let others = prompts
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != place);
            for other in others.flat_map(|(_, prompts)| prompts) {
                assert!(
                    !own.iter().any(|prompt| other.starts_with(prompt)),
                    "{kind:?}: what one server has read is read by another"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_costs_no_episode() {
    for kind in KINDS {
        let Stage {
            fakes,
            policy,
            rollout,
            jobs,
        } = stage_of(3, kind, 20.0).await;
        fakes[1].lives.store(1, Ordering::SeqCst);
        let (count, again) = (jobs.len(), jobs.clone());
        let episodes = rollout.run(jobs).await;
        assert!(fakes[1].is_dead());
        assert_eq!(episodes.len(), count);
        assert!(
            episodes
                .iter()
                .all(|episode| episode.ending == Ending::Answered && episode.score.is_some()),
            "{kind:?}"
        );
        let won = episodes
            .iter()
            .filter(|episode| episode.reward() == Some(1.0))
            .count();
        assert!(won >= 12, "{kind:?}: {won} of 16 right");
        assert_eq!(InfraBudget::default().check(&episodes), Ok(0));
        let stats = [0, 1, 2].map(|place| policy.servers()[place].stats());
        let completed: u64 = stats.iter().map(|stats| stats.completed).sum();
        assert_eq!(completed, turns(&episodes), "{kind:?}");
        assert_eq!(stats[1].completed, 1, "{kind:?}");
        assert!(stats[1].failed > 0 && stats[0].failed + stats[2].failed == 0);
        // Nobody asks it any more.
        let before = stats[1].requests;
        let more = rollout.run(again).await;
        assert!(
            more.iter()
                .all(|episode| episode.ending == Ending::Answered)
        );
        assert_eq!(policy.servers()[1].stats().requests, before, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_of_a_lost_server_is_asked_again_with_its_seed() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let flaws = [Flaw::None; 2];
        let (fakes, learner) = learner(kind, checkpoint(1), &flaws, folder.path(), 20.0).await;
        let policy = learner.policy();
        let first = request(0);
        assert_eq!(
            policy.generate(first.clone()).await.unwrap(),
            expected(&first, "base")
        );
        let second = request(1);
        assert_eq!(
            policy.generate(second.clone()).await.unwrap(),
            expected(&second, "base")
        );
        fakes[1].lives.store(0, Ordering::SeqCst);
        assert_eq!(
            policy.generate(second.clone()).await.unwrap(),
            expected(&second, "base")
        );
        // The last one is not given up for one failure.
        fakes[0].lives.store(0, Ordering::SeqCst);
        policy.generate(second.clone()).await.unwrap_err();
        fakes[0].lives.store(9, Ordering::SeqCst);
        assert_eq!(
            policy.generate(second.clone()).await.unwrap(),
            expected(&second, "base")
        );
    }
}

fn four_steps() -> GrpoConfig {
    GrpoConfig {
        lookahead: 0,
        ..grpo()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_gets_the_weights_before_it_is_asked() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let start = checkpoint(1);
        let problem = problem(&start, &[("random", 1.0)]);
        let flaws = [Flaw::None; 2];
        let (fakes, mut learner) = learner(kind, start.clone(), &flaws, folder.path(), 20.0).await;
        let mut asked = Vec::new();
        let watch = |row: &Row, _: &[_], _: &[_]| {
            asked.push(prompts(&fakes[1]).len());
            fakes[1].take_calls();
            match row.step() {
                0 => fakes[1].lives.store(0, Ordering::SeqCst),
                1 => {
                    // Restarted, with the weights of the start.
                    let served = fakes[1].served.as_ref().unwrap();
                    *served.lock().unwrap() = Served::new(&start, Flaw::None);
                    fakes[1].lives.store(i64::MAX, Ordering::SeqCst);
                }
                _ => {}
            }
            Control::Continue
        };
        let (config, place) = (four_steps(), place(folder.path()));
        let source = Source::Play(&problem);
        run_grpo(&mut learner, source, &config, &place, watch)
            .await
            .unwrap();
        let rows = Row::read_all(&folder.path().join("metrics.jsonl")).unwrap();
        let all = |name: &str| rows.iter().map(|row| row.get(name)).collect::<Vec<_>>();
        let verified = [2.0, 1.0, 2.0, 2.0].map(Some);
        assert_eq!(all("push/verified"), verified, "{kind:?}");
        assert_eq!(all("episode/infra_frac"), [Some(0.0); 4], "{kind:?}");
        assert!(
            all("push/logprob_abs_diff")
                .iter()
                .all(|gap| gap.is_some_and(|gap| gap < 1e-5))
        );
        // Dead in the second step, and not asked in the third, at whose end it has the weights.
        assert!(asked[0] > 0, "{kind:?}: {asked:?}");
        assert_eq!(asked[1..3], [0, 0], "{kind:?}: {asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_of_several_with_other_weights_ends_the_run() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let start = checkpoint(1);
        let problem = problem(&start, &[("random", 1.0)]);
        let flaws = [Flaw::None, Flaw::Deaf];
        let (fakes, mut learner) = learner(kind, start, &flaws, folder.path(), 20.0).await;
        let (config, place) = (four_steps(), place(folder.path()));
        let source = Source::Play(&problem);
        let ran = run_grpo(&mut learner, source, &config, &place, |_, _, _| {
            Control::Continue
        });
        let error = ran.await.unwrap_err();
        let RunError::Learn {
            step: 0,
            source: LearnError::Push(RemoteError::Unverified { url, what }),
        } = &error
        else {
            panic!("{kind:?}: {error:?}")
        };
        assert_eq!(what.matches("nats on average").count(), 2, "{what}");
        // The sound one took the first way to show that weights arrive, and is not asked for more.
        let pushes = |fake: &Fake| {
            let calls = fake.calls.lock().unwrap();
            calls
                .iter()
                .filter(|(path, _)| super::training::is_push(path))
                .count()
        };
        assert_eq!((pushes(&fakes[0]), pushes(&fakes[1])), (1, 2), "{kind:?}");
        assert!(url.starts_with("http://127.0.0.1"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_lost_before_weights_were_seen_to_arrive_is_not_used_until_they_are() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let flaws = [Flaw::None, Flaw::Deaf];
        let (fakes, mut learner) = learner(kind, checkpoint(1), &flaws, folder.path(), 20.0).await;
        fakes[1].lives.store(0, Ordering::SeqCst);
        learner.announce().await.unwrap();
        fakes[1].lives.store(i64::MAX, Ordering::SeqCst);
        for number in 0..2 {
            let policy = learner.policy();
            policy.generate(request(number)).await.unwrap();
        }
        assert!(prompts(&fakes[1]).is_empty(), "{kind:?}");
        // The true weights are there, since it keeps those that it was started with.
        let error = learner.announce().await.unwrap_err();
        let LearnError::Push(RemoteError::Unverified { what, .. }) = &error else {
            panic!("{kind:?}: {error:?}")
        };
        assert!(what.contains("changed on purpose"), "{kind:?}: {what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_restarted_lacks_the_adapter_and_is_not_asked_until_it_has_it() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let flaws = [Flaw::None; 2];
        let (fakes, mut learner) = learner(kind, adapted(), &flaws, folder.path(), 20.0).await;
        learner.announce().await.unwrap();
        let policy = learner.policy();
        for number in 0..2 {
            policy.generate(request(number)).await.unwrap();
        }
        fakes[1].take_calls();
        fakes[1].adapters.lock().unwrap().clear();
        for number in 2..6 {
            policy.generate(request(number)).await.unwrap();
        }
        assert_eq!(prompts(&fakes[1]).len(), 1, "{kind:?}: it refused one");
        learner.announce().await.unwrap();
        fakes[1].take_calls();
        for number in 6..8 {
            policy.generate(request(number)).await.unwrap();
        }
        assert!(!prompts(&fakes[1]).is_empty(), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_restarted_with_other_weights_is_noticed_before_its_tokens_are_used() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let flaws = [Flaw::None];
        let (fakes, mut learner) = learner(kind, checkpoint(1), &flaws, folder.path(), 20.0).await;
        learner.announce().await.unwrap();
        let policy = learner.policy();
        let fake = &fakes[0];
        // A connection that breaks by itself is not a restart.
        fake.inject([Fault::Reset]);
        policy.generate(request(0)).await.unwrap();
        let served = fake.served.as_ref().unwrap();
        *served.lock().unwrap() = Served::new(&checkpoint(2), Flaw::None);
        *fake.weights.lock().unwrap() = ("base".to_owned(), "default".to_owned());
        fake.inject([Fault::Reset]);
        let error = policy.generate(request(1)).await.unwrap_err();
        assert!(error.to_string().contains("restarted"), "{kind:?}: {error}");
        learner.announce().await.unwrap();
        policy.generate(request(2)).await.unwrap();
    }
}

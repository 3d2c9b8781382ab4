//! Whole episodes: what fails on the server's side is an infrastructure fault, never a score.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forage_contracts::policy::Sampling;
use forage_contracts::scripted::{Cast, OracleStyle, ScriptEntry};
use forage_contracts::seed::Seed;
use forage_contracts::{Boundary, ByteTokenizer, Ending, Episode, Resources, Split, Task};
use forage_env::reward::RewardSet;
use forage_env::{InfraBudget, Job, Presentation, Rollout, World, WorldSpec, registry};
use forage_retriever::Bm25Retriever;
use forage_trainer::{RemoteConfig, RemoteKind, RemotePolicy};
use serde_json::json;

use super::fake::{Fake, Fault};
use super::model::Model;
use super::support::{KINDS, config};

pub(crate) struct Stage {
    pub(crate) fakes: Vec<Arc<Fake>>,
    pub(crate) policy: Arc<RemotePolicy>,
    pub(crate) rollout: Rollout,
    pub(crate) jobs: Vec<Job>,
}

/// Questions of a generated world, two episodes each, and an oracle behind a socket.
async fn stage(kind: RemoteKind, timeout: f64) -> Stage {
    stage_of(1, kind, timeout).await
}

/// The same with several servers, which have one memory.
pub(crate) async fn stage_of(servers: usize, kind: RemoteKind, timeout: f64) -> Stage {
    let world = World::new(WorldSpec::new(100, 3)).unwrap();
    let tasks: Vec<Arc<Task>> = world
        .questions(Split::Train, 8)
        .unwrap()
        .map(Arc::new)
        .collect();
    let tokenizer = Arc::new(ByteTokenizer);
    let settings = json!({
        "prompt": "short",
        "max_turn_tokens": 500,
        "max_episode_tokens": 20_000,
        "observation": {"limit_tokens": 4000},
    });
    let retriever = Arc::new(Bm25Retriever::in_memory(world.passages().collect()).unwrap());
    let factory = registry::make(
        "search-r1",
        settings,
        Resources::new(retriever, tokenizer.clone()),
    )
    .unwrap();
    let oracle = registry::find("search-r1")
        .unwrap()
        .script(
            ScriptEntry::ORACLE,
            Cast::new(tokenizer.clone(), tasks.clone()).in_style(OracleStyle::Terse),
        )
        .unwrap();
    let model = Arc::new(Model::oracle(oracle));
    let (mut fakes, mut urls) = (Vec::new(), Vec::new());
    for _ in 0..servers {
        let fake = Fake {
            context: 32_768,
            ..Fake::new(Arc::clone(&model))
        };
        let (fake, url) = fake.serve().await;
        fakes.push(fake);
        urls.push(url);
    }
    let config = RemoteConfig {
        context: 32_768,
        retries: 1,
        request_timeout_s: timeout,
        url: urls,
        ..config(kind, "")
    };
    let policy = Arc::new(RemotePolicy::connect(&config).await.unwrap());
    let job = |(group, task): (usize, &Arc<Task>)| {
        [0, 1].map(|member| Job {
            task: Arc::clone(task),
            group: group as u64,
            member,
            seed: Seed::root(1).child("job", &[group as u64, member]),
            branches_from: None,
            hint: None,
            temperature: None,
        })
    };
    let jobs = tasks.iter().enumerate().flat_map(job).collect();
    let rollout = Rollout {
        policy: policy.clone(),
        tokenizer,
        factory,
        rewards: Arc::new(RewardSet::exact_match()),
        sampling: Sampling::FULL,
        presentation: Presentation::RAW,
    };
    Stage {
        fakes,
        policy,
        rollout,
        jobs,
    }
}

fn split(episodes: &[Episode]) -> (Vec<&Episode>, Vec<&Episode>) {
    episodes
        .iter()
        .partition(|episode| !episode.ending.is_infra())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn episodes_of_an_oracle_behind_a_socket_are_right() {
    for kind in KINDS {
        let stage = stage(kind, 20.0).await;
        // Passing faults among them change nothing.
        stage.fakes[0].inject([Fault::Status(500), Fault::Reset, Fault::Body("<html>")]);
        let episodes = stage.rollout.run(stage.jobs).await;
        let won = episodes
            .iter()
            .filter(|episode| episode.reward() == Some(1.0))
            .count();
        assert!(
            episodes
                .iter()
                .all(|episode| episode.ending == Ending::Answered),
            "{kind:?}"
        );
        assert!(won >= 12, "{kind:?}: {won} of 16 right");
        let turns: usize = episodes.iter().map(|episode| episode.turns.len()).sum();
        let stats = stage.policy.servers()[0].stats();
        assert_eq!(
            (stats.completed, stats.failed, stats.retries),
            (turns as u64, 0, 3),
            "{kind:?}"
        );
        assert_eq!(InfraBudget::default().check(&episodes), Ok(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_end_episodes_without_a_score() {
    let fault: [fn() -> Fault; 5] = [
        || Fault::Status(503),
        || Fault::Body("{\"choices\": 3, \"output_ids\": 3}"),
        || Fault::BreakOff,
        || Fault::Stall,
        || {
            Fault::Change(|answer| {
                let place = if answer.get("choices").is_some() {
                    "/choices/0/logprobs/token_logprobs"
                } else {
                    "/meta_info/output_token_logprobs"
                };
                answer
                    .pointer_mut(place)
                    .unwrap()
                    .as_array_mut()
                    .unwrap()
                    .pop();
            })
        },
    ];
    for kind in KINDS {
        for fault in fault {
            let timeout = if matches!(fault(), Fault::Stall) {
                1.0
            } else {
                20.0
            };
            let mut stage = stage(kind, timeout).await;
            // One after the other, so that both tries of a request meet a fault.
            stage.jobs.truncate(4);
            stage.fakes[0].inject([fault(), fault()]);
            let episodes = stage.rollout.run_bounded(stage.jobs, 1, &|_| {}).await;
            let (healthy, failed) = split(&episodes);
            assert_eq!((healthy.len(), failed.len()), (3, 1), "{kind:?}");
            assert!(healthy.iter().all(|episode| episode.score.is_some()));
            for episode in failed {
                assert_eq!((episode.score.is_none(), episode.reward()), (true, None));
                let Ending::Infra {
                    boundary: Boundary::Policy,
                    message,
                } = &episode.ending
                else {
                    panic!("{episode:?}")
                };
                assert!(
                    message.contains("http://127.0.0.1") && message.contains("try 2"),
                    "{message}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stalls_stops_the_run() {
    for kind in KINDS {
        let stage = stage(kind, 0.25).await;
        *stage.fakes[0].stalled.lock().unwrap() = true;
        let started = Instant::now();
        let episodes = stage.rollout.run_bounded(stage.jobs, 4, &|_| {}).await;
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{kind:?}: {:?}",
            started.elapsed()
        );
        // Four requests of two tries; three more were on their way when the fourth of them failed.
        let timeouts = stage.policy.servers()[0].stats().timeouts;
        assert!(
            (8..=11).contains(&timeouts),
            "{kind:?}: {timeouts} tries timed out"
        );
        assert!(
            episodes
                .iter()
                .all(|episode| episode.ending.is_infra() && episode.score.is_none())
        );
        let gone = |episode: &&Episode| match &episode.ending {
            Ending::Infra { message, .. } => message.contains("the policy is gone"),
            _ => false,
        };
        assert!(episodes.iter().filter(gone).count() >= 8, "{kind:?}");
        let exceeded = InfraBudget::default().check(&episodes).unwrap_err();
        assert_eq!(
            exceeded.faults.get(&Boundary::Policy),
            Some(&16),
            "{kind:?}: the run is stopped"
        );
    }
}

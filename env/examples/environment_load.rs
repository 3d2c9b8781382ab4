//! Scripted episodes per second of environments: in this process, over HTTP and over WebSocket, by sessions at a time.
//!
//! The oracle's turns are recorded first, in the rollout driver; then the same texts are played each way, rewards included,
//! every observation that was read must be the recorded one in process, and every episode must end with the recorded reward. Clients and
//! server share the machine.
//!
//! `cargo run --release -p forage -p forage-env --example environment_load -- SECONDS FILE ENVIRONMENT...`; FILE receives the
//! search episodes as texts, for `bench/environment/peer.py`. Those that need a server are measured by who serves them.

#![allow(
    clippy::print_stdout,
    reason = "the example's purpose is to print what it measured"
)]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forage_contracts::environment::{Action, EnvFactory};
use forage_contracts::policy::Sampling;
use forage_contracts::scripted::{Cast, ScriptEntry};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Ending, EnvEntry, Episode, Resources, Split, Task};
use forage_env::reward::RewardSet;
use forage_env::server::{Served, ServerConfig};
use forage_env::{Job, Presentation, Rollout, Wiki, World, WorldSpec, registry};
use forage_retriever::Bm25Retriever;
use futures::future::try_join_all;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;

type Failure = Box<dyn Error + Send + Sync>;

/// Questions of which the episodes are.
const QUESTIONS: u64 = 200;

/// What is played: the oracle's episodes.
struct Script {
    factory: Arc<dyn EnvFactory>,
    rewards: Arc<RewardSet>,
    episodes: Vec<Episode>,
    addr: SocketAddr,
    client: reqwest::Client,
    /// The next episode to play.
    next: AtomicUsize,
}

/// A way to play an episode.
#[derive(Clone, Copy)]
enum Way {
    Process,
    Http,
    WebSocket,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, file, environments @ ..] = arguments.as_slice() else {
        return Err("usage: environment_load SECONDS FILE ENVIRONMENT...".into());
    };
    let seconds: f64 = seconds.parse()?;
    for name in environments {
        let entry = registry::find(name)?;
        let script = Arc::new(Script::record(entry).await?);
        if entry.names().contains(&"search-r1") {
            std::fs::write(file, script.texts())?;
        }
        for (name, way) in [
            ("process", Way::Process),
            ("http", Way::Http),
            ("websocket", Way::WebSocket),
        ] {
            for sessions in [1, 32, 256] {
                let rate = script
                    .measure(way, sessions, Duration::from_secs_f64(seconds))
                    .await?;
                let turns = script
                    .episodes
                    .iter()
                    .map(|episode| episode.turns.len())
                    .sum::<usize>() as f64;
                let turns = turns / script.episodes.len() as f64;
                println!(
                    "{}",
                    json!({"environment": entry.id, "way": name, "sessions": sessions, "episodes_per_s": rate.round(),
                           "turns_per_s": (rate * turns).round()})
                );
            }
        }
    }
    Ok(())
}

impl Script {
    async fn record(entry: &EnvEntry) -> Result<Self, Failure> {
        let world = World::new(WorldSpec::new(2000, 7))?;
        let tasks: Arc<[Arc<Task>]> = world
            .questions(Split::Train, QUESTIONS)?
            .map(Arc::new)
            .collect();
        let tokenizer = Arc::new(ByteTokenizer);
        let retriever = Arc::new(Bm25Retriever::in_memory(world.passages().collect())?);
        let resources = Resources::new(retriever, tokenizer.clone())
            .with_open_wiki(Arc::new(Wiki::of_world(&world)?));
        let factory = (entry.make)(
            Value::Object((entry.for_bytes)(serde_json::Map::new())),
            resources,
        )?;
        let rewards = Arc::new(RewardSet::measure(entry.outcome));
        let oracle = entry.script(
            ScriptEntry::ORACLE,
            Cast::new(tokenizer.clone(), tasks.iter().cloned()),
        )?;
        let rollout = Rollout {
            policy: oracle,
            tokenizer: tokenizer.clone(),
            factory: factory.clone(),
            rewards: rewards.clone(),
            sampling: Sampling::GREEDY,
            presentation: Presentation::RAW,
        };
        let jobs = (0..)
            .zip(tasks.iter())
            .map(|(index, task)| Job::alone(task.clone(), Seed::root(index)));
        let episodes = rollout.run(jobs.collect()).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let served = Served {
            factory: factory.clone(),
            tasks,
            rewards: rewards.clone(),
            tokenizer,
        };
        tokio::spawn(served.serve(listener, ServerConfig::default(), std::future::pending()));
        let base = reqwest::Url::parse("http://127.0.0.1")?;
        let client = forage_net::connector(&base).build()?;
        Ok(Self {
            factory,
            rewards,
            episodes,
            addr,
            client,
            next: AtomicUsize::new(0),
        })
    }

    /// A line for each episode that came to an answer: others that play them wait for one.
    fn texts(&self) -> String {
        let line = |episode: &Episode| {
            let turns: Vec<&str> = episode
                .turns
                .iter()
                .map(|turn| turn.policy.as_str())
                .collect();
            let task = &episode.task;
            let right = episode.reward().is_some_and(|reward| reward > 0.0);
            json!({"question": task.question, "golds": task.golds, "turns": turns, "right": right})
                .to_string()
                + "\n"
        };
        self.episodes
            .iter()
            .filter(|episode| episode.ending == Ending::Answered)
            .map(line)
            .collect()
    }

    /// Episodes per second with `sessions` at a time.
    async fn measure(
        self: &Arc<Self>,
        way: Way,
        sessions: usize,
        time: Duration,
    ) -> Result<f64, Failure> {
        let began = Instant::now();
        let session = || {
            let script = Arc::clone(self);
            async move { tokio::spawn(async move { script.session(way, began + time).await }).await? }
        };
        let played: usize = try_join_all((0..sessions).map(|_| session()))
            .await?
            .into_iter()
            .sum();
        Ok(played as f64 / began.elapsed().as_secs_f64())
    }

    /// Plays one episode after the other; how many.
    async fn session(&self, way: Way, until: Instant) -> Result<usize, Failure> {
        let mut socket = match way {
            Way::WebSocket => Some(connect_async(format!("ws://{}/ws", self.addr)).await?.0),
            Way::Process | Way::Http => None,
        };
        let mut played = 0;
        while Instant::now() < until {
            let index = self.next.fetch_add(1, Ordering::Relaxed) % self.episodes.len();
            let expected = f64::from(
                self.episodes[index]
                    .reward()
                    .ok_or("the oracle's episode has no reward")?,
            );
            let reward = match &mut socket {
                Some(socket) => {
                    let mut ask = async |message: Value| -> Result<Value, Failure> {
                        socket.send(Message::text(message.to_string())).await?;
                        loop {
                            if let Message::Text(text) =
                                socket.next().await.ok_or("the connection ended")??
                            {
                                return Ok(serde_json::from_str::<Value>(&text)?["data"].take());
                            }
                        }
                    };
                    let mut last =
                        ask(json!({"type": "reset", "data": {"task_index": index, "seed": index}}))
                            .await?;
                    for turn in &self.episodes[index].turns {
                        last = ask(json!({"type": "step", "data": {"text": turn.policy}})).await?;
                    }
                    last["reward"].as_f64()
                }
                None if matches!(way, Way::Http) => self.over_http(index).await?,
                None => self.in_process(index).await?,
            };
            if reward.is_none_or(|reward| (reward - expected).abs() > 1e-5) {
                return Err(
                    format!("episode {index} ended with {reward:?} instead of {expected}").into(),
                );
            }
            played += 1;
        }
        Ok(played)
    }

    async fn over_http(&self, index: usize) -> Result<Option<f64>, Failure> {
        let post = async |route: &str, body: Value| -> Result<Value, Failure> {
            let answer = self
                .client
                .post(format!("http://{}{route}", self.addr))
                .body(body.to_string())
                .send()
                .await?;
            Ok(serde_json::from_str(&answer.text().await?)?)
        };
        let mut last = post("/reset", json!({"task_index": index, "seed": index})).await?;
        let id = last["episode_id"].clone();
        for turn in &self.episodes[index].turns {
            last = post(
                "/step",
                json!({"episode_id": id, "action": {"text": turn.policy}}),
            )
            .await?;
        }
        Ok(last["reward"].as_f64())
    }

    /// As the driver does it, without a policy and its tokens.
    async fn in_process(&self, index: usize) -> Result<Option<f64>, Failure> {
        let recorded = &self.episodes[index];
        let mut env = self.factory.make();
        env.reset(
            &recorded.task,
            Seed::root(index as u64).child("environment", &[]),
        )
        .await?;
        let mut earned = 0.0;
        let max_turns = self.factory.spec().max_turns;
        for (number, turn) in (1..).zip(&recorded.turns) {
            let action = Action {
                turns_left: max_turns.saturating_sub(number),
                ..Action::new(turn.policy.clone())
            };
            let step = env.step(&action).await?;
            // The score below reads the recorded episode: it is this one only if the environment answered as it did then. After
            // the last turn a limit may have kept the answer from the record.
            if number < recorded.turns.len() && step.observation.text != turn.observation {
                return Err(format!(
                    "episode {index} reads {:?} instead of {:?}",
                    step.observation.text, turn.observation
                )
                .into());
            }
            earned += step.reward;
        }
        let score = self.rewards.score(&recorded.task, recorded).await?;
        Ok(Some(f64::from(earned + score.total)))
    }
}

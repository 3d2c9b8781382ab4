//! Measures the environment alone: oracle episodes over a generated world with BM25 in memory; prints one line of JSON.
//!
//! `cargo run --release -p forage-env --example scripted_rollouts -- [PAGES] [EPISODES] [THREADS]`

#![allow(
    clippy::print_stdout,
    reason = "the example's purpose is to print what it measured"
)]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use forage_contracts::policy::Sampling;
use forage_contracts::scripted::{Cast, ScriptEntry};
use forage_contracts::seed::Seed;
use forage_contracts::{ByteTokenizer, Episode, Resources, Split, Task};
use forage_env::reward::RewardSet;
use forage_env::{Job, Presentation, Rollout, World, WorldSpec, registry};
use forage_retriever::Bm25Retriever;
use serde_json::{Value, json};

/// Episodes in flight together.
const BATCH: usize = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let number = |index: usize, default| numbers.get(index).copied().unwrap_or(default);
    let (pages, episodes, threads) = (number(0, 2000), number(1, 20_000), number(2, 2));

    let world = World::new(WorldSpec::new(pages, 7))?;
    let tasks: Vec<Arc<Task>> = world
        .questions(Split::Train, episodes.min(2000))?
        .map(Arc::new)
        .collect();
    let retriever = Arc::new(Bm25Retriever::in_memory(world.passages().collect())?);
    let tokenizer = Arc::new(ByteTokenizer);
    let rollout = Rollout {
        policy: registry::find("search-r1")?.script(
            ScriptEntry::ORACLE,
            Cast::new(tokenizer.clone(), tasks.iter().cloned()),
        )?,
        factory: registry::make(
            "search-r1",
            settings(),
            Resources::new(retriever, tokenizer.clone()),
        )?,
        tokenizer,
        rewards: Arc::new(RewardSet::exact_match()),
        sampling: Sampling::FULL,
        presentation: Presentation::RAW,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads as usize)
        .build()?;

    let mut total = Totals::default();
    let mut seconds = 0.0;
    for (batch, start) in (0_u64..).zip((0..episodes as usize).step_by(BATCH)) {
        let numbers = start..(start + BATCH).min(episodes as usize);
        let jobs = numbers
            .map(|number| job(&tasks[number % tasks.len()], batch, number as u64))
            .collect();
        let began = Instant::now();
        let played = runtime.block_on(rollout.run(jobs));
        seconds += began.elapsed().as_secs_f64();
        for episode in &played {
            total.add(episode);
        }
    }
    total.print(pages, threads, seconds);
    Ok(())
}

fn job(task: &Arc<Task>, group: u64, member: u64) -> Job {
    Job {
        task: Arc::clone(task),
        group,
        member,
        seed: Seed::root(7).child("episode", &[member]),
        branches_from: None,
        hint: None,
        temperature: None,
    }
}

/// Room for a token per byte.
fn settings() -> Value {
    json!({
        "max_generations": 6,
        "max_turn_tokens": 2000,
        "max_episode_tokens": 32_768,
        "observation": {"limit_tokens": 4000},
        "prompt": "search_r1",
    })
}

#[derive(Default)]
struct Totals {
    episodes: usize,
    searches: usize,
    infra: usize,
    tokens: usize,
    reward: f32,
}

impl Totals {
    fn add(&mut self, episode: &Episode) {
        self.episodes += 1;
        self.searches += episode.searches();
        self.infra += usize::from(episode.ending.is_infra());
        self.tokens += episode.tokens.len();
        self.reward += episode.reward().unwrap_or(0.0);
    }

    fn print(&self, pages: u64, threads: u64, seconds: f64) {
        let (episodes, searches) = (self.episodes as f64, self.searches as f64);
        let report = json!({
            "pages": pages,
            "threads": threads,
            "episodes": self.episodes,
            "episodes_per_s": episodes / seconds,
            "searches_per_s": searches / seconds,
            "tokens_per_episode": self.tokens as f64 / episodes,
            "exact_match": f64::from(self.reward) / episodes,
            "infra_faults": self.infra,
        });
        println!("{report}");
    }
}

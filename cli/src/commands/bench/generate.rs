//! `forage bench generate`: the generation engine.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::Poll;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use forage_contracts::policy::{GenerateRequest, Policy, Sampling};
use forage_contracts::seed::Seed;
use forage_trainer::device::DeviceSpec;
use forage_trainer::{Checkpoint, Engine, EngineConfig, Workers};
use futures::future::try_join_all;

use super::counters::Counters;
use super::{Weights, open};
use crate::terminal::out;

/// Measures the generation engine, one line of JSON per job.
///
/// Jobs: `single:BATCH:PROMPT:NEW`, one greedy turn of BATCH prompts at once; `groups:PROMPTS:MEMBERS:PROMPT:NEW:OBSERVATION:TURNS`,
/// sampled turns of MEMBERS episodes per prompt with an observation after each. Prompts and observations are the tokens
/// ((7919 + 2 * round) * place + 31 * row + 7 * round) mod 1000, so that another program can make the same ones and no round finds the
/// prompts of the one before in the cache.
#[derive(Args, Debug)]
pub(crate) struct Generate {
    /// A checkpoint folder, or random:SHAPE, random:SHAPE:LAYERS.
    model: String,
    #[arg(required = true)]
    jobs: Vec<String>,
    /// How the weights are kept.
    #[arg(long, value_enum, default_value = "f32")]
    weights: Weights,
    #[arg(long, default_value = "cpu")]
    device: DeviceSpec,
    /// Times each job is run; the first touches memory and compiles kernels.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..))]
    rounds: u64,
    /// File of the stub driver's counters.
    #[arg(long, value_name = "FILE")]
    counters: Option<PathBuf>,
}

/// Tokens `places` of row `row`.
fn tokens(row: usize, round: u64, places: std::ops::Range<usize>) -> Vec<u32> {
    places
        .map(|place| {
            (((7919 + 2 * round as usize) * place + 31 * row + 7 * round as usize) % 1000) as u32
        })
        .collect()
}

struct Job {
    prompts: usize,
    members: usize,
    prompt: usize,
    new: usize,
    observation: usize,
    turns: usize,
    sampling: Sampling,
}

impl Job {
    fn parse(text: &str) -> Result<Self> {
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let numbers = parts.map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        match (kind, numbers.as_slice()) {
            ("single", &[prompts, prompt, new]) => Ok(Self {
                prompts,
                members: 1,
                prompt,
                new,
                observation: 0,
                turns: 1,
                sampling: Sampling::GREEDY,
            }),
            ("groups", &[prompts, members, prompt, new, observation, turns]) => Ok(Self {
                prompts,
                members,
                prompt,
                new,
                observation,
                turns,
                sampling: Sampling::FULL,
            }),
            _ => bail!("`{text}` is not a job; see `forage bench generate --help`"),
        }
    }

    /// All tokens of an episode at its end.
    fn length(&self) -> usize {
        self.prompt + self.turns * self.new + (self.turns - 1) * self.observation
    }

    /// Plays one episode; returns the digest of the tokens it drew and of the bits of their log-probabilities.
    async fn episode(&self, engine: &Engine, episode: usize, round: u64) -> Result<blake3::Hash> {
        let mut digest = blake3::Hasher::new();
        let mut log = tokens(episode / self.members, round, 0..self.prompt);
        for turn in 0..self.turns {
            if turn > 0 {
                log.extend(tokens(
                    episode,
                    round,
                    log.len()..log.len() + self.observation,
                ));
            }
            let request = GenerateRequest {
                episode: round * 1_000_000 + episode as u64,
                tokens: log.clone(),
                max_tokens: self.new,
                stop: Vec::new(),
                ignore_eos: true,
                sampling: self.sampling,
                seed: Seed::root(round).child("episode", &[episode as u64, turn as u64]),
            };
            let drawn = engine.generate(request).await?;
            for (token, logprob) in drawn.tokens.iter().zip(&drawn.logprobs) {
                digest.update(&token.to_le_bytes());
                digest.update(&logprob.to_bits().to_le_bytes());
            }
            log.extend(drawn.tokens);
        }
        engine.release(round * 1_000_000 + episode as u64);
        Ok(digest.finalize())
    }
}

/// A pool whose threads are all kept waiting.
struct Held(Arc<Barrier>);

impl Held {
    fn new(pool: &rayon::ThreadPool) -> Self {
        let barrier = Arc::new(Barrier::new(pool.current_num_threads() + 1));
        let inside = Arc::clone(&barrier);
        pool.spawn_broadcast(move |_| {
            inside.wait();
            inside.wait();
        });
        barrier.wait();
        Self(barrier)
    }

    fn let_go(self) {
        self.0.wait();
    }
}

impl Generate {
    pub(super) fn run(self) -> Result<()> {
        let jobs = self
            .jobs
            .iter()
            .map(|text| Ok((text, Job::parse(text)?)))
            .collect::<Result<Vec<_>>>()?;
        let checkpoint = open(&self.model, self.weights, self.device)?;
        for (text, job) in jobs {
            self.measure(&checkpoint, text, &job)?;
        }
        Ok(())
    }

    fn measure(&self, checkpoint: &Checkpoint, text: &str, job: &Job) -> Result<()> {
        let threads = std::thread::available_parallelism()?.get();
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let episodes = job.prompts * job.members;
        let config = EngineConfig {
            context: job.length().max(4096),
            cache_tokens: (job.length() + 32) * episodes,
            step_tokens: if self.device.is_cpu() { 1024 } else { 8192 },
            sequences: 256,
            bf16: self.weights != Weights::F32 && !self.device.is_cpu(),
        };
        let pool = Workers::new(threads).kernel_pool();
        let engine = Engine::start(checkpoint, config, Arc::clone(&pool));
        let mut counters = Counters::new(self.counters.clone());
        let (mut seconds, mut counted) = (Vec::new(), Vec::new());
        let mut digest = blake3::Hasher::new();
        for round in 0..self.rounds {
            counters.since(checkpoint)?;
            let begin = Instant::now();
            let drawn = runtime.block_on(async {
                let run = |episode| job.episode(&engine, episode, round);
                let mut running = pin!(try_join_all((0..episodes).map(run)));
                // The engine waits until it has every first request: which of them share a pass must not depend on which
                // thread was quicker.
                let held = Held::new(&pool);
                let first = futures::poll!(running.as_mut());
                held.let_go();
                match first {
                    Poll::Ready(ended) => ended,
                    Poll::Pending => running.await,
                }
            })?;
            seconds.push(begin.elapsed().as_secs_f64());
            counted.extend(counters.since(checkpoint)?);
            for episode in drawn {
                digest.update(episode.as_bytes());
            }
        }
        let best = seconds[1..].iter().copied().fold(f64::INFINITY, f64::min);
        let stats = engine.stats();
        let row = serde_json::json!({
            "job": text,
            "tokens_per_second": (episodes * job.turns * job.new) as f64 / best,
            "cached_prompt": stats.cached_prompt_tokens as f64 / stats.prompt_tokens as f64,
            "attention_bytes": stats.attention_bytes,
            "live_cache_bytes": stats.live_cache_bytes,
            // On a GPU: what compiling and tuning kernels cost.
            "first_round_extra_s": seconds[0] - best,
            "round_seconds": seconds,
            // Equal where two programs draw the same tokens with log-probabilities of the same bits, in every round.
            "digest": digest.finalize().to_hex().as_str(),
            "counters": counted,
        });
        out(&row.to_string());
        Ok(())
    }
}

//! Measures the generation engine: `generate_bench MODEL full|half DEVICE JOB...`, one line of JSON per job. MODEL is a
//! checkpoint folder or `random:SHAPE`, DEVICE `cpu` or `cuda:0`.
//!
//! Jobs: `single:BATCH:PROMPT:NEW`, one greedy turn of `BATCH` prompts at once; `groups:PROMPTS:MEMBERS:PROMPT:NEW:OBSERVATION:TURNS`,
//! sampled turns of `MEMBERS` episodes per prompt with an observation after each. Prompts and observations are the tokens
//! `(7919 * place + 31 * row + 7 * round) mod 1000`, so that another program can make the same ones and no round finds the
//! prompts of the one before in the cache.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use forage_env::policy::{GenerateRequest, Policy, Sampling};
use forage_env::seed::Seed;
use forage_trainer::device::DeviceSpec;
use forage_trainer::generate::{Engine, EngineConfig};
use forage_trainer::weights::{Checkpoint, Precision};
use forage_trainer::workers::Workers;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tokens `places` of row `row`.
fn tokens(row: usize, round: u64, places: std::ops::Range<usize>) -> Vec<u32> {
    places.map(|place| ((7919 * place + 31 * row + 7 * round as usize) % 1000) as u32).collect()
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
    fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let numbers = parts.map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        match (kind, numbers.as_slice()) {
            ("single", &[prompts, prompt, new]) => {
                Ok(Self { prompts, members: 1, prompt, new, observation: 0, turns: 1, sampling: Sampling::GREEDY })
            }
            ("groups", &[prompts, members, prompt, new, observation, turns]) => {
                Ok(Self { prompts, members, prompt, new, observation, turns, sampling: Sampling::FULL })
            }
            _ => Err(format!("`{text}` is no job").into()),
        }
    }

    /// All tokens of an episode at its end.
    fn length(&self) -> usize {
        self.prompt + self.turns * self.new + (self.turns - 1) * self.observation
    }

    async fn episode(&self, engine: &Engine, episode: usize, round: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut log = tokens(episode / self.members, round, 0..self.prompt);
        for turn in 0..self.turns {
            if turn > 0 {
                log.extend(tokens(episode, round, log.len()..log.len() + self.observation));
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
            log.extend(engine.generate(request).await?.tokens);
        }
        engine.release(round * 1_000_000 + episode as u64);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, precision, device, jobs @ ..] = arguments.as_slice() else {
        return Err("usage: generate_bench MODEL full|half DEVICE JOB...".into());
    };
    let device = device.parse::<DeviceSpec>()?.open()?;
    let precision = if precision == "half" { Precision::Half } else { Precision::Full };
    let checkpoint = match model.strip_prefix("random:") {
        Some(shape) => Checkpoint::random(shape, None, Seed::root(1), precision, &device)?,
        None => Checkpoint::load_as(Path::new(model), precision, &device)?,
    };
    let threads = std::thread::available_parallelism()?.get();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    for text in jobs {
        let job = Arc::new(Job::parse(text)?);
        let episodes = job.prompts * job.members;
        let config = EngineConfig {
            context: 4096,
            cache_tokens: (job.length() + 32) * episodes,
            step_tokens: 1024,
            sequences: 256,
        };
        let engine = Arc::new(Engine::start(&checkpoint, config, Workers::new(threads).kernel_pool()));
        let mut seconds = Vec::new();
        for round in 0..4 {
            let begin = Instant::now();
            runtime.block_on(async {
                let run = |episode| {
                    let (job, engine) = (Arc::clone(&job), Arc::clone(&engine));
                    tokio::spawn(async move { job.episode(&engine, episode, round).await })
                };
                let handles: Vec<_> = (0..episodes).map(run).collect();
                for handle in handles {
                    handle.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(())
            })?;
            seconds.push(begin.elapsed().as_secs_f64());
        }
        // The first round touches memory for the first time.
        let best = seconds[1..].iter().copied().fold(f64::INFINITY, f64::min);
        let generated = episodes * job.turns * job.new;
        println_json(text, generated as f64 / best, seconds[0] - best, &engine);
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "its output is what the program is for")]
fn println_json(job: &str, tokens_per_second: f64, first_extra_s: f64, engine: &Engine) {
    let stats = engine.stats();
    let shared = stats.cached_prompt_tokens as f64 / stats.prompt_tokens as f64;
    let row = serde_json::json!({
        "job": job,
        "tokens_per_second": tokens_per_second,
        "cached_prompt": shared,
        // On a GPU: what compiling and tuning kernels cost.
        "first_round_extra_s": first_extra_s,
    });
    println!("{row}");
}

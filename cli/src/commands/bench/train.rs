//! `forage bench train`: optimizer steps on recorded rollouts.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use forage_env::seed::Seed;
use forage_trainer::backward;
use forage_trainer::device::{DeviceSpec, wait};
use forage_trainer::grads::NamedGrads;
use forage_trainer::logprobs::{Scores, through_graph};
use forage_trainer::lora::{LoraConfig, Targets};
use forage_trainer::memory::{BatchSize, MemoryPlan, Workload, peak};
use forage_trainer::model::{Decoder, ModelConfig, RopeTables};
use forage_trainer::objective::{Algorithm, Recipe};
use forage_trainer::optim::{AdamW, AdamWConfig};
use forage_trainer::sample::read_groups;
use forage_trainer::sequence::{Sequence, cut, ids};
use forage_trainer::update::{Scored, TokenSums, loss, minibatches, score};
use forage_trainer::weights::{Checkpoint, Precision};
use forage_trainer::workers::Workers;

use super::counters::Counters;
use super::{Weights, open};
use crate::terminal::out;

/// Measures optimizer steps, one line of JSON per step. The objective is GRPO: advantages of the groups, clip 0.2 and 0.28,
/// token mean, `AdamW` at 1e-3 without warm-up.
#[derive(Args, Debug)]
pub(crate) struct Train {
    /// A checkpoint folder (of PEFT: the adapter in it is trained), or random:SHAPE, random:SHAPE:LAYERS.
    model: String,
    /// Rollouts as `forage train --rollouts` reads them.
    rollouts: PathBuf,
    /// Rank of a fresh adapter on every projection; 0 trains all weights.
    #[arg(long, default_value_t = 0)]
    rank: usize,
    /// How the weights are kept; those that learn are f32.
    #[arg(long, value_enum, default_value = "f32")]
    base: Weights,
    /// One graph of autodiff through the whole decoder in place of what the program does.
    #[arg(long)]
    graph: bool,
    #[arg(long, default_value = "cpu")]
    device: DeviceSpec,
    /// Processor threads; all by default.
    #[arg(long)]
    threads: Option<usize>,
    #[arg(long, default_value_t = 2048)]
    micro_batch_tokens: usize,
    #[arg(long, default_value_t = 1)]
    steps: usize,
    /// Folder that receives the weights after the last step.
    #[arg(long)]
    save: Option<PathBuf>,
    /// File of the stub driver's counters.
    #[arg(long, value_name = "FILE")]
    counters: Option<PathBuf>,
}

impl Train {
    pub(super) fn run(self) -> Result<()> {
        let mut checkpoint = open(&self.model, self.base, self.device)?;
        if self.rank > 0 && checkpoint.lora.is_none() {
            let config = LoraConfig {
                rank: self.rank,
                alpha: 2.0 * self.rank as f64,
                rank_stabilised: false,
                targets: Targets::AllLinear,
                base: self.model.clone(),
            };
            checkpoint.adapt(config, Seed::root(1))?;
        }
        ensure!(
            checkpoint.lora.is_some() || self.base == Weights::F32,
            "weights that learn are f32; give a --rank"
        );
        let recipe = Algorithm::default().recipe(1);
        let context = checkpoint.config.max_position_embeddings.min(32_768);
        let (scored, _) = score(
            read_groups(&self.rollouts, checkpoint.config.vocab_size, context)?,
            &recipe,
        );
        let step = minibatches(scored, 1, &recipe)
            .pop()
            .context("no group has a direction")?;
        let device = checkpoint.decoder.device();
        let threads = self
            .threads
            .unwrap_or(std::thread::available_parallelism()?.get());
        let longest = step
            .iter()
            .map(|row| row.sequence.ids.len())
            .max()
            .unwrap_or(0);
        let job = Job {
            rope: RopeTables::new(&checkpoint.config, longest, &device),
            context: longest,
            config: checkpoint.config.clone(),
            workers: Workers::for_model(threads, &checkpoint.config, &device),
            micro_batch: self.micro_batch_tokens,
            graph: self.graph,
            recipe,
        };
        let files = std::fs::metadata(Path::new(&self.model).join("model.safetensors"))
            .map_or(0, |file| file.len());
        let estimated = estimate(&checkpoint, self.base.into(), &step, &job, files);
        let config = AdamWConfig {
            learning_rate: 1e-3,
            warmup_steps: 0,
            ..AdamWConfig::default()
        };
        let mut optimizer = AdamW::new(config);
        let mut counters = Counters::new(self.counters);
        for _ in 0..self.steps {
            counters.since(&checkpoint)?;
            let start = Instant::now();
            let (gradients, sums) = job.run(&checkpoint.decoder, &step);
            let norm = gradients.global_norm();
            optimizer.apply(&mut checkpoint.decoder, &checkpoint.config, gradients, norm);
            wait(&device)?;
            let line = serde_json::json!({
                "seconds": start.elapsed().as_secs_f64(),
                "tokens": step.iter().map(|row| row.sequence.ids.len()).sum::<usize>(),
                "loss": sums.loss,
                "grad_norm": norm,
                "peak_mib": peak().map(|bytes| bytes >> 20),
                "estimate_mib": estimated >> 20,
                "micro_batches": job.batches(&step).len(),
                "counters": counters.since(&checkpoint)?,
            });
            out(&line.to_string());
        }
        if let Some(folder) = &self.save {
            match checkpoint.lora {
                Some(_) => checkpoint.save_adapter(folder)?,
                None => checkpoint.save(folder)?,
            }
        }
        Ok(())
    }
}

struct Job {
    config: ModelConfig,
    rope: RopeTables,
    context: usize,
    workers: Workers,
    micro_batch: usize,
    graph: bool,
    recipe: Recipe,
}

impl Job {
    /// Rows of each micro-batch.
    fn batches(&self, step: &[Scored]) -> Vec<Vec<usize>> {
        cut(&ids(step.iter().map(|row| &row.sequence)), self.micro_batch)
    }

    fn run(&self, decoder: &Decoder, step: &[Scored]) -> (NamedGrads, TokenSums) {
        let batches = self.batches(step);
        let (gradients, parts) = self.workers.gradients(batches.len(), |index| {
            let rows: Vec<&Scored> = batches[index].iter().map(|&row| &step[row]).collect();
            let sequences: Vec<&Sequence> = rows.iter().map(|row| &row.sequence).collect();
            let loss = |scores: &Scores| loss(&rows, &self.recipe, scores, None);
            if self.graph {
                return through_graph(decoder, &self.config, &self.rope, &sequences, 1.0, loss);
            }
            backward::gradients(decoder, &self.config, &self.rope, &sequences, 1.0, loss)
        });
        let mut sums = TokenSums::default();
        for part in parts {
            sums += part;
        }
        (gradients, sums)
    }
}

/// What the program would say before such a run.
fn estimate(
    checkpoint: &Checkpoint,
    base: Precision,
    step: &[Scored],
    job: &Job,
    file_bytes: u64,
) -> u64 {
    let batches = job.batches(step);
    let mut work = Workload::default();
    work.grow(batches.iter().map(|batch| {
        let sequences: Vec<&Sequence> = batch.iter().map(|&row| &step[row].sequence).collect();
        BatchSize::of(&sequences)
    }));
    let plan = MemoryPlan {
        model: &checkpoint.config,
        base,
        adapter: checkpoint.lora.as_ref(),
        reference: false,
        file_bytes,
        context: job.context,
        work,
        workers: job.workers.at_a_time(),
        engine: None,
    };
    plan.estimate().peak()
}

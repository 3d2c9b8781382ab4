//! `forage bench train`: optimizer steps on recorded rollouts.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;
use forage_contracts::seed::Seed;
use forage_trainer::device::DeviceSpec;
use forage_trainer::memory::peak;
use forage_trainer::{LoraConfig, MeasuredStep, Targets};

use super::counters::Counters;
use super::{Weights, open};
use crate::commands::export::check_absent;
use crate::terminal::out;

/// Measures optimizer steps, one line of JSON per step.
///
/// The objective is GRPO: advantages of the groups, clip 0.2 and 0.28, token mean, `AdamW` at 1e-3 without warm-up.
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
    /// Products and activations are in bf16.
    #[arg(long)]
    bf16: bool,
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
        if let Some(folder) = &self.save {
            check_absent(folder)?;
        }
        let mut checkpoint = open(&self.model, self.base, self.device)?;
        if self.rank > 0 && checkpoint.lora.is_none() {
            let config = LoraConfig {
                rank: self.rank,
                alpha: 2.0 * self.rank as f64,
                rank_stabilised: false,
                dropout: 0.0,
                targets: Targets::AllLinear,
                base: self.model.clone(),
            };
            checkpoint.adapt(config, Seed::root(1))?;
        }
        ensure!(
            checkpoint.lora.is_some() || self.base == Weights::F32,
            "weights that learn are f32; give a --rank"
        );
        let threads = self
            .threads
            .unwrap_or(std::thread::available_parallelism()?.get());
        let budget = self.micro_batch_tokens;
        let base = self.base.into();
        let (rollouts, bf16, graph) = (&self.rollouts, self.bf16, self.graph);
        let mut step =
            MeasuredStep::read(rollouts, checkpoint, base, threads, budget, bf16, graph)?;
        let files = std::fs::metadata(Path::new(&self.model).join("model.safetensors"))
            .map_or(0, |file| file.len());
        let estimated = step.estimate(files);
        let mut counters = Counters::new(self.counters);
        for _ in 0..self.steps {
            counters.since(step.checkpoint())?;
            let start = Instant::now();
            let mut gradients = Ok(None);
            let taken = step.take(|step| gradients = counters.since(step.checkpoint()))?;
            step.checkpoint().decoder.wait()?;
            let line = serde_json::json!({
                "seconds": start.elapsed().as_secs_f64(),
                "tokens": step.tokens(),
                "loss": taken.loss,
                "grad_norm": taken.grad_norm,
                "peak_mib": peak().map(|bytes| bytes >> 20),
                "estimate_mib": estimated >> 20,
                "micro_batches": step.micro_batches(),
                "gradients": gradients?,
                "update": counters.since(step.checkpoint())?,
            });
            out(&line.to_string());
        }
        if let Some(folder) = &self.save {
            let checkpoint = step.checkpoint();
            match checkpoint.lora {
                Some(_) => checkpoint.save_adapter(folder)?,
                None => checkpoint.save(folder)?,
            }
        }
        Ok(())
    }
}

//! `forage sft`: supervised fine-tuning on demonstrations from a file.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use forage_lab::{LoraSection, Resolved, SftOptions, sft};
use forage_trainer::SftConfig;
use forage_trainer::device::DeviceSpec;

use crate::progress::{Watch, continued};
use crate::terminal::{hint, out, word};

/// Fine-tunes a policy on demonstrations.
///
/// Demonstrations are conversations, texts or recorded rollouts as JSON lines (see docs/training.md). Each step minimises the mean cross-entropy of the tokens that were to be written. The learning rate rises over 3 % of the
/// steps and falls along half a cosine. The folder holds settings, metrics, checkpoints and, at the end, the policy as a
/// Hugging Face folder, or as a PEFT folder where an adapter was trained.
#[derive(Args, Debug)]
pub(crate) struct Sft {
    /// File of demonstrations.
    demonstrations: PathBuf,
    /// The policy to start from: a checkpoint folder, a name on the hub, or builtin:quickstart.
    #[arg(long)]
    policy: String,
    /// Run folder.
    #[arg(long)]
    out: PathBuf,
    /// Passes over the demonstrations.
    #[arg(long, default_value_t = 1)]
    epochs: u64,
    /// Demonstrations per optimizer step.
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Learning rate after warm-up.
    #[arg(long, default_value_t = 1e-5)]
    learning_rate: f64,
    /// Trains a fresh low-rank adapter of this inner width in place of the weights.
    #[arg(long, requires = "lora_alpha")]
    lora_rank: Option<usize>,
    /// The adapter's change is scaled by this over its width.
    #[arg(long, requires = "lora_rank")]
    lora_alpha: Option<f64>,
    /// Share of the numbers that the adapter reads which are dropped while it learns.
    #[arg(
        long,
        requires = "lora_rank",
        default_value_t = 0.0,
        value_name = "SHARE"
    )]
    lora_dropout: f64,
    /// Leaves out recorded rollouts that earned less.
    #[arg(long, allow_negative_numbers = true)]
    min_reward: Option<f32>,
    /// Leaves out demonstrations longer than the context, instead of failing at them.
    #[arg(long)]
    skip_long: bool,
    /// Most tokens of a demonstration; by default what the model was made for.
    #[arg(long)]
    context: Option<usize>,
    /// Share of the demonstrations that is held out, to measure on.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    validation: f64,
    /// Steps between losses of the held-out share.
    #[arg(long, default_value_t = 50)]
    validate_every: u64,
    /// Steps between rows with the nuclear norm and effective rank of the gradients of attention, layer by layer; 0 for none.
    #[arg(long, default_value_t = 0)]
    gradient_spectra_every: u64,
    /// Steps between checkpoints.
    #[arg(long, default_value_t = 200)]
    checkpoint_every: u64,
    /// Most tokens per forward and backward pass: memory, not meaning.
    #[arg(long, default_value_t = 2048)]
    micro_batch_tokens: usize,
    /// Decides the order of the demonstrations, the held-out share and the adapter's start.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compute device: cpu, cuda:0, ...
    #[arg(long, default_value = "cpu")]
    device: DeviceSpec,
    /// Continue from the newest checkpoint in the folder.
    #[arg(long)]
    resume: bool,
    /// Print what was trained as JSON.
    #[arg(long)]
    json: bool,
}

/// Checkpoints kept.
const KEEP: usize = 2;

impl Sft {
    pub(crate) fn run(self) -> Result<()> {
        let lora = self.lora_rank.zip(self.lora_alpha);
        let options = SftOptions {
            demonstrations: self.demonstrations,
            policy: self.policy,
            folder: self.out,
            learning: SftConfig {
                epochs: self.epochs,
                batch: self.batch,
                learning_rate: self.learning_rate,
                micro_batch_tokens: self.micro_batch_tokens,
                validate_every: self.validate_every,
                gradient_spectra_every: self.gradient_spectra_every,
                checkpoint_every: self.checkpoint_every,
                keep_checkpoints: KEEP,
            },
            lora: lora.map(|(rank, alpha)| LoraSection {
                rank,
                alpha,
                rank_stabilised: false,
                dropout: self.lora_dropout,
                targets: None,
            }),
            min_reward: self.min_reward,
            skip_long: self.skip_long,
            context: self.context,
            validation: self.validation,
            seed: self.seed,
            device: self.device,
            threads: Resolved::all_threads(),
            resume: self.resume,
        };
        let tuned = sft(&options, &Watch::stoppable()?).map_err(continued)?;
        if self.json {
            out(&serde_json::to_string(&tuned)?);
        } else {
            out(&format!("trained policy in {}", tuned.policy.display()));
            if let Some(memory) = &tuned.memory {
                out(memory);
            }
        }
        hint(&format!(
            "next: forage runs report {}; forage eval CONFIG --policy {}",
            word(&options.folder),
            word(&tuned.policy)
        ));
        Ok(())
    }
}

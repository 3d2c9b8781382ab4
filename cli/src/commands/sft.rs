//! `forage sft`: supervised fine-tuning on demonstrations from a file.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use forage_env::seed::Seed;
use forage_trainer::demonstrations::{Choice, Demonstrations, read_demonstrations};
use forage_trainer::device::DeviceSpec;
use forage_trainer::memory::{MemoryEstimate, MemoryPlan, Workload};
use forage_trainer::run::{Control, RunPlace};
use forage_trainer::sft_run::{Lessons, SftConfig, run_sft};
use forage_trainer::weights::{Checkpoint, Precision};
use forage_trainer::workers::Workers;
use serde_json::json;

use super::out;
use super::train::{check_folder, keep_policy};
use crate::config::{BadConfig, LoraSection, RunConfig};
use crate::memory;
use crate::progress::{Progress, line, stop_on_interrupt};
use crate::setup;

/// Teaches a policy demonstrations: conversations, texts or recorded rollouts as JSON lines (see docs/training.md).
///
/// Each step minimises the mean cross-entropy of the tokens that were to be written. The learning rate rises over 3 % of the
/// steps and falls along half a cosine. The folder holds settings, metrics, checkpoints and, at the end, the policy as a
/// Hugging Face folder, or as a PEFT folder where an adapter was trained.
#[derive(Args, Debug)]
pub(crate) struct Sft {
    /// File of demonstrations.
    demonstrations: PathBuf,
    /// Where the policy starts: a checkpoint folder, a name on the hub, or builtin:quickstart.
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
}

/// Checkpoints kept.
const KEEP: usize = 2;

impl Sft {
    pub(crate) fn run(self) -> Result<()> {
        let config = self.config();
        config.check().map_err(|fault| anyhow!(BadConfig(format!("{fault}; see forage sft --help"))))?;
        check_folder(&self.out, self.resume)?;
        let start = self.start()?;
        let context = start.config.max_position_embeddings;
        let context = self.context.map_or(context, |asked| asked.min(context));
        let choice = Choice { context, skip_long: self.skip_long, min_reward: self.min_reward };
        let found = read_demonstrations(&self.demonstrations, &start, &choice)?;
        let said = describe(&found);
        let lessons = Lessons::split(found.sequences, self.validation, Seed::root(self.seed))
            .map_err(|fault| anyhow!(BadConfig(format!("--validation: {fault}"))))?;
        let place = RunPlace {
            folder: self.out.clone(),
            seed: self.seed,
            config_digest: self.digest(&config)?,
            resume: self.resume,
        };
        self.keep_settings(&config)?;
        let progress = Progress::new();
        progress.say(&said);
        let told = self.memory(&start, &lessons);
        progress.say(&memory::check(&told, self.device)?);
        let stop = stop_on_interrupt()?;
        let mut bar = progress.bar("sft", config.steps(lessons.train.len()));
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = Workers::for_model(threads, &start.config, &start.decoder.device());
        let trained = run_sft(start, &lessons, &config, &place, workers, |row| {
            bar.set(row.step() + 1, &line(row));
            if stop.load(Ordering::SeqCst) { Control::Stop } else { Control::Continue }
        })?;
        keep_policy(&trained, &self.out)?;
        if let Some(outcome) = memory::outcome(&told, None) {
            out(&outcome);
        }
        Ok(())
    }

    /// What the run takes: nothing samples.
    fn memory(&self, start: &Checkpoint, lessons: &Lessons) -> MemoryEstimate {
        let longest = lessons.longest();
        let (batch, micro_batches) = memory::largest_batch(self.batch, longest, self.micro_batch_tokens);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let plan = MemoryPlan {
            model: &start.config,
            base: Precision::Full,
            adapter: start.lora.as_ref(),
            reference: false,
            file_bytes: 0,
            context: longest,
            work: Workload { batch, micro_batches, played_tokens: 0 },
            workers: Workers::micro_batches_at_a_time(threads, &start.config),
            engine: None,
        };
        plan.estimate()
    }

    fn config(&self) -> SftConfig {
        SftConfig {
            epochs: self.epochs,
            batch: self.batch,
            learning_rate: self.learning_rate,
            micro_batch_tokens: self.micro_batch_tokens,
            validate_every: self.validate_every,
            checkpoint_every: self.checkpoint_every,
            keep_checkpoints: KEEP,
        }
    }

    fn lora(&self) -> Option<LoraSection> {
        let (rank, alpha) = (self.lora_rank?, self.lora_alpha?);
        Some(LoraSection { rank, alpha, rank_stabilised: false, targets: None })
    }

    fn start(&self) -> Result<Checkpoint> {
        let lora = self.lora();
        if let Some(lora) = &lora {
            lora.check().with_context(|| BadConfig("--lora-rank and --lora-alpha".to_owned()))?;
        }
        let mut settings = RunConfig::for_evaluation("search-r1");
        settings.device = self.device;
        let mut start = setup::load_policy(&self.policy, &settings)?;
        if let Some(lora) = lora {
            if start.lora.is_some() {
                let message = format!("--lora-rank: the policy {} is an adapter already", self.policy);
                return Err(anyhow!("leave the adapter's flags out to continue it").context(BadConfig(message)));
            }
            start.adapt(lora.adapter(&self.policy), Seed::root(self.seed).child("adapter", &[]))?;
        }
        Ok(start)
    }

    /// Everything that shapes the run besides the demonstrations.
    fn settings(&self, config: &SftConfig) -> serde_json::Value {
        json!({
            "demonstrations": self.demonstrations,
            "policy": self.policy,
            "seed": self.seed,
            "device": self.device,
            "lora": self.lora(),
            "min_reward": self.min_reward,
            "skip_long": self.skip_long,
            "context": self.context,
            "validation": self.validation,
            "learning": config,
        })
    }

    /// Digest of what shapes the run; how often it saves and where its file lies may change between sessions.
    fn digest(&self, config: &SftConfig) -> Result<String> {
        let mut settings = self.settings(&SftConfig { checkpoint_every: 0, ..*config });
        settings["demonstrations"] = serde_json::Value::Null;
        let mut hasher = blake3::Hasher::new();
        hasher.update(settings.to_string().as_bytes());
        let path: &Path = &self.demonstrations;
        let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        hasher.update_reader(file)?;
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// The record of how the run was started; a resumed one keeps it.
    fn keep_settings(&self, config: &SftConfig) -> Result<()> {
        let cannot = || format!("cannot write into {}", self.out.display());
        std::fs::create_dir_all(&self.out).with_context(cannot)?;
        if self.resume {
            return Ok(());
        }
        let text = format!("{:#}\n", self.settings(config));
        std::fs::write(self.out.join("sft.json"), text).with_context(cannot)
    }
}

fn describe(found: &Demonstrations) -> String {
    let Demonstrations { sequences, too_long, low_reward, faults } = found;
    let tokens: usize = sequences.iter().map(|sequence| sequence.targets.len()).sum();
    format!(
        "{} demonstrations with {tokens} tokens to learn; left out: {too_long} too long, {low_reward} of too little reward, \
         {faults} ended by faults",
        sequences.len()
    )
}

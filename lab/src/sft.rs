//! Supervised fine-tuning on demonstrations from a file.

use std::path::PathBuf;

use forage_contracts::seed::Seed;
use forage_trainer::device::DeviceSpec;
use forage_trainer::memory::{MemoryPlan, Workload};
use forage_trainer::run::RunPlace;
use forage_trainer::{
    BatchSize, Checkpoint, DemonstrationChoice, Demonstrations, Lessons, Precision, SftConfig,
    Workers, run_sft,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::{LoraSection, version};
use crate::error::{Context, Result, RunError};
use crate::grpo::{control, first_of_kind};
use crate::layout::RunLayout;
use crate::memory;
use crate::observer::{Observer, line};
use crate::policy::{adapt, hash_file, open_policy, save};
use crate::resumed::explained;
use crate::train::Trained;

/// The policy, the demonstrations and the settings of a run. As JSON it is the record of how the run was started.
#[derive(Clone, Debug, Serialize)]
pub struct SftOptions {
    /// File of demonstrations.
    pub demonstrations: PathBuf,
    /// The policy it starts from.
    pub policy: String,
    /// Decides the order of the demonstrations, the held-out share and the adapter's start.
    pub seed: u64,
    /// The compute device.
    pub device: DeviceSpec,
    /// Processor threads: time, not meaning.
    #[serde(skip)]
    pub threads: usize,
    /// Trains a fresh adapter in place of the weights.
    pub lora: Option<LoraSection>,
    /// Leaves out recorded rollouts that earned less.
    pub min_reward: Option<f32>,
    /// Leaves out demonstrations longer than the context, instead of failing at them.
    pub skip_long: bool,
    /// Most tokens of a demonstration; by default what the model was made for.
    pub context: Option<usize>,
    /// Share of the demonstrations that is held out.
    pub validation: f64,
    /// Passes, batches, rates and checkpoints.
    pub learning: SftConfig,
    /// The run's folder.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Continues from the newest checkpoint in the folder.
    #[serde(skip)]
    pub resume: bool,
}

/// Teaches a policy demonstrations. Blocks.
///
/// # Errors
/// When an option is out of range, the folder is taken or has nothing to resume, a file cannot be used, memory does not suffice,
/// or the run fails or is stopped on the way.
pub fn sft(options: &SftOptions, observer: &dyn Observer) -> Result<Trained> {
    let config = &options.learning;
    config
        .check()
        .map_err(|fault| RunError::config(format!("{fault}; see forage sft --help")))?;
    let layout = RunLayout::new(&options.folder);
    layout.check(options.resume)?;
    let start = options.start()?;
    let context = start.config.max_position_embeddings;
    let choice = DemonstrationChoice {
        context: options.context.map_or(context, |asked| asked.min(context)),
        skip_long: options.skip_long,
        min_reward: options.min_reward,
    };
    let found = Demonstrations::read(&options.demonstrations, &start, &choice)?;
    observer.say(&describe(&found));
    let seed = Seed::root(options.seed);
    let lessons = Lessons::split(found.sequences, options.validation, seed)
        .map_err(|fault| RunError::config(format!("--validation: {fault}")))?;
    let place = RunPlace {
        folder: options.folder.clone(),
        seed: options.seed,
        config_digest: options.digest()?,
        resume: options.resume,
        ranks: None,
    };
    let _lock = layout.claim(options.resume)?;
    let mut settings = json!(options);
    settings["stamp"] = json!({ "version": version() });
    let settings = format!("{settings:#}\n");
    // Without a checkpoint the run begins anew, with these.
    let keep = options.resume && layout.has_checkpoint();
    layout.record(&layout.sft_settings(), &settings, keep)?;
    if keep && let Some(warning) = layout.lost_rows()? {
        observer.warn(&warning);
    }
    let plan = options.plan(&start, &lessons);
    let plan = plan.on(&start.decoder.device(), 1, 1);
    let (estimate, kept) = (
        memory::estimate(&plan, options.device),
        plan.work.kept_bytes,
    );
    observer.say(&memory::check(&estimate, 1)?);
    let total = config.steps(lessons.train.len());
    let workers =
        Workers::for_model(options.threads, &start.config, &start.decoder.device()).keeping(kept);
    let trained = run_sft(start, &lessons, config, &place, workers, |row| {
        observer.progress("sft", row.step() + 1, total, &line(row));
        control(observer.is_stopped())
    })
    .map_err(|error| {
        let record = layout.sft_settings();
        explained(error, &record, || {
            let before = std::fs::read_to_string(&record).ok()?;
            let before: Value = serde_json::from_str(&before).ok()?;
            let before = Some(before).filter(|before| before["learning"].is_object())?;
            Some([shape(before), shape(json!(options))])
        })
    })?;
    save(&trained, &layout.policy())?;
    Ok(Trained {
        policy: layout.policy(),
        twins: Vec::new(),
        forked: None,
        memory: memory::outcome(&estimate, None, 1),
    })
}

impl SftOptions {
    /// The plan that the estimate of the run's memory is made from. No engine samples.
    fn plan<'a>(&self, start: &'a Checkpoint, lessons: &Lessons) -> MemoryPlan<'a> {
        let longest = lessons.longest();
        let (batch, micro_batches) = BatchSize::largest(
            self.learning.batch,
            longest,
            self.learning.micro_batch_tokens,
        );
        MemoryPlan {
            model: &start.config,
            base: Precision::Full,
            adapter: start.lora.as_ref(),
            reference: false,
            file_bytes: 0,
            context: longest,
            work: Workload {
                batch,
                micro_batches,
                ..Workload::default()
            },
            workers: Workers::micro_batches_at_a_time(self.threads, &start.config),
            engine: None,
            versions: 1,
            card_bytes: None,
            in_bf16: false,
            moments_in_8_bits: false,
            ranks: 1,
            sharded: false,
            updates: 1,
            critic: false,
            programs: 0,
        }
    }

    fn start(&self) -> Result<Checkpoint> {
        if let Some(lora) = &self.lora {
            lora.check().in_config("--lora-rank and --lora-alpha")?;
        }
        let mut start = open_policy(&self.policy, Precision::Full, &self.device)?;
        if let Some(lora) = &self.lora {
            if start.lora.is_some() {
                return Err(RunError::config_because(
                    format!(
                        "--lora-rank: the policy {} is an adapter already",
                        self.policy
                    ),
                    "leave the adapter's flags out to continue it",
                ));
            }
            adapt(&mut start, lora, &self.policy, self.seed)?;
        }
        Ok(start)
    }

    /// Digest of what shapes the run; how often it saves and where its file lies may change when it is resumed.
    fn digest(&self) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(shape(json!(self)).to_string().as_bytes());
        hash_file(&mut hasher, &self.demonstrations)?;
        Ok(hasher.finalize().to_hex().to_string())
    }
}

/// The settings that a resumed run must keep.
fn shape(mut settings: Value) -> Value {
    settings["learning"]["checkpoint_every"] = 0.into();
    settings["demonstrations"] = Value::Null;
    if let Ok(device) = DeviceSpec::deserialize(&settings["device"]) {
        settings["device"] = json!(first_of_kind(device));
    }
    if let Some(settings) = settings.as_object_mut() {
        settings.remove("stamp");
    }
    settings
}

fn describe(found: &Demonstrations) -> String {
    let Demonstrations {
        sequences,
        too_long,
        low_reward,
        faults,
    } = found;
    let tokens: usize = sequences
        .iter()
        .map(|sequence| sequence.targets.len())
        .sum();
    format!(
        "{} demonstrations with {tokens} tokens to learn; left out: {too_long} too long, {low_reward} of too little reward, \
         {faults} ended by faults",
        sequences.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_card_of_a_kind_may_go_on() {
        let of = |device: &str| shape(json!({ "device": device, "learning": {} }));
        assert_eq!(of("cuda:1"), of("cuda:0"));
        assert_ne!(of("cuda:1"), of("cpu"));
    }
}

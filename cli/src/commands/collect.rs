//! `forage collect`: rejection sampling, demonstrations from the policy's own best episodes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use forage_env::policy::Sampling;
use forage_env::rollout::{EpisodeWriter, InfraBudget, Job, Keep, Rejection, RejectionCounts, Rollout};
use forage_env::seed::Seed;
use forage_env::tokenizer::Tokenizer;
use forage_trainer::device::DeviceSpec;
use forage_trainer::run::group_jobs;

use super::out;
use crate::config::{BadConfig, RunConfig};
use crate::lint;
use crate::pipeline::{engine, runtime};
use crate::progress::{Progress, stop_on_interrupt};
use crate::retrieval::recorded;
use crate::setup::{self, Tasks};

/// Plays the training questions of a config several times each and keeps the episodes worth imitating, for `forage sft`.
///
/// The file has a record of an episode per line and appears when it is complete. Episodes that a fault of ours ended are
/// counted and never kept; of episodes of the same question and the same text, white space aside, one is kept.
#[derive(Args, Debug)]
pub(crate) struct Collect {
    /// Config file whose policy, environment, rewards and training questions are used.
    config: PathBuf,
    /// Episodes per question.
    #[arg(long)]
    samples: usize,
    /// File to write.
    #[arg(long)]
    out: PathBuf,
    /// Of a question: the best episode (among equals the shortest, then the first), or all that earned enough.
    #[arg(long, value_enum, default_value_t = Kept::Best)]
    keep: Kept,
    /// Least reward of an episode that is kept.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    min_reward: f32,
    /// Softmax temperature; the config's of training by default.
    #[arg(long)]
    temperature: Option<f32>,
    /// Most questions to play; all of the config's training questions by default.
    #[arg(long)]
    questions: Option<usize>,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Keep what the retriever answers in this file, for `forage replay --tools`.
    #[arg(long, value_name = "FILE")]
    record_tools: Option<PathBuf>,
    /// Compute device instead of the config's: cpu, cuda:0, ...
    #[arg(long)]
    device: Option<DeviceSpec>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kept {
    Best,
    AllCorrect,
}

/// Batches of the engine that are in flight together: the last episodes of a batch leave room for the next one's first.
const BATCHES: usize = 4;

impl Collect {
    pub(crate) fn run(self) -> Result<()> {
        let mut config = RunConfig::read(&self.config, &self.overrides)?;
        config.use_device(self.device)?;
        lint::warn(&config);
        let temperature = self.temperature.unwrap_or(config.grpo.update.temperature);
        let sampling = Sampling { temperature, ..Sampling::FULL };
        sampling.check().map_err(anyhow::Error::msg).with_context(|| BadConfig("--temperature".to_owned()))?;
        if self.samples == 0 || self.questions == Some(0) || !self.min_reward.is_finite() {
            bail!(BadConfig("--samples and --questions must be at least 1, --min-reward a number".to_owned()));
        }
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let mut data = setup::load_data(&config, scratch.path())?;
        data.retriever = recorded(data.retriever, self.record_tools.as_deref())?;
        let tasks: Tasks = data.train.iter().take(self.questions.unwrap_or(usize::MAX)).cloned().collect();
        let checkpoint = setup::checkpoint(&config)?;
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(checkpoint.tokenizer.clone());
        let window = Some(setup::window(&config, &checkpoint.config));
        let factory = setup::environment(&config.environment, data.resources(Arc::clone(&tokenizer)), window)?;
        let presentation = setup::presentation(&config.policy, &checkpoint, factory.spec())?;
        let rollout = Rollout {
            policy: engine(&checkpoint, &config, config.threads()),
            factory,
            tokenizer,
            rewards: setup::rewards(&config.environment.id, &config.reward, config.seed)?,
            sampling,
            presentation,
        };
        let jobs = group_jobs(&tasks, self.samples, Seed::root(config.seed).child("collect", &[]));
        let counts = self.play(&rollout, &jobs, config.engine.sequences)?;
        out(&describe(&counts));
        out(&format!("demonstrations in {}", self.out.display()));
        Ok(())
    }

    /// Plays the jobs some questions at a time and writes what is kept.
    fn play(&self, rollout: &Rollout, jobs: &[Job], sequences: usize) -> Result<RejectionCounts> {
        let mut writer = EpisodeWriter::create(&self.out)?;
        let keep = match self.keep {
            Kept::Best => Keep::Best,
            Kept::AllCorrect => Keep::All,
        };
        let mut rejection = Rejection::new(keep, self.min_reward);
        let stop = stop_on_interrupt()?;
        let mut bar = Progress::new().bar("collect", (jobs.len() / self.samples) as u64);
        let together = (BATCHES * sequences).div_ceil(self.samples) * self.samples;
        for batch in jobs.chunks(together) {
            let episodes = runtime()?.block_on(rollout.run(batch.to_vec()));
            InfraBudget::default().check(&episodes).context("too many episodes were lost to infrastructure faults")?;
            let mut episodes = episodes.into_iter();
            while episodes.len() > 0 {
                for episode in rejection.choose(episodes.by_ref().take(self.samples).collect()) {
                    writer.write(episode)?;
                }
            }
            let counts = rejection.counts();
            bar.set(counts.questions as u64, &format!("{} episodes kept", counts.kept));
            if stop.load(Ordering::SeqCst) {
                writer.discard()?;
                bail!("interrupted; {} was not written; start again", self.out.display());
            }
        }
        let counts = rejection.counts();
        if counts.kept == 0 {
            writer.discard()?;
            let Self { min_reward, .. } = self;
            bail!("none of {} episodes earned {min_reward}; lower --min-reward or raise --samples", counts.episodes);
        }
        writer.finish()?;
        Ok(counts)
    }
}

fn describe(counts: &RejectionCounts) -> String {
    let RejectionCounts { questions, episodes, kept, answered, duplicates, faults } = counts;
    format!(
        "{questions} questions, {episodes} episodes: kept {kept} of {answered} questions, dropped {duplicates} duplicates, \
         {faults} infrastructure faults"
    )
}

//! `forage train`: one GRPO run from a config.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_trainer::checkpoint::fork;
use forage_trainer::device::DeviceSpec;
use forage_trainer::weights::Checkpoint;

use super::{note, out};
use crate::config::RunConfig;
use crate::lint;
use crate::memory::{self, Start};
use crate::pipeline::{Experience, Training, train};
use crate::progress::{Progress, stop_on_interrupt};
use crate::setup;

/// Trains a policy with GRPO. The run folder holds the resolved config, metrics, rollouts, checkpoints and, at the end,
/// the policy as a Hugging Face folder, or as a PEFT folder where an adapter was trained.
#[derive(Args, Debug)]
pub(crate) struct Train {
    /// Config file; see configs/.
    config: PathBuf,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Run folder; runs/NAME-OF-CONFIG by default.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Continue from the newest checkpoint in the run folder.
    #[arg(long)]
    resume: bool,
    /// Learn from recorded rollouts instead of playing: a file of JSON lines (see docs/training.md).
    #[arg(long, value_name = "FILE")]
    rollouts: Option<PathBuf>,
    /// Begin where another run's newest checkpoint stands, weights, moments and place in the data, under this config.
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    from: Option<PathBuf>,
    /// Print the resolved config, the arithmetic of a step and an estimate of the memory, and stop.
    #[arg(long)]
    dry_run: bool,
    /// Compute device instead of the config's: cpu, cuda:0, ...
    #[arg(long)]
    device: Option<DeviceSpec>,
}

impl Train {
    pub(crate) fn run(self) -> Result<()> {
        let mut config = RunConfig::read(&self.config, &self.overrides)?;
        config.device = self.device.unwrap_or(config.device);
        let name = self.config.file_stem().context("the config has no file name")?;
        let folder = self.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(name));
        for warning in lint::warnings(&config) {
            note(&format!("warning: {warning}"));
        }
        if self.dry_run {
            return dry_run(&config, self.rollouts.as_deref());
        }
        check_folder(&folder, self.resume)?;
        let start = Start::of(&config, true)?;
        let told = start.as_ref().map(|start| memory::of_run(&config, start, self.rollouts.as_deref())).transpose()?;
        let said = told.as_ref().map(|told| memory::check(told, config.device)).transpose()?;
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        if !self.resume {
            // A resumed run keeps the record of how it was started.
            std::fs::write(folder.join("config.toml"), config.to_toml()?)
                .with_context(|| format!("cannot write into {}", folder.display()))?;
        }
        let progress = Progress::new();
        if let Some(said) = said {
            progress.say(&said);
        }
        let stop = stop_on_interrupt()?;
        let data;
        let experience = if let Some(file) = &self.rollouts {
            Experience::Recorded(file)
        } else {
            data = setup::load_data(&config.data, &config.retriever, &folder, config.seed)?;
            Experience::Data(&data)
        };
        let checkpoint = setup::checkpoint(&config)?;
        let reward = config.reward.clone();
        if let Some(other) = &self.from {
            let forked = fork(other, &folder, &setup::digest(&config, experience)?)?;
            out(&format!("forked {} after step {}", other.display(), forked));
        }
        let resume = self.resume || self.from.is_some();
        let training = Training { name: "train", folder: folder.clone(), reward, threads: config.threads(), resume };
        let trained = train(&training, &config, checkpoint, experience, &progress, &stop)?;
        keep_policy(&trained.policy, &folder)?;
        let then = start.map(|start| memory::of_work(&config, &start, trained.work));
        if let Some(outcome) = told.and_then(|told| memory::outcome(&told, then.as_ref())) {
            out(&outcome);
        }
        Ok(())
    }
}

/// Checks that a run's folder holds a run exactly where one is to be resumed.
pub(super) fn check_folder(folder: &Path, resume: bool) -> Result<()> {
    let used = folder.join("metrics.jsonl").exists() || folder.join("checkpoints").exists();
    if used && !resume {
        bail!("{} holds a run; give another --out, or --resume to continue it", folder.display());
    }
    if resume && !used {
        bail!("{} holds no run to resume; start it without --resume", folder.display());
    }
    Ok(())
}

/// Writes what a run has trained into its folder: the whole policy, or the adapter alone where there is one.
pub(super) fn keep_policy(trained: &Checkpoint, folder: &Path) -> Result<()> {
    let place = folder.join("policy");
    match trained.lora {
        Some(_) => trained.save_adapter(&place)?,
        None => trained.save(&place)?,
    }
    out(&format!("trained policy in {}", place.display()));
    Ok(())
}

fn dry_run(config: &RunConfig, rollouts: Option<&Path>) -> Result<()> {
    let questions = config.grpo.prompts_played();
    let episodes = questions * config.grpo.group_size;
    let again = match config.grpo.prompts_per_step - questions {
        0 => String::new(),
        groups => format!(", {groups} groups of earlier steps again"),
    };
    out(&config.to_toml()?);
    let updates = config.grpo.update.minibatches * config.grpo.update.epochs;
    out(&format!(
        "# {} steps of {} questions x {} episodes = {episodes} episodes and {updates} optimizer steps each{again}; {} episodes in all",
        config.grpo.steps,
        questions,
        config.grpo.group_size,
        episodes as u64 * config.grpo.steps,
    ));
    match Start::of(config, false)? {
        Some(start) => out(&memory::table(&memory::of_run(config, &start, rollouts)?)),
        None => out("# memory: not known before the policy is fetched"),
    }
    Ok(())
}

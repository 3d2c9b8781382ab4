//! `forage train`: one GRPO run from a config.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_env::registry;
use forage_trainer::checkpoint::fork;
use forage_trainer::device::DeviceSpec;
use forage_trainer::memory::Workload;
use forage_trainer::weights::Checkpoint;

use super::out;
use crate::config::RunConfig;
use crate::lint;
use crate::memory::{self, Start};
use crate::pipeline::{Experience, Training, train};
use crate::progress::{Progress, stop_on_interrupt};
use crate::retrieval::recorded;
use crate::setup::{self, Data};
use crate::twins::{self, Twin};

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
    /// Train spurious twins from the same start as well, one after the other, in OUT/twins/NAME: random, `format_only`, constant,
    /// inverse or majority rewards, shuffled or wrong labels; separated by commas. `forage eval --controls OUT` then says what
    /// is left of the gain.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["rollouts", "from", "record_tools"])]
    twins: Vec<Twin>,
    /// Print the resolved config, the arithmetic of a step and an estimate of the memory, and stop.
    #[arg(long)]
    dry_run: bool,
    /// Keep what the retriever answers in this file, for `forage replay --tools`.
    #[arg(long, value_name = "FILE", conflicts_with = "rollouts")]
    record_tools: Option<PathBuf>,
    /// Compute device instead of the config's: cpu, cuda:0, ...
    #[arg(long)]
    device: Option<DeviceSpec>,
}

impl Train {
    pub(crate) fn run(self) -> Result<()> {
        let mut config = RunConfig::read(&self.config, &self.overrides)?;
        config.use_device(self.device)?;
        let name = self.config.file_stem().context("the config has no file name")?;
        let folder = self.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(name));
        lint::warn(&config);
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
            write_config(&config, &folder)?;
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
            let mut loaded = setup::load_data(&config, &folder)?;
            loaded.retriever = recorded(loaded.retriever, self.record_tools.as_deref())?;
            if let Some(warning) = few_questions(loaded.train.len(), &config) {
                progress.say(&warning);
            }
            config.data.digests = Some(loaded.digests.clone());
            if !self.resume {
                write_config(&config, &folder)?;
            }
            data = loaded;
            Experience::Data(&data)
        };
        let twins = self.twins_of(&config)?;
        let start_policy = setup::checkpoint(&config)?;
        if let Some(other) = &self.from {
            let forked = fork(other, &folder, &setup::digest(&config, experience)?)?;
            out(&format!("forked {} after step {}", other.display(), forked));
        }
        let resume = self.resume || self.from.is_some();
        let place = Place { name: "train", folder: &folder, resume };
        let trained = learn(&place, &config, start_policy.clone(), experience, &progress, &stop)?;
        let then = start.map(|start| memory::of_work(&config, &start, trained));
        if let Some(outcome) = told.and_then(|told| memory::outcome(&told, then.as_ref())) {
            out(&outcome);
        }
        if let Experience::Data(data) = experience {
            for (twin, config) in twins {
                if stop.load(Ordering::SeqCst) {
                    bail!("interrupted before twin `{}`; --resume goes on", twin.name);
                }
                let folder = folder.join(twins::FOLDER).join(twin.name);
                let resume = self.resume && holds_run(&folder);
                std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
                write_config(&config, &folder)?;
                let train = setup::relabelled(&data.train, &config.data.labels, config.seed)?;
                let data = Data { train, ..data.clone() };
                let place = Place { name: twin.name, folder: &folder, resume };
                learn(&place, &config, start_policy.clone(), Experience::Data(&data), &progress, &stop)?;
            }
        }
        Ok(())
    }

    /// The runs beside the real one.
    fn twins_of(&self, config: &RunConfig) -> Result<Vec<(Twin, RunConfig)>> {
        if !self.twins.is_empty() && !config.data.labels.are_true() {
            bail!("--twins stand beside a run with true labels; remove data.labels");
        }
        let outcome = registry::find(&config.environment.id)?.outcome;
        let made = |&twin: &Twin| Ok((twin, twin.of(config, outcome).map_err(anyhow::Error::msg)?));
        self.twins.iter().map(made).collect()
    }
}

/// Where a run stands, and what it is called.
struct Place<'a> {
    name: &'a str,
    folder: &'a Path,
    resume: bool,
}

/// Trains and keeps the policy.
fn learn(
    place: &Place<'_>,
    config: &RunConfig,
    start: Checkpoint,
    experience: Experience<'_>,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<Workload> {
    let &Place { name, folder, resume } = place;
    let reward = config.reward.clone();
    let training = Training { name, folder: folder.to_owned(), reward, threads: config.threads(), resume };
    let trained = train(&training, config, start, experience, progress, stop)?;
    keep_policy(&trained.policy, folder)?;
    Ok(trained.work)
}

fn write_config(config: &RunConfig, folder: &Path) -> Result<()> {
    std::fs::write(folder.join("config.toml"), config.to_toml()?)
        .with_context(|| format!("cannot write into {}", folder.display()))
}

/// Steps that a run should be able to take before it meets a question again.
const STEPS_PER_PASS: usize = 10;

/// What to say of a run that meets its questions so often that it may learn them by heart.
fn few_questions(questions: usize, config: &RunConfig) -> Option<String> {
    let groups = config.grpo.prompts_per_step;
    (questions < STEPS_PER_PASS * groups).then(|| {
        format!(
            "warning: {questions} training questions for {groups} groups a step: each comes again every {:.1} steps, and a \
             policy may learn the answers by heart; use {} questions or more",
            questions as f64 / groups as f64,
            STEPS_PER_PASS * groups,
        )
    })
}

/// Checks that a run's folder holds a run exactly where one is to be resumed.
pub(super) fn check_folder(folder: &Path, resume: bool) -> Result<()> {
    let used = holds_run(folder);
    if used && !resume {
        bail!("{} holds a run; give another --out, or --resume to continue it", folder.display());
    }
    if resume && !used {
        bail!("{} holds no run to resume; start it without --resume", folder.display());
    }
    Ok(())
}

fn holds_run(folder: &Path) -> bool {
    folder.join("metrics.jsonl").exists() || folder.join("checkpoints").exists()
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
    // A file may hold fewer than are asked for: what it holds is known when the run starts.
    if let Some(warning) = few_questions(config.data.train_questions, config).filter(|_| rollouts.is_none()) {
        out(&format!("# {warning}"));
    }
    match Start::of(config, false)? {
        Some(start) => out(&memory::table(&memory::of_run(config, &start, rollouts)?)),
        None => out("# memory: not known before the policy is fetched"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_questions_are_warned_of() {
        let config = RunConfig::parse(include_str!("../../../configs/smoke.toml"), &[]).unwrap();
        let groups = config.grpo.prompts_per_step;
        assert_eq!(few_questions(10 * groups, &config), None);
        let warning = few_questions(3 * groups, &config).unwrap();
        assert!(warning.contains("comes again every 3.0 steps"), "{warning}");
        assert!(warning.contains(&format!("use {} questions", 10 * groups)), "{warning}");
    }
}

//! `forage train`: one GRPO run from a config.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use forage_lab::{RunError, RunLayout, TrainOptions, Trained, Twin, train};
use forage_trainer::device::DeviceSpec;

use crate::config::read;
use crate::environment::EnvironmentArgs;
use crate::progress::{Watch, continued};
use crate::ranks::{RankArgs, on_own_card};
use crate::terminal::{hint, note, out, word};

/// Trains a policy with GRPO.
///
/// The run folder holds the resolved config, metrics, rollouts, checkpoints and, at the end,
/// the policy as a Hugging Face folder, or as a PEFT folder where an adapter was trained.
#[derive(Args, Debug)]
pub(crate) struct Train {
    /// Config file, or the name of a recipe; `forage recipes list` has the names. With --resume and --out it may be left out: the run goes
    /// on with its own.
    #[arg(required_unless_present_all = ["resume", "out"])]
    config: Option<PathBuf>,
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
    /// Begin with another run's newest checkpoint (weights, moments and place in the data) under this config, whose grpo.steps count the
    /// steps of that run.
    #[arg(long, value_name = "RUN", conflicts_with = "resume")]
    from: Option<PathBuf>,
    /// Train spurious twins from the same start as well, one after the other, in OUT/twins/NAME: random, `format_only`, `any_search`, constant,
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
    /// Compute device instead of the config's: cpu, cuda:0, ...; several, as in cuda:0,cuda:1, train together, a rank on each (see
    /// docs/scale.md).
    #[arg(long, value_name = "DEVICES", value_delimiter = ',')]
    device: Vec<DeviceSpec>,
    /// Print what was trained as JSON.
    #[arg(long, conflicts_with = "dry_run")]
    json: bool,
    #[command(flatten)]
    environment: EnvironmentArgs,
    #[command(flatten)]
    ranks: RankArgs,
}

impl Train {
    pub(crate) fn run(mut self) -> Result<()> {
        let mut servers = self.environment.start(&mut self.overrides)?;
        servers.explain(self.train())
    }

    fn train(self) -> Result<()> {
        let (named, folder) = self.places()?;
        let mut devices = self.device.into_iter();
        let device = devices.next();
        let mut config = read(&named, &self.overrides, device)?;
        if device.is_none()
            && !self.dry_run
            && let Some(local) = self.ranks.local(variable)?
        {
            config = on_own_card(config, local)?;
        }
        let options = TrainOptions {
            folder,
            resume: self.resume,
            rollouts: self.rollouts,
            from: self.from,
            twins: self.twins,
            record_tools: self.record_tools,
            ranks: None,
            beside: devices.collect(),
        };
        if self.dry_run {
            let plan = config.plan(&options, self.ranks.size(variable)?)?;
            out(&plan);
            // In a file they would be overlooked.
            if !std::io::stdout().is_terminal() {
                let comments = plan.lines().filter_map(|line| line.strip_prefix("# "));
                let warnings = comments.filter(|line| line.starts_with("warning: "));
                warnings.for_each(note);
            }
            absent_devices(config.device, &options.beside);
            let missing = options.missing(&config);
            if !missing.is_empty() {
                let what = format!("the run would not start: {}", missing.join("; "));
                return Err(RunError::config(what).into());
            }
            if options.rollouts.is_none() {
                let fits = config.check_window().and_then(|()| config.check_room());
                let warning = fits.context("the run would not start: its episodes do not fit")?;
                if let Some(warning) = warning {
                    note(&warning);
                }
            }
            return Ok(());
        }
        let options = TrainOptions {
            ranks: self.ranks.resolve(variable)?,
            ..options
        };
        let trained = train(&config, &options, &Watch::stoppable()?).map_err(continued)?;
        if let Some(ranks) = options.ranks.as_ref().filter(|ranks| ranks.rank > 0) {
            hint(&format!(
                "rank {} is done; rank 0 keeps the policy",
                ranks.rank
            ));
            return Ok(());
        }
        if self.json {
            out(&serde_json::to_string(&trained)?);
        } else {
            tell(&trained, options.from.as_deref());
        }
        let (run, served) = (word(&options.folder), self.environment.again());
        hint(&format!(
            "next: forage runs report {run}; forage eval {} --policy {}{served}; forage eval --controls {run}{served} \
             (what a gain consists of, why episodes fail)",
            // What was trained with, --set included, and the address of a server that has ended.
            word(&RunLayout::new(&options.folder).config()),
            word(&trained.policy),
        ));
        Ok(())
    }

    /// The config, which is the run's own where none is named, and the folder of the run.
    fn places(&self) -> Result<(PathBuf, PathBuf)> {
        if let (Some(config), Some(folder)) = (&self.config, &self.out) {
            return Ok((config.clone(), folder.clone()));
        }
        if let Some(config) = &self.config {
            let name = config.file_stem().context("the config has no file name")?;
            return Ok((config.clone(), Path::new("runs").join(name)));
        }
        let folder = self
            .out
            .clone()
            .context("name a config, or --out with --resume")?;
        let config = RunLayout::new(&folder).config();
        if !config.exists() {
            let wrong = format!(
                "{} has no config.toml; name the config of the run",
                folder.display()
            );
            return Err(RunError::config(wrong).into());
        }
        Ok((config, folder))
    }
}

/// Says which devices of a run this build lacks, and which NVIDIA cards are not in this machine: the run may be meant for another one.
pub(super) fn absent_devices(first: DeviceSpec, beside: &[DeviceSpec]) -> bool {
    let mut any = false;
    for device in std::iter::once(first).chain(beside.iter().copied()) {
        let is_absent = !device.is_compiled_in()
            || matches!(device, DeviceSpec::Cuda(_)) && !DeviceSpec::found().contains(&device);
        any |= is_absent;
        if is_absent {
            note(&format!(
                "warning: {device} cannot be used here, where the run would not start; `forage doctor --device {device}` says why"
            ));
        }
    }
    any
}

/// Says what was trained, and from which run it was forked.
fn tell(trained: &Trained, from: Option<&Path>) {
    if let (Some(step), Some(other)) = (trained.forked, from) {
        out(&format!("forked {} after step {step}", other.display()));
    }
    out(&format!("trained policy in {}", trained.policy.display()));
    if let Some(memory) = &trained.memory {
        out(memory);
    }
    for policy in &trained.twins {
        out(&format!("trained policy in {}", policy.display()));
    }
}

/// A variable of the environment.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name)?.into_string().ok()
}

//! `forage quickstart`: from a generated world to a verdict.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_env::environment::Outcome;
use forage_env::episode::Episode;
use forage_env::registry;
use forage_eval::stats::Bootstrap;
use forage_eval::summary::EvalSummary;
use forage_eval::telemetry::{Alarm, Telemetry};
use forage_eval::verdict::{Detail, RunFacts, Verdict};
use forage_trainer::weights::Checkpoint;

use super::out;
use super::report::{self, TRAJECTORIES};
use crate::config::RunConfig;
use crate::pipeline::{Evaluated, Experience, Training, evaluate, from_scratch, train, write_episodes};
use crate::progress::{Progress, stop_on_interrupt};
use crate::run_folder::EVALUATION;
use crate::setup::{self, Data};
use crate::telemetry;

/// The whole job on this machine's processor: builds a world and its index, takes the warm-started tiny policy, trains it
/// with GRPO, trains a twin on random rewards from the same start, evaluates all three on held-out entities, and writes
/// verdict.json and report.html.
#[derive(Args, Debug)]
pub(crate) struct Quickstart {
    /// Run folder: created; must be empty or absent unless --resume is given.
    #[arg(long, default_value = "runs/quickstart")]
    out: PathBuf,
    /// Seed of the rollouts and the statistics, and of the world of the built-in config.
    #[arg(long)]
    seed: Option<u32>,
    /// Environment to learn in: search-r1 (configs/quickstart.toml) or code-search (configs/quickstart-code.toml).
    #[arg(long, default_value = "search-r1", conflicts_with = "config")]
    env: String,
    /// Config to start from instead of a built-in one.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Change a config value: key.path=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Train the starting policy here instead of taking the built-in one.
    #[arg(long)]
    from_scratch: bool,
    /// Continue an interrupted quickstart in the same folder.
    #[arg(long)]
    resume: bool,
}

/// The built-in config for an environment.
fn builtin(environment: &str) -> Result<&'static str> {
    registry::find(environment)?.quickstart.with_context(|| {
        format!("there is no built-in quickstart in `{environment}`; write a config and give --config")
    })
}

impl Quickstart {
    pub(crate) fn run(self) -> Result<()> {
        let mut config = self.config()?;
        prepare(&self.out, self.resume)?;
        if !self.resume {
            write(&self.out.join("config.toml"), &config.to_toml()?)?;
        }
        let progress = Progress::new();
        let stop = stop_on_interrupt()?;
        progress.say(&format!("building the world and its index in {}", self.out.display()));
        let data = setup::load_data(&config, &self.out)?;
        if data.test.is_empty() {
            bail!("there are no held-out questions: a verdict needs data.test_questions above 0");
        }
        config.data.digests = Some(data.digests.clone());
        if !self.resume {
            write(&self.out.join("config.toml"), &config.to_toml()?)?;
        }
        let start = self.start(&config, &progress, &stop)?;
        progress.say(&format!("{} held-out questions", data.test.len()));
        let before = evaluate(&start, &config, &data, &data.test, config.threads())?;
        progress.say(&format!("start: {}", measured(&before.greedy)));
        let (trained, control) = self.train_both(&config, &start, &data, &progress, &stop)?;
        let after = evaluate(&trained, &config, &data, &data.test, config.threads())?;
        progress.say(&format!("trained: {}", measured(&after.greedy)));
        let twin = evaluate(&control, &config, &data, &data.test, config.threads())?;
        progress.say(&format!("control: {}", measured(&twin.greedy)));
        trained.save(&self.out.join("policy"))?;
        let sets = [("start", &before), ("trained", &after), ("control", &twin)];
        keep_evaluations(&self.out.join(EVALUATION), &sets)?;
        conclude(&self.out, &config, &sets, progress.minutes())
    }

    fn config(&self) -> Result<RunConfig> {
        let mut overrides = self.overrides.clone();
        if let Some(seed) = self.seed {
            // The world is drawn anew too, from a number of its own so that it differs from the warm start's.
            overrides.push(format!("seed={seed}"));
            if self.config.is_none() {
                overrides.push(format!("data.world.seed={}", 1_000_000 + u64::from(seed)));
            }
        }
        let mut config = match &self.config {
            Some(path) => RunConfig::read(path, &overrides)?,
            None => RunConfig::parse(builtin(&self.env)?, &overrides).context("the built-in quickstart config")?,
        };
        config.use_device(None)?;
        Ok(config)
    }

    fn start(&self, config: &RunConfig, progress: &Progress, stop: &AtomicBool) -> Result<Checkpoint> {
        let place = self.out.join("start");
        if self.resume && place.join("model.safetensors").exists() {
            return setup::load_policy(&place.to_string_lossy(), config);
        }
        let start = match (&config.warm_start, self.from_scratch) {
            (_, false) => setup::checkpoint(config)?,
            (Some(section), true) => from_scratch(section, config, progress, stop)?,
            (None, true) => bail!("--from-scratch needs a [warm_start] section in the config"),
        };
        start.save(&place)?;
        Ok(start)
    }

    /// The real run and its random-reward twin: same start, same questions, same seeds, side by side.
    fn train_both(
        &self,
        config: &RunConfig,
        start: &Checkpoint,
        data: &Data,
        progress: &Progress,
        stop: &AtomicBool,
    ) -> Result<(Checkpoint, Checkpoint)> {
        let threads = (config.threads() / 2).max(1);
        let random = [("random".to_owned(), 1.0.into())].into();
        // A reward without information is meant to ruin its run: that is no reason to stop.
        let mut watched = config.clone();
        watched.grpo.sentinel.stop = false;
        let run = |name: &'static str, reward| {
            let training = Training { name, folder: self.out.join(name), reward, threads, resume: self.resume };
            let result = train(&training, &watched, start.clone(), Experience::Data(data), progress, stop);
            if result.is_err() {
                // The other run stops too, with a checkpoint of its own.
                stop.store(true, Ordering::SeqCst);
            }
            result.with_context(|| format!("the {name} run"))
        };
        std::thread::scope(|scope| {
            let twin = scope.spawn(|| run("control", random));
            let real = run("trained", config.reward.clone());
            let twin = twin.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok((real?.policy, twin?.policy))
        })
    }
}

/// Makes the run folder; a folder with something in it is only taken for a resume.
fn prepare(folder: &Path, resume: bool) -> Result<()> {
    let used = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if used && !resume {
        bail!("{} is not empty; give another --out, or --resume to continue the run in it", folder.display());
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Keeps the episodes behind the verdict, for the report and for `forage inspect`.
fn keep_evaluations(folder: &Path, sets: &[(&str, &Evaluated); 3]) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, set) in sets {
        write_episodes(&folder.join(format!("{name}.jsonl")), set.greedy.iter().cloned())?;
        if !set.sampled.is_empty() {
            write_episodes(&folder.join(format!("{name}.sampled.jsonl")), set.sampled.iter().cloned())?;
        }
    }
    Ok(())
}

fn conclude(folder: &Path, config: &RunConfig, sets: &[(&str, &Evaluated); 3], minutes: f64) -> Result<()> {
    let bootstrap = Bootstrap { resamples: config.evaluation.resamples, ..Bootstrap::new(config.seed) };
    let [(_, before), (_, after), (_, twin)] = sets;
    let facts = RunFacts { seed: config.seed, minutes };
    let mut verdict = Verdict::from_episodes(&before.greedy, &after.greedy, Some(&twin.greedy), facts, bootstrap)?;
    if config.evaluation.samples > 0 {
        let sampled = Detail::from_episodes(&before.sampled, &after.sampled, Some(&twin.sampled), bootstrap)?;
        verdict = verdict.with_sampled(sampled);
    }
    verdict = verdict.with_alarms(alarms(folder, &after.greedy, bootstrap)?);
    verdict.write(&folder.join("verdict.json"))?;
    for (name, set) in sets {
        out(&format!("{name}, greedy\n{}", EvalSummary::from_episodes(&set.greedy, bootstrap)?.to_text()));
    }
    report::of_runs(&[folder.to_owned()], TRAJECTORIES)?.write(&folder.join("report.html"))?;
    for alarm in &verdict.alarms {
        out(&alarm.to_text());
    }
    for sentence in verdict.words() {
        out(&sentence);
    }
    out(&format!("{}  {}", folder.join("verdict.json").display(), folder.join("report.html").display()));
    Ok(())
}

/// What the trained policy's conduct raises: first in its run, then on the held-out questions.
fn alarms(folder: &Path, held_out: &[Episode], bootstrap: Bootstrap) -> Result<Vec<Alarm>> {
    let course = telemetry::course(&folder.join("trained"), bootstrap)?;
    let mut alarms = course.map_or_else(Vec::new, |course| course.alarms);
    alarms.extend(Telemetry::from_episodes(held_out, bootstrap)?.alarms);
    Ok(alarms)
}

/// The mean of what episodes are measured by, in words.
fn measured(episodes: &[Episode]) -> String {
    let outcome = Outcome::of(episodes);
    let parts = episodes.iter().filter_map(|episode| episode.score.as_ref()?.parts.get(outcome.measure()));
    let (sum, count) = parts.fold((0.0, 0), |(sum, count), part| (sum + f64::from(*part), count + 1));
    format!("{} {:.3}", outcome.words()[0], sum / f64::from(count.max(1)))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

//! The audit of an experiment before time and money are spent on it.

mod data;
mod play;

use std::path::Path;
use std::time::{Duration, Instant};

use forage_contracts::policy::Sampling;
use forage_contracts::seed::Seed;
use forage_env::registry;
use forage_trainer::doctor::Check;
use forage_trainer::run::group_jobs;

use crate::config::Resolved;
use crate::data::{Data, first};
use crate::disk::{self, Disk};
use crate::error::{Context, Result, RunError, causes};
use crate::grpo::learner_of;
use crate::layout::RunLayout;
use crate::memory::{self, Start};
use crate::observer::Observer;
use crate::policy::start_of;
use crate::room::SHORTER;
use crate::run_folder::words;
use crate::runtime::runtime;
use crate::session::Session;

/// Checks with the part of an experiment that each is of.
type Checks = Vec<(&'static str, Check)>;

/// A check that holds.
fn passed(name: &'static str, found: impl Into<String>) -> Check {
    Check {
        name,
        found: found.into(),
        holds: true,
        fix: None,
    }
}

/// A check that holds where nothing is `wrong`, with what to look at or to do.
fn noted(name: &'static str, found: String, wrong: bool, fix: &'static str) -> Check {
    Check {
        fix: wrong.then_some(fix),
        ..passed(name, found)
    }
}

/// A check that fails where something is `wrong`.
fn failed(name: &'static str, found: String, wrong: bool, fix: &'static str) -> Check {
    Check {
        holds: !wrong,
        ..noted(name, found, wrong, fix)
    }
}

/// Checks that are not made for want of the policy, or of the device that would read it.
fn left_out(name: &'static str, has_device: bool) -> Check {
    let (needs, fix) = if has_device {
        let fix = "fix the policy, which fails above, and audit again";
        ("left out: needs the policy", fix)
    } else {
        let fix = "fix the device, which fails above, and audit again";
        ("left out: needs the device", fix)
    };
    noted(name, needs.to_owned(), true, fix)
}

/// A device that cannot be opened, for this reason.
fn no_device(why: String) -> Check {
    let fix = "fix what it says (`forage doctor` looks closer), or name another in `device`";
    failed("device", why, true, fix)
}

/// A policy that is not to be had, for this reason.
fn no_policy(why: String) -> Check {
    let fix = "fix what it says, or name another in policy.checkpoint: a folder, a name on the hub or builtin:NAME";
    failed("policy", why, true, fix)
}

impl Resolved {
    /// Examines an experiment: files, settings, memory and disk, data, tokenizer, `groups` groups of rollouts of the policy that it begins
    /// with, and a first update on them, which is thrown away. A server that samples is not asked; the engine here plays in its
    /// place. What holds and has a `fix` should be looked at. Stops after files that are not there; without the policy or its device,
    /// files, settings and data are examined all the same, and memory where the policy's shape is known. Blocks, so async code must not
    /// call it.
    ///
    /// # Errors
    /// When a part of the config cannot be had at all.
    pub fn audit(&self, groups: usize, observer: &dyn Observer) -> Result<Checks> {
        if groups == 0 {
            return Err(RunError::config("--groups must be at least 1"));
        }
        let mut checks: Checks = Vec::new();
        let mut add = |of: &'static str, found: Vec<Check>| {
            checks.extend(found.into_iter().map(|check| (of, check)));
        };
        let files = self.files();
        let complete = files.holds;
        add("config", vec![files]);
        add("config", self.settings());
        if !complete {
            // Nothing is fetched for data that are not there.
            if let Ok(Some(known)) = Start::of(self, false)
                && let Ok(memory) = self.memory(&known)
            {
                add("config", vec![memory, self.disk(&known)]);
            }
            let gone = self.missing_policy().map(no_policy);
            add("config", gone.into_iter().collect());
            return Ok(checks);
        }
        let config = self.vary(|config| {
            config.sampler = None;
            // The first update of a warm-up would move too little to be seen.
            config.grpo.update.optimizer.warmup_steps = 0;
        })?;
        let broken = self.device.open().err();
        let has_device = broken.is_none();
        let broken = broken.map(|error| no_device(error.to_string()));
        add("config", broken.into_iter().collect());
        let start = match Start::of(self, has_device) {
            Ok(known) => {
                let found = match &known {
                    Some(known) => vec![self.memory(known)?, self.disk(known)],
                    None => vec![left_out("memory", has_device)],
                };
                add("config", found);
                has_device.then(|| start_of(&config))
            }
            Err(error) => {
                add("config", vec![left_out("memory", true)]);
                Some(Err(error))
            }
        };
        let start = match start {
            Some(Ok(start)) => {
                let found = format!("{} can be read", self.policy.checkpoint);
                add("config", vec![passed("policy", found)]);
                Some(start)
            }
            Some(Err(error)) => {
                add("config", vec![no_policy(causes(&error))]);
                None
            }
            None => None,
        };
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        observer.say("reading the data, and indexing the corpus where no index is named");
        let data = Data::load(self, scratch.path())?;
        let entry = registry::find(&self.environment.id)?;
        add("data", data::checks(self, entry, &data)?);
        if data.train.is_empty() {
            return Ok(checks);
        }
        let Some(start) = start else {
            for part in ["tokenizer", "rollouts", "update"] {
                add(part, vec![left_out("all checks", has_device)]);
            }
            return Ok(checks);
        };
        if self.sampler.is_some() {
            observer.warn("[sampler] is not asked: this process plays the groups");
        }
        let has_template = start.chat.is_some();
        let session = Session::of(&config, &data.corpus, &start, observer)?;
        add(
            "tokenizer",
            data::tokenizer(&config, entry, &session, &data.train, has_template),
        );
        if let Some(fault) = session.without_room(&data.train, config.seed)? {
            let holds = !fault.is_of_all;
            let check = noted("prompt", fault.found, true, SHORTER);
            add("rollouts", vec![Check { holds, ..check }]);
            if !holds {
                return Ok(checks);
            }
        }
        let (kept, _) = memory::kept_bytes(&config, &start, None, [1, 1])?;
        let mut learner = learner_of(&config, start, &RunLayout::new(scratch.path()), kept)?;
        let rollout = session.rollout(learner.policy(), Sampling::FULL)?;
        let tasks = first(&data.train, Some(groups));
        let seed = Seed::root(config.seed).child("audit", &[]);
        let mut jobs = group_jobs(&tasks, config.grpo.group_size, seed);
        config.grpo.update.temper(&mut jobs);
        observer.say(&format!("playing {} episodes", jobs.len()));
        let started = Instant::now();
        let episodes = runtime()?.block_on(rollout.run(jobs));
        let playing = started.elapsed().as_secs_f64();
        let played = play::Played {
            config: &config,
            entry,
            episodes: &episodes,
            tokenizer: &*session.format.tokenizer,
        };
        add("rollouts", played.checks());
        observer.say("taking a first update apart");
        let count = episodes.len();
        let found = learner.examine(episodes, &config.grpo);
        let (found, updating) = found.context("the first update failed")?;
        add("update", found);
        add("cost", vec![self.time(count, playing, updating)]);
        Ok(checks)
    }

    fn files(&self) -> Check {
        let missing = self.missing_files();
        let fix = "write each path as it is seen from this folder";
        let found = if missing.is_empty() {
            "all that the config names are there".to_owned()
        } else {
            missing.join("; ")
        };
        failed("files", found, !missing.is_empty(), fix)
    }

    fn settings(&self) -> Vec<Check> {
        let mut warnings = self.warnings();
        warnings.extend(self.untaught());
        if warnings.is_empty() {
            return vec![passed("settings", "none that may be meant otherwise")];
        }
        let fix = "change it, unless it is meant so";
        let note = |warning| noted("settings", warning, true, fix);
        warnings.into_iter().map(note).collect()
    }

    /// The time of the run if its episodes, and the updates on them, take as long as these did, in seconds.
    fn time(&self, episodes: usize, playing: f64, updating: f64) -> Check {
        let grpo = &self.grpo;
        let all = (grpo.prompts_played() * grpo.group_size) as f64 * grpo.steps as f64;
        let seconds = (playing + updating) / episodes.max(1) as f64 * all;
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let update = if updating > 0.0 {
            format!("and an update on them in {updating:.1} s")
        } else {
            "and no update, as none has a direction".to_owned()
        };
        let found = format!(
            "{episodes} episodes in {playing:.1} s {update}; at that rate {} for the {all:.0} of the run, without validation",
            words(time)
        );
        passed("time", found)
    }

    /// The disk of a run below this folder.
    fn disk(&self, start: &Start) -> Check {
        let disk = Disk::of_run(self, start, 0);
        match disk.lack(Path::new("runs")) {
            Some(lack) => noted("disk", lack, true, disk::FIX),
            None => passed("disk", disk.words()),
        }
    }

    fn memory(&self, start: &Start) -> Result<Check> {
        let estimate = memory::of_run(self, start, None)?;
        Ok(match memory::check(&estimate, 1) {
            Ok(line) => passed("memory", line.trim_start_matches("memory: ")),
            Err(error) => {
                let fix = "`forage train --dry-run` shows all parts";
                failed("memory", error.to_string(), true, fix)
            }
        })
    }
}

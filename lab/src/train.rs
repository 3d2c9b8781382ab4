//! A training run with its record, its policy and its spurious twins.

use std::path::PathBuf;

use forage_trainer::device::DeviceSpec;
use forage_trainer::memory::Workload;
use forage_trainer::{Checkpoint, RankSettings};
use serde::Serialize;

use crate::config::{Resolved, RunConfig};
use crate::data::Data;
use crate::disk::Disk;
use crate::error::{Context, Result, RunError, bail};
use crate::forked::{self, Forked};
use crate::grpo::{Experience, Grpo, digest, keep_settings};
use crate::layout::RunLayout;
use crate::lint::unvalidated;
use crate::lock::FileLock;
use crate::memory::{self, Start};
use crate::observer::{Observer, Quiet};
use crate::policy::{save, start_of, taught_another};
use crate::presets;
use crate::splits::{missing_questions, questions_here, split_warnings};
use crate::throughput;
use crate::twins::Twin;

/// The start of a run, its source of experience and its folder.
#[derive(Clone, Debug, Default)]
pub struct TrainOptions {
    /// The run's folder.
    pub folder: PathBuf,
    /// Continues from the newest checkpoint in the folder.
    pub resume: bool,
    /// Learns from this file of recorded rollouts instead of playing.
    pub rollouts: Option<PathBuf>,
    /// Begins with another run's newest checkpoint: its weights, moments and place in the data.
    pub from: Option<PathBuf>,
    /// Spurious twins that are trained from the same start afterwards.
    pub twins: Vec<Twin>,
    /// Keeps what the retriever answers in this file.
    pub record_tools: Option<PathBuf>,
    /// The place of this process among several that train the policy together. Rank 0 alone writes the run's folder.
    pub ranks: Option<RankSettings>,
    /// Devices beside the config's, each with a rank of its own in this process.
    pub beside: Vec<DeviceSpec>,
}

impl TrainOptions {
    /// The config's device and those beside it.
    fn devices(&self, config: &Resolved) -> Vec<DeviceSpec> {
        [&[config.device], self.beside.as_slice()].concat()
    }

    /// Checks that ranks go with the rest; `processes` is their number where each has a process of its own.
    fn check_ranks(&self, config: &Resolved, processes: Option<usize>) -> Result<()> {
        let here = 1 + self.beside.len();
        let several = processes.is_some_and(|size| size > 1);
        let [alone, fix] = if processes.is_some() && here > 1 {
            let fix = "start a process for each GPU with --ranks, or one for all GPUs of a machine without";
            ["a process with --ranks has one device", fix]
        } else if !several && here == 1 {
            return Ok(());
        } else if config.sampler.is_some() {
            let fix =
                "remove [sampler]: each rank plays its share of the episodes with its own engine";
            ["[sampler] is for a run without ranks", fix]
        } else if several && !self.twins.is_empty() {
            let fix =
                "train the policy first, and its twins with one process each (reward, data.labels)";
            ["--twins are for one process", fix]
        } else if several && self.record_tools.is_some() {
            let fix = "each rank asks for its own episodes alone; play some with forage eval --record-tools";
            ["--record-tools is for one process", fix]
        } else if self.rollouts.is_some() {
            return Ok(());
        } else {
            let on_gpus = here > 1 && matches!(config.device, DeviceSpec::Cuda(_));
            let ranks = processes.unwrap_or(here);
            let ahead = config.grpo.check_lookahead(ranks, on_gpus);
            return ahead.in_config("grpo.lookahead");
        };
        Err(RunError::config_because(alone, fix))
    }

    /// The files that a run with these options would not find, and a server it lacks. Over recorded rollouts it opens the policy alone.
    pub fn missing(&self, config: &RunConfig) -> Vec<String> {
        match self.rollouts {
            Some(_) => config.missing_policy().into_iter().collect(),
            None => config.missing_at_start(),
        }
    }

    /// Says why validation would show nothing beside recorded rollouts, unless the config's own warnings say that it shows nothing.
    fn unvalidated(&self, config: &RunConfig) -> Option<String> {
        let every = config.grpo.evaluate_every;
        let is_told = unvalidated(config).is_some();
        (every > 0 && self.rollouts.is_some() && !is_told).then(|| {
            format!(
                "warning: grpo.evaluate_every is {every} and --rollouts plays no questions: nothing is validated during training"
            )
        })
    }

    /// Checks that something weighs recorded rollouts, where there are any.
    fn check_recorded(&self, config: &Resolved) -> Result<()> {
        let Some(file) = &self.rollouts else {
            return Ok(());
        };
        let recorded = config.grpo.update.check_recorded();
        recorded.in_config(format!("--rollouts {}", file.display()))
    }
}

/// A run at its end.
#[derive(Clone, Debug, Serialize)]
pub struct Trained {
    /// The folder of the trained policy; a rank but the first leaves none.
    pub policy: PathBuf,
    /// The folders of its twins' policies.
    pub twins: Vec<PathBuf>,
    /// The step after which another run was forked.
    pub forked: Option<u64>,
    /// The peak of the memory beside its estimate, in a sentence.
    pub memory: Option<String>,
}

/// Trains the policy of a config with GRPO. Blocks, so async code must not call it.
///
/// # Errors
/// When the folder or the file of `record_tools` is taken, there is nothing to resume, a fork would take no step of its own, a part of the
/// config cannot be had, nothing would weigh recorded rollouts, memory does not suffice, or the run fails or is stopped on the way.
pub fn train(
    config: &Resolved,
    options: &TrainOptions,
    observer: &dyn Observer,
) -> Result<Trained> {
    options.check_ranks(config, options.ranks.as_ref().map(|ranks| ranks.size))?;
    options.check_recorded(config)?;
    if !options.beside.is_empty() {
        let opened = DeviceSpec::open_together(&options.devices(config));
        opened.in_config("the run cannot begin with its devices")?;
    }
    if let Some(ranks) = options.ranks.as_ref().filter(|ranks| ranks.is_open()) {
        observer.warn(&format!(
            "warning: anyone who reaches {} may take the place of a rank or end the run; give all ranks the same --rank-secret-file",
            ranks.address
        ));
    }
    if options.ranks.as_ref().is_some_and(|ranks| ranks.rank > 0) {
        // What it must write on its way goes with it; rank 0 tells it where to begin.
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let options = TrainOptions {
            folder: scratch.path().to_owned(),
            resume: false,
            from: None,
            ..options.clone()
        };
        return train_in(config, &options, &Quiet(observer));
    }
    train_in(config, options, observer)
}

/// Trains in the folder of the options, which is this process's own.
fn train_in(config: &Resolved, options: &TrainOptions, observer: &dyn Observer) -> Result<Trained> {
    let layout = RunLayout::new(&options.folder);
    layout.check(options.resume)?;
    if !options.resume {
        // Before anything is fetched.
        let missing = options.missing(config);
        if !missing.is_empty() {
            return Err(RunError::config(missing.join("; ")));
        }
    }
    if let Some(other) = &options.from {
        forked::check_steps(other, config)?;
        if let Some(other) = forked::elsewhere(other, config) {
            observer.warn(&format!("warning: {other}"));
        }
    } else if options.rollouts.is_none()
        && !options.resume
        && let Some(other) = taught_another(&config.policy.checkpoint, &config.environment.id)
    {
        observer.warn(&format!("warning: {other}"));
    }
    if let Some(warning) = options.unvalidated(config) {
        observer.warn(&warning);
    }
    let twins = Twin::all(config, &options.twins)?;
    let here = 1 + options.beside.len();
    let ranks = options.ranks.as_ref().map_or(here, |ranks| ranks.size);
    let shape = Start::of(config, true)?.map(|start| start.by_ranks(ranks));
    let estimate = shape
        .as_ref()
        .map(|start| memory::of_run(config, start, options.rollouts.as_deref()))
        .transpose()?;
    if let Some(estimate) = &estimate {
        observer.say(&memory::check(estimate, here)?);
    }
    let _lock = layout.claim(options.resume)?;
    // Ranks but the first write nothing, and what a resumed run has written is there already.
    let writes = !options.resume && options.ranks.as_ref().is_none_or(|ranks| ranks.rank == 0);
    if let Some(start) = shape.as_ref().filter(|_| writes) {
        let disk = Disk::of_run(config, start, twins.len());
        if let Some(warning) = disk.warning(layout.folder()) {
            observer.warn(&warning);
        }
    }
    let _tape = FileLock::take_all(&options.record_tools)?;
    let data = match &options.rollouts {
        Some(_) => None,
        None => Some(load(config, options, observer)?),
    };
    let digests = data.as_ref().map(|data| &data.digests);
    let start = start_of(config)?;
    let chat = start.chat.clone();
    // Before the folder holds a run.
    data.iter()
        .try_for_each(|data| config.check_prompts(data, &start, observer))?;
    for text in config.stamp.differing(&config.stamped(chat.as_ref())) {
        observer.warn(&format!(
            "warning: the {text} is not the one that the config's [stamp] names: its text has changed since"
        ));
    }
    let experience = match (&options.rollouts, &data) {
        (Some(file), _) => Experience::Recorded(file),
        (None, Some(data)) => Experience::Data(data),
        (None, None) => bail!("there is nothing to learn from"),
    };
    let forked = match &options.from {
        Some(other) => {
            let digest = digest(config, experience)?;
            Some(Forked::begin(other, &layout, &digest)?.steps)
        }
        None => None,
    };
    // The settings of a run that begins with another's checkpoint come after that: a run with settings and no checkpoint begins anew.
    keep_settings(
        config,
        &layout,
        digests,
        chat.as_ref(),
        options.resume,
        observer,
    )?;
    let resume = options.resume || forked.is_some();
    // The first update changes the start in place where nobody else holds it; else its old weights would stay.
    let learn = |name: &str,
                 start: Checkpoint,
                 config: &Resolved,
                 layout: &RunLayout,
                 resume: bool,
                 experience: Experience<'_>|
     -> Result<Workload> {
        let run = Grpo {
            name,
            config,
            layout,
            resume,
            runs: 1,
            ranks: options.ranks.as_ref(),
            beside: &options.beside,
            observer,
        };
        let (trained, work) = run.run(start, experience)?;
        if options.ranks.as_ref().is_none_or(|ranks| ranks.rank == 0) {
            save(&trained, &layout.policy())?;
        }
        Ok(work)
    };
    let work = learn("train", start, config, &layout, resume, experience)?;
    let then = shape.map(|start| memory::of_work(config, &start, work));
    let memory = estimate.and_then(|estimate| memory::outcome(&estimate, then.as_ref(), here));
    let mut beside = Vec::new();
    for (name, config) in &twins {
        if observer.is_stopped() {
            return Err(RunError::stopped(format!(
                "interrupted before twin `{name}`; --resume goes on"
            )));
        }
        let layout = layout.twin(name);
        let resume = options.resume && layout.holds_run();
        let _lock = layout.claim(resume)?;
        keep_settings(config, &layout, digests, chat.as_ref(), resume, observer)?;
        if let Some(data) = &data {
            let data = data.relabelled(config)?;
            let (start, data) = (start_of(config)?, Experience::Data(&data));
            learn(name, start, config, &layout, resume, data)?;
        }
        beside.push(layout.policy());
    }
    Ok(Trained {
        policy: layout.policy(),
        twins: beside,
        forked,
        memory,
    })
}

/// The questions of a run, and what it searches.
fn load(config: &Resolved, options: &TrainOptions, observer: &dyn Observer) -> Result<Data> {
    let mut data = Data::load(config, &options.folder)?;
    data.corpus = data.corpus.recorded(options.record_tools.as_deref())?;
    if let Some(warning) = few_questions(data.train.len(), config) {
        observer.warn(&warning);
    }
    for warning in missing_questions(&data, config) {
        observer.warn(&warning);
    }
    if config.data.files.is_some() {
        for warning in split_warnings(config, [&data.train, &data.dev, &data.test]) {
            observer.warn(&warning);
        }
    }
    let splits = [&data.train, &data.dev, &data.test];
    let corpus = &data.corpus;
    if let Some(found) = corpus.unknown_evidence(&splits, false, &config.environment)? {
        observer.warn(&format!("warning: {found}"));
    }
    Ok(data)
}

/// A number of things: `1 step`, `2 steps`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {one}{plural}")
}

/// Steps that a run should be able to take before it meets a question again.
const STEPS_PER_PASS: usize = 10;

/// A warning of a run that meets its questions so often that it may learn them by heart.
pub(crate) fn few_questions(questions: usize, config: &RunConfig) -> Option<String> {
    let groups = config.grpo.prompts_per_step;
    (1..STEPS_PER_PASS * groups).contains(&questions).then(|| {
        format!(
            "warning: {} for {} a step: each comes again every {:.1} steps, and a policy may learn the answers by heart; use \
             {} questions or more",
            counted(questions as u64, "training question"),
            counted(groups as u64, "group"),
            questions as f64 / groups as f64,
            STEPS_PER_PASS * groups,
        )
    })
}

impl Resolved {
    /// Describes what [`train`] would do in one of so many `processes`, where there are several, in TOML and comments: the resolved self,
    /// the arithmetic of a step and estimates of memory and disk; for a GPU also the keys that make it fit smaller ones, and the time of a
    /// step by data sheets. Of the options the ranks are not read, and no device is opened.
    ///
    /// # Errors
    /// When the run would be refused for its ranks, its devices, its twins, recorded rollouts that nothing weighs or a fork without steps
    /// of its own, or the policy's shape, files of questions that are here or the rollouts cannot be read.
    pub fn plan(&self, options: &TrainOptions, processes: Option<usize>) -> Result<String> {
        options.check_ranks(self, processes)?;
        options.check_recorded(self)?;
        if let Some(other) = &options.from {
            forked::check_steps(other, self)?;
        }
        Twin::all(self, &options.twins)?;
        let fit = DeviceSpec::check_together(&options.devices(self));
        fit.in_config("the run cannot begin with its devices")?;
        let rollouts = options.rollouts.as_deref();
        let here = 1 + options.beside.len();
        let ranks = processes.unwrap_or(here);
        let questions = self.grpo.prompts_played();
        let episodes = questions * self.grpo.group_size;
        let again = match self.grpo.prompts_per_step - questions {
            0 => String::new(),
            groups => format!(
                ", {} of earlier steps again",
                counted(groups as u64, "group")
            ),
        };
        let updates = self.grpo.update.minibatches * self.grpo.update.epochs;
        let steps = self.grpo.steps;
        let mut lines = vec![
            self.to_toml()?,
            format!(
                "# {} of {} x {} = {} and {} each{again}; {} in all",
                counted(steps, "step"),
                counted(questions as u64, "question"),
                counted(self.grpo.group_size as u64, "episode"),
                counted(episodes as u64, "episode"),
                counted(updates as u64, "optimizer step"),
                counted(episodes as u64 * steps, "episode"),
            ),
        ];
        let unvalidated = options.unvalidated(self);
        lines.extend(unvalidated.map(|warning| format!("# {warning}")));
        if rollouts.is_none() {
            let splits = questions_here(self, None)?;
            let asked = self.data.counts()[0];
            let count = splits.as_ref().map_or(asked, |[train, ..]| train.len());
            let shared = splits.iter();
            let shared = shared.flat_map(|splits| split_warnings(self, splits.each_ref()));
            let other = taught_another(&self.policy.checkpoint, &self.environment.id);
            let other = other.filter(|_| options.from.is_none());
            lines.extend(few_questions(count, self).map(|warning| format!("# {warning}")));
            lines.extend(other.map(|other| format!("# warning: {other}")));
            lines.extend(shared.map(|warning| format!("# {warning}")));
        }
        let Some(start) = Start::of(self, false)? else {
            let unknown =
                "# memory: not known until the policy is fetched; `forage audit CONFIG` fetches it";
            lines.push(unknown.to_owned());
            return Ok(lines.join("\n"));
        };
        let start = start.by_ranks(ranks);
        let estimate = memory::of_run(self, &start, rollouts)?;
        lines.push(memory::table(&estimate, here));
        lines.extend(self.retriever.uncounted());
        let disk = Disk::of_run(self, &start, options.twins.len());
        lines.push(format!("# disk: {}", disk.words()));
        let lack = disk.warning(&options.folder);
        lines.extend(lack.map(|warning| format!("# {warning}")));
        if !self.device.is_cpu() && rollouts.is_none() {
            lines.push(presets::table(self, &start)?);
            if self.device.is_cuda_or_rocm() {
                lines.push(throughput::table(self, &start, here)?);
            }
        }
        Ok(lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_cannot_play_ahead_are_refused_before_anything_begins() {
        let text = include_str!("../../configs/smoke.toml");
        let refused = |depth: u64, device: &str, beside: &[&str], processes: Option<usize>| {
            let depth = format!("grpo.lookahead={depth}");
            let config = RunConfig::parse(text, &[depth]).unwrap();
            let config = config.resolve(Some(device.parse().unwrap())).unwrap();
            let beside = beside.iter().map(|name| name.parse().unwrap());
            let options = TrainOptions {
                beside: beside.collect(),
                ..TrainOptions::default()
            };
            let checked = options.check_ranks(&config, processes);
            let recorded = TrainOptions {
                rollouts: Some(PathBuf::from("rollouts.jsonl")),
                ..options
            };
            recorded.check_ranks(&config, processes).unwrap();
            checked.map_or_else(|error| crate::error::causes(&error), |()| String::new())
        };
        assert_eq!(refused(2, "cpu", &[], None), "");
        assert_eq!(refused(1, "cpu", &[], Some(4)), "");
        assert_eq!(refused(1, "cpu", &["cpu"], None), "");
        assert_eq!(refused(1, "cuda:0", &[], Some(4)), "");
        assert_eq!(refused(0, "cuda:0", &["cuda:1"], None), "");
        for words in [
            refused(2, "cpu", &[], Some(4)),
            refused(2, "cpu", &["cpu"], None),
        ] {
            let expected = "grpo.lookahead: ranks play one step ahead at most";
            assert!(words.contains(expected), "{words}");
        }
        let words = refused(1, "cuda:0", &["cuda:1"], None);
        for part in [
            "grpo.lookahead",
            "GPUs of one process",
            "write 0",
            "--ranks",
        ] {
            assert!(words.contains(part), "{words}");
        }
    }

    #[test]
    fn recorded_rollouts_that_nothing_weighs_are_refused_before_anything_begins() {
        let text = include_str!("../../configs/smoke.toml");
        let old = "grpo.update.old_logprobs=\"trainer\"".to_owned();
        let config = RunConfig::parse(text, &[old]).unwrap();
        let config = config.resolve(None).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = TrainOptions {
            folder: folder.path().join("run"),
            rollouts: Some(PathBuf::from("rollouts.jsonl")),
            ..TrainOptions::default()
        };
        let trained = train(&config, &options, &()).map(|_| ());
        let planned = config.plan(&options, None).map(|_| ());
        for refused in [trained, planned] {
            let words = format!("{:#}", anyhow::Error::from(refused.unwrap_err()));
            assert!(
                words.contains("--rollouts rollouts.jsonl")
                    && words.contains("by 1, whoever wrote it"),
                "{words}"
            );
        }
        assert!(!options.folder.exists());
    }

    #[test]
    fn a_plan_is_of_what_the_run_would_open_validate_and_train() {
        let text = include_str!("../../configs/smoke.toml");
        let resolve = |items: &[&str]| {
            let items: Vec<String> = items.iter().map(|&item| item.to_owned()).collect();
            RunConfig::parse(text, &items)
                .unwrap()
                .resolve(None)
                .unwrap()
        };
        let away = "data={ files = { train = \"no.jsonl\", index = \"no\" } }";
        let played = TrainOptions::default();
        let recorded = TrainOptions {
            rollouts: Some(PathBuf::from("rollouts.jsonl")),
            ..TrainOptions::default()
        };
        let config = resolve(&[away]);
        assert_eq!(played.missing(&config).len(), 2);
        assert_eq!(recorded.missing(&config), [""; 0]);
        let config = resolve(&[away, "policy.checkpoint=\"no/such/policy\""]);
        let gone = ["policy.checkpoint: there is no no/such/policy"];
        assert_eq!(recorded.missing(&config), gone);

        let config = resolve(&["policy.checkpoint=\"org/unheard-of\""]);
        let plan = config.plan(&played, None).unwrap();
        assert!(
            plan.contains("; `forage audit CONFIG` fetches it"),
            "{plan}"
        );
        let one = [
            "grpo.steps=1",
            "grpo.prompts_per_step=1",
            "grpo.group_size=2",
            "data.train_questions=1",
        ];
        let plan = resolve(&one).plan(&played, None).unwrap();
        for words in [
            "# 1 step of 1 question x 2 episodes = 2 episodes and 1 optimizer step each; 2 episodes in all",
            "# warning: 1 training question for 1 group a step",
        ] {
            assert!(plan.contains(words), "{words}: {plan}");
        }

        let twins = TrainOptions {
            twins: vec!["random".parse().unwrap()],
            ..TrainOptions::default()
        };
        let every = "grpo.evaluate_every=2";
        let validated = |options: &TrainOptions| options.unvalidated(&resolve(&[every]));
        let warning = validated(&recorded).unwrap();
        assert!(warning.contains("nothing is validated"), "{warning}");
        assert_eq!(validated(&played), None);
        let config = resolve(&[away, every]);
        let told = config.warnings();
        let of_files = told.iter().filter(|told| told.contains("is validated"));
        assert_eq!((of_files.count(), recorded.unvalidated(&config)), (1, None));

        let config = resolve(&["data.labels=\"shuffled\""]);
        let error = config.plan(&twins, None).unwrap_err().to_string();
        assert!(error.contains("--twins stand beside"), "{error}");
    }

    #[test]
    fn a_plan_warns_of_files_with_few_questions() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("train.jsonl");
        let row = |id: usize| {
            format!("{{\"id\": \"{id}\", \"question\": \"{id}?\", \"golden_answers\": [\"a\"]}}\n")
        };
        std::fs::write(&file, (0..7).map(row).collect::<String>()).unwrap();
        let plan = |train: &[&PathBuf], more: &str| {
            let data = format!("data={{ files = {{ train = {train:?}, index = \"index\" }} }}");
            let text = include_str!("../../configs/smoke.toml");
            let config = RunConfig::parse(text, &[data, more.to_owned()]).unwrap();
            let config = config.resolve(None).unwrap();
            config.plan(&TrainOptions::default(), None).unwrap()
        };
        let found = plan(&[&file], "seed=1");
        let words = "# warning: 7 training questions for 4 groups a step";
        assert!(found.contains(words), "{found}");
        let found = plan(&[&file], "data.train_questions=5");
        assert!(found.contains("# warning: 5 training"), "{found}");
        // How many a file holds that is not here yet is known when the run starts.
        let gone = folder.path().join("gone.jsonl");
        let found = plan(&[&file, &gone], "seed=1");
        assert!(!found.contains("training questions for"), "{found}");
    }

    #[test]
    fn few_questions_are_warned_of() {
        let config = RunConfig::parse(include_str!("../../configs/smoke.toml"), &[]).unwrap();
        let groups = config.grpo.prompts_per_step;
        assert_eq!(few_questions(10 * groups, &config), None);
        let warning = few_questions(3 * groups, &config).unwrap();
        assert!(warning.contains("comes again every 3.0 steps"), "{warning}");
        assert!(
            warning.contains(&format!("use {} questions", 10 * groups)),
            "{warning}"
        );
    }
}

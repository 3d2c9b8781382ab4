//! One GRPO run of a resolved config.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forage_contracts::Episode;
use forage_env::Alarm;
use forage_env::chat::ChatTemplate;
use forage_env::reward::judge::JudgeSettings;
use forage_trainer::device::{Adapter, ComputeType, DeviceSpec};
use forage_trainer::memory::Workload;
use forage_trainer::metrics::Row;
use forage_trainer::run::{
    Control, GrpoConfig, RunError as TrainerError, RunPlace, Source, run_grpo,
};
use forage_trainer::{
    Checkpoint, Learner, Patience, RankSettings, RemoteConfig, RemotePolicy, Sample,
    SentinelConfig, Workers,
};
use serde_json::Value;

use crate::conduct::drawn_prompts;
use crate::config::{Base, Digests, EvaluationConfig, Resolved, RunConfig, Stamp};
use crate::data::Data;
use crate::error::{Context, Result, RunError, bail};
use crate::forked::{Forked, is_of};
use crate::layout::{RunLayout, make_folder};
use crate::memory;
use crate::observer::{Observer, line, raised};
use crate::policy::{hash_file, start_of};
use crate::records::RunRecords;
use crate::resumed::{changed, differences, explained};
use crate::run_folder::{settings, unchanged};
use crate::runtime::runtime;
use crate::session::Session;

/// The experience that a run learns from.
#[derive(Clone, Copy)]
pub(crate) enum Experience<'a> {
    /// Questions that the policy plays.
    Data(&'a Data),
    /// A file of recorded rollouts.
    Recorded(&'a Path),
}

/// One GRPO run.
pub(crate) struct Grpo<'a> {
    /// Name shown with the progress.
    pub(crate) name: &'a str,
    pub(crate) config: &'a Resolved,
    pub(crate) layout: &'a RunLayout,
    pub(crate) resume: bool,
    /// Runs of this process at a time.
    pub(crate) runs: usize,
    /// The place of this process among several.
    pub(crate) ranks: Option<&'a RankSettings>,
    /// Devices beside the config's, each with a rank of its own in this process.
    pub(crate) beside: &'a [DeviceSpec],
    pub(crate) observer: &'a dyn Observer,
}

impl Grpo<'_> {
    /// Trains `start` and returns the policy, with the work that it took. Blocks.
    pub(crate) fn run(
        &self,
        start: Checkpoint,
        experience: Experience<'_>,
    ) -> Result<(Checkpoint, Workload)> {
        let Self {
            config, observer, ..
        } = *self;
        let (problem, groups);
        let source = match experience {
            Experience::Data(data) => {
                let session = Session::of(config, &data.corpus, &start, observer)?;
                problem = session.problem(Arc::clone(&data.train), Arc::clone(&data.dev))?;
                Source::Play(&problem)
            }
            Experience::Recorded(file) => {
                let window = config.generation().window(&start.config);
                let vocabulary = start.config.vocab_size;
                groups = Sample::read_groups(file, vocabulary, window, Some(&start.tokenizer))
                    .in_config(format!("--rollouts {}", file.display()))?;
                Source::Recorded(&groups)
            }
        };
        let place = RunPlace {
            folder: self.layout.folder().to_owned(),
            seed: config.seed,
            config_digest: digest(config, experience)?,
            resume: self.resume,
            ranks: self.ranks.cloned(),
        };
        let rollouts = match experience {
            Experience::Recorded(file) => Some(file),
            Experience::Data(_) => None,
        };
        let (learner, followers) = self.learners(start, rollouts)?;
        let is_first = self.ranks.is_none_or(|ranks| ranks.rank == 0);
        let mut records = if is_first {
            Some(RunRecords::open(
                self.layout,
                config.tensorboard,
                config.grpo.steps,
            )?)
        } else {
            None
        };
        let done = self.layout.saved_steps();
        let goes_on = self.resume && is_of(self.layout, &place.config_digest);
        if is_first && goes_on && (1..=config.grpo.steps).contains(&done) {
            let begins = Forked::read(self.layout).is_some_and(|forked| forked.steps == done);
            let how = if begins {
                "forking after"
            } else {
                "resuming from"
            };
            observer.say(&format!("{}: {how} step {done}", self.name));
            if let Some(warning) = self.layout.lost_rows()? {
                observer.warn(&warning);
            }
        }
        let (mut failed, mut is_told) = (None, false);
        let watch = |row: &Row, episodes: &[Episode], alarms: &[Alarm]| {
            observer.progress(self.name, row.step() + 1, config.grpo.steps, &line(row));
            if !is_told && let Some(told) = drawn_prompts(episodes) {
                observer.warn(&format!("warning: {}: {told}", self.name));
                is_told = true;
            }
            for alarm in alarms {
                observer.warn(&raised(self.name, row.step(), alarm));
            }
            if let Some(records) = &mut records {
                failed = records.keep(row, episodes, alarms).err();
            }
            control(failed.is_some() || observer.is_stopped())
        };
        let runtime = runtime()?;
        let (ran, followed) = std::thread::scope(|scope| {
            // Only the first rank reports and writes files; the others read its folder where the run is resumed.
            let follow = |mut learner: Learner| {
                let place = &place;
                scope.spawn(move || -> Result<()> {
                    let watch =
                        |_: &Row, _: &[Episode], _: &[Alarm]| control(observer.is_stopped());
                    let run = run_grpo(&mut learner, source, &config.grpo, place, watch);
                    Ok(runtime.block_on(run)?)
                })
            };
            let followers: Vec<_> = followers.into_iter().map(follow).collect();
            // Moved into this closure, so that a panic drops it and the other ranks notice.
            let mut learner = learner;
            let run = run_grpo(&mut learner, source, &config.grpo, &place, watch);
            let ran = runtime
                .block_on(run)
                .map(|()| (learner.checkpoint(), learner.work()));
            // Dropped, so that no other rank waits for it, however it ended.
            drop(learner);
            let ended = followers.into_iter().zip(self.beside).enumerate();
            let ended = ended.map(|(place, (follower, device))| {
                let panicked = |panic| Err(panicked(place + 1, *device, panic));
                follower.join().unwrap_or_else(panicked)
            });
            (ran, ended.collect::<Vec<Result<()>>>())
        });
        if let Some(error) = failed {
            return Err(error).context("the run's records cannot be kept");
        }
        let trained = ran.map_err(|error| self.refused(error))?;
        followed.into_iter().collect::<Result<()>>()?;
        if is_first && let Some(told) = unchanged(&Row::read_all(&self.layout.metrics())?) {
            observer.warn(&format!("warning: {}: {told}", self.name));
        }
        Ok(trained)
    }

    /// The error of the run, with the settings that keep it from being resumed.
    fn refused(&self, error: TrainerError) -> RunError {
        let record = record_of(self.layout);
        explained(error, &record, || shapes(&record, self.config))
    }

    /// The learner of this process and, with several devices, one more for each of the others, which are ranks beside it.
    fn learners(
        &self,
        start: Checkpoint,
        rollouts: Option<&Path>,
    ) -> Result<(Learner, Vec<Learner>)> {
        let Self { config, layout, .. } = *self;
        let here = 1 + self.beside.len();
        let processes = self.ranks.map_or(here, |ranks| ranks.size);
        let learner = |config: &Resolved, start: Checkpoint| {
            let sharing = [self.runs, processes];
            let (kept, warning) = memory::kept_bytes(config, &start, rollouts, sharing)?;
            if let Some(warning) = warning {
                self.observer.warn(&warning);
            }
            learner_of(config, start, layout, kept)
        };
        if self.beside.is_empty() {
            return Ok((learner(config, start)?, Vec::new()));
        }
        let on = |device: DeviceSpec| {
            config.vary(|own| {
                own.device = device;
                own.threads = (config.threads() / here).max(1);
            })
        };
        let mut learners = vec![learner(&on(config.device)?, start)?];
        for &device in self.beside {
            let own = on(device)?;
            learners.push(learner(&own, start_of(&own)?)?);
        }
        let connected = Learner::together(&mut learners);
        connected.context("the ranks of this process cannot be connected")?;
        let first = learners.remove(0);
        Ok((first, learners))
    }
}

/// The record of the settings that a run was started with; for a part of a quickstart it is in the quickstart's folder.
fn record_of(layout: &RunLayout) -> PathBuf {
    let own = layout.config();
    let around = layout.folder().parent().map(RunLayout::new);
    let around = around.map(|around| around.config());
    around
        .filter(|around| !own.exists() && around.exists())
        .unwrap_or(own)
}

/// The error of a rank of this process whose thread has panicked.
fn panicked(rank: usize, device: DeviceSpec, panic: Box<dyn Any + Send>) -> RunError {
    let words = panic.downcast::<String>().map_or_else(
        |panic| {
            panic
                .downcast_ref::<&str>()
                .copied()
                .unwrap_or("nobody knows why")
                .to_owned()
        },
        |words| *words,
    );
    let fix = "the last checkpoint holds the run; continue with --resume";
    RunError::stage(format!(
        "rank {rank}, on {device}, panicked: {words}; {fix}"
    ))
}

/// The learner of a config, which begins at `start` and keeps so many bytes of activations; what a server is to read goes into the run's
/// folder.
pub(crate) fn learner_of(
    config: &Resolved,
    start: Checkpoint,
    layout: &RunLayout,
    kept_bytes: usize,
) -> Result<Learner> {
    let update = config.grpo.update.clone();
    let workers = Workers::for_model(config.threads(), &start.config, &start.decoder.device())
        .keeping(kept_bytes);
    let generation = config.generation();
    let in_bf16 = update.dtype == Some(ComputeType::Bf16);
    // With a base in fewer bits the engine computes in bf16, whatever its key says.
    let engine = if config.policy.base == Base::F32 {
        "engine.dtype"
    } else {
        "policy.base"
    };
    for (key, asked) in [
        (engine, config.sampler.is_none() && generation.bf16),
        ("grpo.update.dtype", in_bf16),
    ] {
        if asked && !start.decoder.has_bf16() {
            let device = config.device;
            return Err(RunError::config_because(
                format!("{key} asks for bf16, and {device} does not compute in it"),
                format!("set {key} = \"f32\""),
            ));
        }
    }
    let Some(server) = &config.sampler else {
        let engine = generation.engine(&start.config);
        return Ok(Learner::new(start, update, engine, workers));
    };
    let policy = runtime()?
        .block_on(RemotePolicy::connect(server))
        .context("[sampler]")?;
    let pushed = std::path::absolute(layout.pushed()).context("the run's folder")?;
    make_folder(&pushed)?;
    let window = generation.window(&start.config);
    Ok(Learner::remote(
        start, update, window, workers, policy, pushed,
    ))
}

/// The answer to the trainer after a step.
pub(crate) fn control(stop: bool) -> Control {
    if stop {
        Control::Stop
    } else {
        Control::Continue
    }
}

/// The settings that shape a run, without those that may differ between the processes that work on it: length, threads, which card of a
/// kind, parts of the gradient, sharding of moments, evaluation, saving, the address and budget of a judge, the address and patience of a
/// sampler or another server, and the addresses of servers of the environment and of passages.
pub(crate) fn shape(config: &Resolved) -> RunConfig {
    let mut shape = (**config).clone();
    shape.threads = 0;
    shape.device = first_of_kind(shape.device);
    shape.retriever = shape.retriever.without_address();
    shape.retriever.device = first_of_kind(shape.retriever.device);
    shape.grpo.steps = 0;
    shape.grpo.checkpoint_every = 0;
    shape.grpo.keep_checkpoints = 0;
    shape.grpo.evaluate_every = 0;
    shape.grpo.sentinel = SentinelConfig::default();
    shape.grpo.fault_share = GrpoConfig::default().fault_share;
    shape.grpo.update.parts = None;
    shape.grpo.update.optimizer.sharded = false;
    shape.tensorboard = None;
    shape.environment.settings = shape.environment.without_address();
    if let Some(sampler) = &mut shape.sampler {
        *sampler = RemoteConfig::new(sampler.kind, "", sampler.context);
    }
    shape.policy.server = Patience::default();
    shape.data.digests = None;
    shape.stamp = Stamp::default();
    for judge in JudgeSettings::REWARDS {
        if let Some(part) = shape.reward.get_mut(judge) {
            part.without(&JudgeSettings::CONDUCT);
        }
    }
    shape.evaluation = EvaluationConfig::default();
    shape
}

/// The settings that shape a run, of its record and of a config; `None` where the record cannot be read.
fn shapes(record: &Path, config: &Resolved) -> Option<[Value; 2]> {
    let text = |config: &Resolved| shape(config).to_toml().ok();
    let before = Resolved::read(record, &[], None).ok()?;
    Some([text(&before)?, text(config)?].map(|text| settings(&text)))
}

/// Refuses a config under which a run that has a checkpoint cannot go on.
///
/// # Errors
/// When it has other settings than the record in the run's folder; they are named.
pub(crate) fn check_settings(config: &Resolved, layout: &RunLayout) -> Result<()> {
    let record = layout.config();
    let both = shapes(&record, config).filter(|_| layout.has_checkpoint());
    match both.and_then(|[before, now]| differences(&before, &now)) {
        None => Ok(()),
        Some(others) => bail!(
            "{} has other settings: {others}; use the config the run was started with, or start a new run with another --out",
            record.display()
        ),
    }
}

/// The first device of the same kind: results do not depend on which card of a machine computes them.
pub(crate) fn first_of_kind(device: DeviceSpec) -> DeviceSpec {
    let first = |adapter| match adapter {
        Adapter::Gpu(_) => Adapter::Gpu(0),
        Adapter::Software => Adapter::Software,
    };
    match device {
        DeviceSpec::Cpu => DeviceSpec::Cpu,
        DeviceSpec::Cuda(_) => DeviceSpec::Cuda(0),
        DeviceSpec::Rocm(_) => DeviceSpec::Rocm(0),
        DeviceSpec::Wgpu(adapter) => DeviceSpec::Wgpu(first(adapter)),
        DeviceSpec::Vulkan(adapter) => DeviceSpec::Vulkan(first(adapter)),
        DeviceSpec::Metal(adapter) => DeviceSpec::Metal(first(adapter)),
    }
}

/// Writes the settings that a run begins or continues with into its folder. Where there is a checkpoint that cannot be resumed with them,
/// the earlier record stays, by which they are refused; a run without a checkpoint begins anew, with these. Settings that a resumed run
/// may change are told.
pub(crate) fn keep_settings(
    config: &Resolved,
    layout: &RunLayout,
    digests: Option<&Digests>,
    chat: Option<&ChatTemplate>,
    resume: bool,
    observer: &dyn Observer,
) -> Result<()> {
    let goes_on = resume && layout.has_checkpoint();
    let keep = goes_on
        && (layout.saved_steps() > config.grpo.steps || has_others(layout, config, digests));
    let file = layout.config();
    if goes_on
        && !keep
        && let Some(changed) = changed(&file, config)
    {
        observer.say(&format!("the run goes on with other settings: {changed}"));
    }
    layout.record(&file, &config.record(digests, chat)?, keep)
}

/// Returns whether the settings in a run's folder differ from those of `config`, on questions with these digests, in what shapes the run.
pub(crate) fn has_others(layout: &RunLayout, config: &Resolved, digests: Option<&Digests>) -> bool {
    let shaped = |config: &Resolved| shape(config).to_toml().ok();
    let Ok(before) = Resolved::read(&layout.config(), &[], None) else {
        return true;
    };
    let asked = digests.or(config.data.digests.as_ref());
    before.data.digests.as_ref() != asked || shaped(&before) != shaped(config)
}

/// The digest of everything that shapes a run: its settings, and the ranking and training questions or the recorded rollouts.
pub(crate) fn digest(config: &Resolved, experience: Experience<'_>) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(shape(config).to_toml()?.as_bytes());
    match experience {
        Experience::Data(data) => {
            hasher.update(data.corpus.retriever.fingerprint().0.as_bytes());
            for task in data.train.iter() {
                hasher.update(serde_json::to_string(task.as_ref())?.as_bytes());
            }
        }
        Experience::Recorded(file) => hash_file(&mut hasher, file)?,
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;
    use crate::config::RunConfig;

    /// The digest of a run of the quickstart with settings, which learns from recorded rollouts.
    fn digest_with(settings: &[&str]) -> String {
        let quickstart = include_str!("../../configs/quickstart.toml");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rollouts.jsonl");
        std::fs::write(&file, "").unwrap();
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let config = RunConfig::parse(quickstart, &settings).unwrap();
        digest(&config.resolve(None).unwrap(), Experience::Recorded(&file)).unwrap()
    }

    #[test]
    fn a_rank_that_panics_is_named_with_its_words() {
        let said = |panics: fn()| {
            let ended = std::thread::spawn(panics).join();
            panicked(2, DeviceSpec::Cpu, ended.unwrap_err()).to_string()
        };
        let cases: [(fn(), &str); 3] = [
            (|| panic_any("out of memory".to_owned()), "out of memory"),
            (|| panic_any("the device is lost"), "the device is lost"),
            (|| panic_any(7), "nobody knows why"),
        ];
        for (panics, words) in cases {
            let said = said(panics);
            let named = format!("rank 2, on cpu, panicked: {words}; ");
            assert!(
                said.starts_with(&named) && said.contains("--resume"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_part_of_a_quickstart_was_started_with_the_settings_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let whole = RunLayout::new(folder.path());
        let part = whole.part("trained");
        assert_eq!(record_of(&part), part.config());
        std::fs::write(whole.config(), "").unwrap();
        assert_eq!(record_of(&part), whole.config());
        assert_eq!(record_of(&whole), whole.config());
        make_folder(part.folder()).unwrap();
        std::fs::write(part.config(), "").unwrap();
        assert_eq!(record_of(&part), part.config());
    }

    #[test]
    fn settings_are_those_of_before_only_where_a_checkpoint_is() {
        let folder = tempfile::tempdir().unwrap();
        let layout = RunLayout::new(folder.path());
        let text = include_str!("../../configs/quickstart.toml");
        let resume_with = |size: usize| {
            let config = RunConfig::parse(text, &[format!("grpo.group_size={size}")]).unwrap();
            let config = config.resolve(None).unwrap();
            keep_settings(&config, &layout, None, None, true, &()).unwrap();
            let kept = Resolved::read(&layout.config(), &[], None).unwrap();
            kept.grpo.group_size
        };
        assert_eq!([resume_with(8), resume_with(3)], [8, 3]);
        for place in [layout.part("control"), layout.clone()] {
            let checkpoint = place.checkpoints().join("step-000001");
            make_folder(&checkpoint).unwrap();
            assert_eq!(resume_with(4), 3);
            std::fs::remove_dir(&checkpoint).unwrap();
        }
        assert_eq!(resume_with(4), 4);
    }

    #[test]
    fn a_sampler_may_move_between_processes() {
        let of = |rest: &str| digest_with(&[&format!("sampler={{ kind = \"sglang\", {rest} }}")]);
        let first = of("url = \"http://a\", context = 320");
        let moved = of("url = \"http://b:1\", context = 320, dtype = \"bf16\", retries = 9");
        assert_eq!(first, moved);
        assert_ne!(first, of("url = \"http://a\", context = 321"));
    }

    #[test]
    fn another_card_of_a_kind_may_go_on() {
        let of = |device: &str| {
            digest_with(&[
                &format!("device=\"{device}\""),
                &format!("retriever.device=\"{device}\""),
                // A card that is not here has no types of its own.
                "engine.dtype=\"f32\"",
                "grpo.update.dtype=\"f32\"",
            ])
        };
        for kind in ["cuda", "rocm", "wgpu", "vulkan", "metal"] {
            let first = of(&format!("{kind}:0"));
            assert_eq!(first, of(&format!("{kind}:3")), "{kind}");
            assert_ne!(first, of("cpu"), "{kind}");
        }
        assert_ne!(of("wgpu:0"), of("wgpu:cpu"));
    }

    #[test]
    fn the_patience_with_a_server_may_change_between_processes() {
        let patient = digest_with(&["policy.server.retries=9"]);
        assert_eq!(patient, digest_with(&["policy.server.retries=0"]));
    }

    #[test]
    fn a_server_of_the_environment_may_move_between_processes() {
        let of = |settings: &str| {
            let settings =
                format!("environment={{ id = \"external\", settings = {{ {settings} }} }}");
            digest_with(&[&settings])
        };
        let first = of("url = [\"http://127.0.0.1:35269\"], max_turn_tokens = 9");
        assert_eq!(first, of("url = \"http://a:1\", max_turn_tokens = 9"));
        assert_ne!(first, of("url = \"http://a:1\", max_turn_tokens = 8"));
    }

    #[test]
    fn a_server_of_passages_may_move_between_processes() {
        let of = |remote: &str| digest_with(&[&format!("retriever={{ remote = {{ {remote} }} }}")]);
        let first = of("kind = \"search-r1\", url = \"http://a\"");
        let moved = "kind = \"search-r1\", url = \"http://b:1\", batch_queries = 8, http = { timeout_ms = 9, attempts = 9 }";
        assert_eq!(first, of(moved));
        assert_ne!(
            first,
            of("kind = \"search-r1\", url = \"http://a\", mode = \"boolean\"")
        );
        let shards = of("kind = \"shards\", urls = [\"http://a\", \"http://b\"]");
        assert_eq!(
            shards,
            of("kind = \"shards\", urls = [\"http://b\", \"http://c\"]")
        );
        let of_index = |index: &str| {
            of(&format!(
                "kind = \"elasticsearch\", url = \"http://a\", index = \"{index}\""
            ))
        };
        assert_ne!(of_index("one"), of_index("two"));
    }

    #[test]
    fn moments_may_be_sharded_by_a_later_process() {
        let of = |key: &str| digest_with(&[&format!("grpo.update.optimizer.{key}")]);
        assert_eq!(of("sharded=true"), of("sharded=false"));
        assert_ne!(of("sharded=true"), of("moments_in_8_bits=true"));
    }

    #[test]
    fn a_judge_may_move_and_cost_more_between_processes() {
        let with = |rest: &str, more: &str| {
            let judge = format!("reward.judge={{ weight = 1.0, model = \"m\", {rest} }}");
            digest_with(&[&judge, more])
        };
        let of = |rest: &str| with(rest, "grpo.steps=1");
        let first = of("url = \"http://a\"");
        assert_eq!(first, with("url = \"http://a\"", "grpo.fault_share=0.2"));
        assert_eq!(
            first,
            of("url = \"http://b:1\", max_calls = 9, cache = \"c\", attempts = 1")
        );
        assert_ne!(first, of("url = \"http://a\", rubric = [\"It is short.\"]"));
    }
}

//! Rejection sampling: demonstrations from a policy's own best episodes.

use std::path::PathBuf;

use forage_contracts::policy::Sampling;
use forage_contracts::seed::Seed;
use forage_env::{
    EpisodeRecord, EpisodeWriter, InfraBudget, Job, Keep, Rejection, RejectionCounts, Rollout,
};
use forage_trainer::run::group_jobs;
use serde_json::json;

use crate::config::{EvaluationConfig, Generation, Resolved};
use crate::data::{Corpus, Data, Tasks, first};
use crate::error::{Context, Result, RunError, bail};
use crate::evaluate::{Opening, Player, fault_budget, is_script};
use crate::lock::FileLock;
use crate::observer::Observer;
use crate::policy::{is_server, start_of, taught_another};
use crate::runtime::runtime;
use crate::session::Session;
use crate::splits::too_few_of;
use crate::unfinished::{Unfinished, check, record_of, settings};

/// The policy, the amount of play, and the rule of what is kept.
#[derive(Clone, Debug)]
pub struct CollectOptions {
    /// A folder, a name on the hub or a server by its address, as of an evaluation; the config's policy by default.
    pub policy: Option<String>,
    /// The model to ask a server for; its only one by default.
    pub model: Option<String>,
    /// File with the access token of a server.
    pub token_file: Option<PathBuf>,
    /// Episodes per question.
    pub samples: usize,
    /// The file of what is kept.
    pub out: PathBuf,
    /// The best episode of a question, or all that earned enough.
    pub keep: Keep,
    /// Least reward of an episode that is kept.
    pub min_reward: f32,
    /// Softmax temperature; the config's of training by default.
    pub temperature: Option<f32>,
    /// Most questions; all of the config's training questions by default.
    pub questions: Option<usize>,
    /// File for what the retriever answers.
    pub record_tools: Option<PathBuf>,
    /// Goes on with what was stopped on its way to this file.
    pub resume: bool,
}

/// The questions so far and what became of their episodes; `None` before the first.
type Begun = Unfinished<Option<RejectionCounts>>;

/// Batches of the engine that are in flight together: while the last episodes of a batch end, the first of the next begin.
const BATCHES: usize = 4;

/// Plays the training questions of a config several times each and keeps the episodes worth imitating; the file appears when it
/// is complete, and one that is stopped leaves what it has with the ending `.partial`, with which another process goes on. Blocks; not
/// to be called from async code.
///
/// # Errors
/// When an option is out of range, another process writes the same files, a part of the config cannot be had, too many episodes
/// are lost to infrastructure faults, none is worth keeping, it is stopped on the way, there is nothing to resume, or what is there was
/// begun with other settings.
pub fn collect(
    config: &Resolved,
    options: &CollectOptions,
    observer: &dyn Observer,
) -> Result<RejectionCounts> {
    options.sampling().check().in_config("--temperature")?;
    if options.samples == 0 || options.questions == Some(0) || !options.min_reward.is_finite() {
        return Err(RunError::config(
            "--samples and --questions must be at least 1, --min-reward a number",
        ));
    }
    EvaluationConfig::check_asked(options.samples)?;
    let mut options = options.clone();
    if options.out.is_symlink() {
        // The link stays, and what it leads to is replaced.
        let cannot = || format!("cannot write {}", options.out.display());
        options.out = options.out.canonicalize().with_context(cannot)?;
    }
    let record = record_of(&options.out);
    let written = [&options.out, &record].into_iter();
    let _locks = FileLock::take_all(written.chain(&options.record_tools))?;
    if options.resume {
        check(&record)?;
    }
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let data = Data::load(config, scratch.path())?;
    let tasks = first(&data.train, options.questions);
    if tasks.is_empty() {
        return Err(RunError::config_because(
            "there are no questions to play",
            "name some: data.files.train, or data.train_questions of a world or of [data.own]",
        ));
    }
    let option = ("--questions", options.questions);
    let key = ("data.train_questions", config.data.train_questions);
    if let Some(few) = too_few_of(option, key, tasks.len()) {
        observer.warn(&few);
    }
    let corpus = data.corpus.recorded(options.record_tools.as_deref())?;
    let generation = config.generation();
    let opening = options.opening(config, &generation)?;
    if let Some(other) = taught_another(opening.name, opening.environment) {
        observer.warn(&format!("warning: {other}"));
    }
    let player = options.player(config, &opening, &tasks)?;
    let mut about = settings(
        &config.environment,
        Some(config),
        &corpus,
        &tasks,
        config.seed,
    )?;
    about["policy"] = opening.identity()?;
    about["base"] = json!(config.policy.base);
    about["samples"] = options.samples.into();
    about["keep"] = json!(options.keep);
    about["min_reward"] = options.min_reward.into();
    about["temperature"] = match options.temperature {
        Some(temperature) => json!([temperature, temperature]),
        None => json!(config.grpo.update.temperature),
    };
    let unfinished = Begun::begin(record, about, options.resume, observer)?;
    let seed = Seed::root(config.seed).child("collect", &[]);
    let jobs = options.jobs(config, &tasks, seed);
    let counts = options.gather(config, &corpus, player, &jobs, Some(&unfinished), observer)?;
    unfinished.end()?;
    if counts.kept == 0 {
        bail!(
            "none of {} episodes earned {}; lower --min-reward or raise --samples",
            counts.episodes,
            options.min_reward
        );
    }
    Ok(counts)
}

impl CollectOptions {
    /// The episodes of questions.
    pub(crate) fn jobs(&self, config: &Resolved, tasks: &Tasks, seed: Seed) -> Vec<Job> {
        let mut jobs = group_jobs(tasks, self.samples, seed);
        if self.temperature.is_none() {
            config.grpo.update.temper(&mut jobs);
        }
        jobs
    }

    /// Plays these episodes with this player and writes what is kept; there is no file where nothing is. Options that say who
    /// plays what are not looked at.
    pub(crate) fn gather(
        &self,
        config: &Resolved,
        corpus: &Corpus,
        player: Player,
        jobs: &[Job],
        unfinished: Option<&Begun>,
        observer: &dyn Observer,
    ) -> Result<RejectionCounts> {
        let rewards = config.rewards()?;
        let session = Session::new(
            &config.environment,
            rewards,
            corpus,
            player.format,
            observer,
        )?;
        let rollout = session.rollout(player.policy, self.sampling())?;
        let bounds = [config.engine.sequences, player.in_flight];
        let budget = fault_budget(config);
        let counts = self.play(&rollout, jobs, bounds, budget, unfinished, observer)?;
        if let Some(caveat) = rollout.policy.caveat() {
            observer.warn(&caveat);
        }
        Ok(counts)
    }

    fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(Sampling::FULL.temperature),
            ..Sampling::FULL
        }
    }

    /// Says who plays.
    fn opening<'a>(
        &'a self,
        config: &'a Resolved,
        generation: &'a Generation,
    ) -> Result<Opening<'a>> {
        let opening = Opening {
            model: self.model.as_deref(),
            token_file: self.token_file.clone(),
            ..Opening::of(config, self.policy.as_deref(), generation)
        };
        if is_script(opening.name) {
            return Err(RunError::config_because(
                format!("--policy {}: scripts play in bytes", opening.name),
                "forage eval --policy SCRIPT --tokens-of POLICY --out FILE writes their demonstrations",
            ));
        }
        Ok(opening)
    }

    /// Opens who plays.
    fn player(&self, config: &Resolved, opening: &Opening<'_>, tasks: &Tasks) -> Result<Player> {
        if self.policy.is_some() || opening.sampler.is_some() || is_server(opening.name) {
            return opening.open(tasks);
        }
        // In the precision of the config.
        Player::here(&start_of(config)?, opening.chat, opening.generation)
    }

    /// Tells whether the file is there, with so many episodes.
    fn holds(&self, kept: usize) -> Result<bool> {
        if !self.out.exists() {
            return Ok(false);
        }
        Ok(EpisodeRecord::read_all(&self.out)?.count() == kept)
    }

    /// Plays the jobs some questions at a time and writes what is kept, from where another process was stopped. The bounds are the
    /// sequences of an engine and the episodes in flight.
    fn play(
        &self,
        rollout: &Rollout,
        jobs: &[Job],
        [sequences, in_flight]: [usize; 2],
        budget: InfraBudget,
        unfinished: Option<&Begun>,
        observer: &dyn Observer,
    ) -> Result<RejectionCounts> {
        let mut rejection = Rejection::new(self.keep, self.min_reward);
        let mut writer = match unfinished.and_then(Begun::done) {
            None => EpisodeWriter::create(&self.out)?,
            Some(counts) => {
                // What was written after the last record is of questions that are played again.
                let (writer, kept) = EpisodeWriter::resume(&self.out, counts.kept)?;
                if kept.len() < counts.kept {
                    // Who is killed in between has given the file its name and left the record.
                    if counts.episodes == jobs.len() && self.holds(counts.kept)? {
                        writer.discard()?;
                        return Ok(counts);
                    }
                    bail!(
                        "{} has {} of {} episodes that were kept; remove {} to begin anew",
                        writer.partial().display(),
                        kept.len(),
                        counts.kept,
                        record_of(&self.out).display()
                    );
                }
                rejection = rejection.after(counts, &kept);
                writer
            }
        };
        let jobs = jobs.get(rejection.counts().episodes..).unwrap_or_default();
        let left = (jobs.len() / self.samples) as u64;
        let total = rejection.counts().questions as u64 + left;
        let together = (BATCHES * sequences).div_ceil(self.samples) * self.samples;
        for batch in jobs.chunks(together) {
            let played = rollout.run_bounded(batch.to_vec(), in_flight, &|_| {});
            let episodes = runtime()?.block_on(played);
            budget
                .check(&episodes)
                .context("too many episodes were lost to infrastructure faults")?;
            let mut episodes = episodes.into_iter();
            while episodes.len() > 0 {
                for episode in rejection.choose(episodes.by_ref().take(self.samples).collect()) {
                    writer.write(episode)?;
                }
            }
            let counts = rejection.counts();
            if let Some(unfinished) = unfinished {
                unfinished.keep(Some(counts))?;
            }
            let shown = format!("{} episodes kept", counts.kept);
            observer.progress("collect", counts.questions as u64, total, &shown);
            if observer.is_stopped() && (counts.questions as u64) < total {
                let played = format!(
                    "interrupted after {} of {total} questions",
                    counts.questions
                );
                let goes_on = if unfinished.is_some() {
                    "; --resume goes on"
                } else {
                    ""
                };
                if counts.kept == 0 {
                    if unfinished.is_none() {
                        writer.discard()?;
                    }
                    return Err(RunError::stopped(format!(
                        "{played}; nothing of them is worth keeping{goes_on}"
                    )));
                }
                let left = writer.partial().display();
                return Err(RunError::stopped(format!(
                    "{played}; the {shown} are in {left}, which forage sft takes as it is{goes_on}"
                )));
            }
        }
        let counts = rejection.counts();
        if counts.kept == 0 {
            writer.discard()?;
        } else {
            writer.finish()?;
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::Split;
    use forage_trainer::device::DeviceSpec;

    use super::*;
    use crate::evaluate::EvaluateOptions;
    use crate::retrieval::RetrieverConfig;
    use crate::sources::Sources;

    /// Stops what it follows as soon as it can.
    struct Stopping;

    impl Observer for Stopping {
        fn is_stopped(&self) -> bool {
            true
        }
    }

    fn oracle(questions: usize) -> (Rollout, Vec<Job>) {
        let sources = Sources {
            environment: "search-r1",
            questions: None,
            index: None,
            corpus: None,
            retrieval: &RetrieverConfig::default(),
            split: Split::Test,
            limit: Some(questions),
            usual: questions,
            pages: Some(100),
            seed: 1,
        };
        let scratch = tempfile::tempdir().unwrap();
        let (corpus, tasks) = sources.open(scratch.path()).unwrap();
        let oracle = EvaluateOptions {
            policy: Some("oracle".to_owned()),
            ..EvaluateOptions::default()
        };
        let rollout = sources.rollout(DeviceSpec::Cpu, &oracle, &corpus, &tasks, &());
        (rollout.unwrap(), group_jobs(&tasks, 2, Seed::root(1)))
    }

    fn options(out: PathBuf, min_reward: f32) -> CollectOptions {
        CollectOptions {
            policy: None,
            model: None,
            token_file: None,
            samples: 2,
            out,
            keep: Keep::Best,
            min_reward,
            temperature: None,
            questions: None,
            record_tools: None,
            resume: false,
        }
    }

    /// Plays batches of four episodes, two questions.
    fn play(
        (rollout, jobs): &(Rollout, Vec<Job>),
        options: &CollectOptions,
        unfinished: Option<&Begun>,
        observer: &dyn Observer,
    ) -> Result<RejectionCounts, String> {
        let (bounds, budget) = ([1, usize::MAX], InfraBudget::default());
        let played = options.play(rollout, jobs, bounds, budget, unfinished, observer);
        played.map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_kept_is_left_by_who_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("kept.jsonl");
        let oracle = oracle(4);
        let stopped = |min_reward: f32| {
            let options = options(out.clone(), min_reward);
            play(&oracle, &options, None, &Stopping).unwrap_err()
        };
        let partial = folder.path().join("kept.jsonl.partial");
        let words = stopped(2.0);
        assert!(words.contains("nothing of them"), "{words}");
        assert!(!partial.exists());
        let words = stopped(1.0);
        assert!(
            words.contains("after 2 of 4 questions; the 2 episodes kept are in "),
            "{words}"
        );
        let left = std::fs::read_to_string(&partial).unwrap();
        assert!(left.lines().count() == 2 && !out.exists());
    }

    #[test]
    fn who_was_stopped_again_and_again_keeps_what_an_unbroken_run_keeps() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let oracle = oracle(6);
        let whole = options(place("whole.jsonl"), 1.0);
        let expected = play(&oracle, &whole, None, &()).unwrap();
        let broken = options(place("broken.jsonl"), 1.0);
        let begin = |resume: bool| {
            let record = record_of(&broken.out);
            Begun::begin(record, json!({ "seed": 1 }), resume, &()).unwrap()
        };
        for (resume, after) in [(false, 2), (true, 4)] {
            let words = play(&oracle, &broken, Some(&begin(resume)), &Stopping).unwrap_err();
            let told = format!("after {after} of 6 questions");
            assert!(
                words.contains(&told) && words.ends_with("; --resume goes on"),
                "{words}"
            );
            // A process that is killed may have written more than it has recorded.
            let partial = place("broken.jsonl.partial");
            let mut text = std::fs::read(&partial).unwrap();
            text.extend_from_within(..);
            std::fs::write(&partial, text).unwrap();
        }
        let found = play(&oracle, &broken, Some(&begin(true)), &()).unwrap();
        assert_eq!(found, expected);
        let read = |options: &CollectOptions| std::fs::read_to_string(&options.out).unwrap();
        assert_eq!(read(&broken), read(&whole));
        assert_eq!(read(&whole).lines().count(), 6);
        // Killed when the file has its name, and before the record is removed.
        let found = play(&oracle, &broken, Some(&begin(true)), &()).unwrap();
        assert_eq!(found, expected);
        assert_eq!(read(&broken), read(&whole));
        assert!(!place("broken.jsonl.partial").exists());
        std::fs::remove_file(&broken.out).unwrap();
        let words = play(&oracle, &broken, Some(&begin(true)), &()).unwrap_err();
        assert!(
            words.contains("has 0 of 6") && words.contains("resume.json"),
            "{words}"
        );
    }
}

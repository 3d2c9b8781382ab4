//! Rejection sampling: demonstrations from a policy's own best episodes.

use std::path::PathBuf;

use forage_contracts::policy::Sampling;
use forage_contracts::seed::Seed;
use forage_env::{EpisodeWriter, InfraBudget, Job, Keep, Rejection, RejectionCounts, Rollout};
use forage_trainer::run::group_jobs;

use crate::config::Resolved;
use crate::data::{Corpus, Data, Tasks, first};
use crate::error::{Context, Result, RunError, bail};
use crate::evaluate::{Opening, Player, fault_budget, is_script};
use crate::lock::FileLock;
use crate::observer::Observer;
use crate::policy::{is_server, start_of};
use crate::runtime::runtime;
use crate::session::Session;

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
}

/// Batches of the engine that are in flight together: while the last episodes of a batch end, the first of the next begin.
const BATCHES: usize = 4;

/// Plays the training questions of a config several times each and keeps the episodes worth imitating; the file appears when it
/// is complete, and one that is stopped leaves what it has with the ending `.partial`. Blocks; not to be called from async code.
///
/// # Errors
/// When an option is out of range, another process writes the same files, a part of the config cannot be had, too many episodes
/// are lost to infrastructure faults, none is worth keeping, or it is stopped on the way.
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
    let _locks = FileLock::take_all(std::iter::once(&options.out).chain(&options.record_tools))?;
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let data = Data::load(config, scratch.path())?;
    let tasks = first(&data.train, options.questions);
    let corpus = data.corpus.recorded(options.record_tools.as_deref())?;
    let player = options.player(config, &tasks)?;
    let seed = Seed::root(config.seed).child("collect", &[]);
    let counts = options.gather(config, &corpus, player, &tasks, seed, observer)?;
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
    /// Plays these questions with this player and writes what is kept; there is no file where nothing is. Options that say who
    /// plays what are not looked at.
    pub(crate) fn gather(
        &self,
        config: &Resolved,
        corpus: &Corpus,
        player: Player,
        tasks: &Tasks,
        seed: Seed,
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
        let mut jobs = group_jobs(tasks, self.samples, seed);
        if self.temperature.is_none() {
            config.grpo.update.temper(&mut jobs);
        }
        let bounds = [config.engine.sequences, player.in_flight];
        self.play(&rollout, &jobs, bounds, fault_budget(config), observer)
    }

    fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(Sampling::FULL.temperature),
            ..Sampling::FULL
        }
    }

    /// Opens who plays.
    fn player(&self, config: &Resolved, tasks: &Tasks) -> Result<Player> {
        let generation = config.generation();
        let opening = Opening {
            model: self.model.as_deref(),
            token_file: self.token_file.clone(),
            ..Opening::of(config, self.policy.as_deref(), &generation)
        };
        if is_script(opening.name) {
            return Err(RunError::config_because(
                format!("--policy {}: scripts play in bytes", opening.name),
                "forage eval --policy SCRIPT --tokens-of POLICY --out FILE writes their demonstrations",
            ));
        }
        if self.policy.is_some() || opening.sampler.is_some() || is_server(opening.name) {
            return opening.open(tasks);
        }
        // In the precision of the config.
        Player::here(&start_of(config)?, opening.chat, &generation)
    }

    /// Plays the jobs some questions at a time and writes what is kept. The bounds are the sequences of an engine and the episodes in
    /// flight.
    fn play(
        &self,
        rollout: &Rollout,
        jobs: &[Job],
        [sequences, in_flight]: [usize; 2],
        budget: InfraBudget,
        observer: &dyn Observer,
    ) -> Result<RejectionCounts> {
        let mut writer = EpisodeWriter::create(&self.out)?;
        let mut rejection = Rejection::new(self.keep, self.min_reward);
        let total = (jobs.len() / self.samples) as u64;
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
            let shown = format!("{} episodes kept", counts.kept);
            observer.progress("collect", counts.questions as u64, total, &shown);
            if observer.is_stopped() && (counts.questions as u64) < total {
                let played = format!(
                    "interrupted after {} of {total} questions",
                    counts.questions
                );
                if counts.kept == 0 {
                    writer.discard()?;
                    bail!("{played}; nothing of them is worth keeping");
                }
                let left = writer.partial().display();
                bail!("{played}; the {shown} are in {left}, which forage sft takes as it is");
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

    #[test]
    fn what_is_kept_is_left_by_who_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("kept.jsonl");
        let sources = Sources {
            environment: "search-r1",
            questions: None,
            index: None,
            corpus: None,
            retrieval: &RetrieverConfig::default(),
            split: Split::Test,
            limit: Some(4),
            usual: 4,
            pages: Some(100),
            seed: 1,
        };
        let (corpus, tasks) = sources.open(folder.path()).unwrap();
        let oracle = EvaluateOptions {
            policy: Some("oracle".to_owned()),
            ..EvaluateOptions::default()
        };
        let rollout = sources.rollout(DeviceSpec::Cpu, &oracle, &corpus, &tasks, &());
        let rollout = rollout.unwrap();
        let jobs = group_jobs(&tasks, 2, Seed::root(1));
        let stopped = |min_reward: f32| {
            let options = CollectOptions {
                policy: None,
                model: None,
                token_file: None,
                samples: 2,
                out: out.clone(),
                keep: Keep::Best,
                min_reward,
                temperature: None,
                questions: None,
                record_tools: None,
            };
            // Batches of four episodes, two questions.
            let bounds = [1, usize::MAX];
            let budget = InfraBudget::default();
            let found = options.play(&rollout, &jobs, bounds, budget, &Stopping);
            found.unwrap_err().to_string()
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
}

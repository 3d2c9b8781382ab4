//! A GRPO run: roll out, score, improve, log, checkpoint; resumable at every checkpoint.

mod jobs;
mod replay;
mod rows;
mod step;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use forage_env::environment::EnvFactory;
use forage_env::episode::Episode;
use forage_env::policy::Sampling;
use forage_env::registry::{self, RegistryError};
use forage_env::reward::RewardSet;
use forage_env::rollout::{BudgetExceeded, InfraBudget, Presentation, Rollout};
use forage_env::seed::Seed;
use forage_env::task::Task;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

pub use jobs::group_jobs;
pub(crate) use jobs::shuffled;
use jobs::{step_tasks, tree_jobs};
use replay::Buffer;
pub use replay::ReplayConfig;
use rows::{describe_episodes, describe_replay, describe_update};

use crate::checkpoint::CheckpointError;
use crate::learner::{LearnError, Learner, UpdateConfig, UpdateStats};
use crate::metrics::{MetricsError, Row};
use crate::objective::Credit;
use crate::records::{Records, Saving, Snapshot, newest};
use crate::sample::Sample;
use crate::watch::{Alarm, Sentinel, SentinelConfig, Severity, TextFacts};

/// Shape of a GRPO run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GrpoConfig {
    /// Rollout batches, one optimizer step each.
    pub steps: u64,
    /// Questions per step, those of replayed groups included.
    pub prompts_per_step: usize,
    /// Episodes per question.
    pub group_size: usize,
    /// Episodes of a group that are played from the beginning; the others leave them in turn, each after some of its turns. All
    /// of them without it.
    pub trees: Option<usize>,
    /// Loss, optimizer, temperature.
    pub update: UpdateConfig,
    /// Steps between checkpoints; 0 writes only the last.
    pub checkpoint_every: u64,
    /// Checkpoints kept.
    pub keep_checkpoints: usize,
    /// Steps between greedy evaluations on the development questions; 0 for none.
    pub evaluate_every: u64,
    /// Plays the episodes of the next step while this one is learned from: they are one update old, for which the ratio (and
    /// a correction, if the objective has one) makes up.
    pub lookahead: bool,
    /// Takes a part of each batch from earlier steps; none without it.
    pub replay: Option<ReplayConfig>,
    /// What raises an alarm, and whether a grave one stops the run.
    pub sentinel: SentinelConfig,
}

impl Default for GrpoConfig {
    fn default() -> Self {
        Self {
            steps: 100,
            prompts_per_step: 16,
            group_size: 8,
            trees: None,
            update: UpdateConfig::default(),
            checkpoint_every: 50,
            keep_checkpoints: 2,
            evaluate_every: 0,
            lookahead: false,
            replay: None,
            sentinel: SentinelConfig::default(),
        }
    }
}

impl GrpoConfig {
    /// Questions that a step plays: those per step without the replayed.
    pub fn prompts_played(&self) -> usize {
        self.prompts_per_step - self.replay.map_or(0, |replay| replay.groups(self.prompts_per_step))
    }

    /// Checks that trees and the credit fit the group.
    ///
    /// # Errors
    /// A sentence that names the key at fault and the fix.
    pub fn check_trees(&self) -> Result<(), String> {
        let credit = self.update.objective.recipe(1).credit;
        match self.trees {
            Some(trees) if trees == 0 || trees >= self.group_size => Err(format!(
                "trees is {trees}: write 1 to {}, or leave it out where every episode begins anew",
                self.group_size.saturating_sub(1)
            )),
            None if credit == Credit::Tree => {
                Err("credit tree compares episodes that left one another; set grpo.trees".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Checks what is replayed, if anything is.
    ///
    /// # Errors
    /// A sentence that names the key at fault and the fix.
    pub fn check_replay(&self) -> Result<(), String> {
        self.replay.map_or(Ok(()), |replay| replay.check(self.prompts_per_step, &self.update))
    }
}

/// What a run plays.
#[derive(Clone)]
pub struct Problem {
    /// Makes environments.
    pub factory: Arc<dyn EnvFactory>,
    /// Scores episodes.
    pub rewards: Arc<RewardSet>,
    /// Questions to learn from, visited in a seeded order that changes every epoch.
    pub train: Arc<[Arc<Task>]>,
    /// Questions for the evaluations during the run.
    pub dev: Arc<[Arc<Task>]>,
    /// How the policy reads an environment's text.
    pub presentation: Presentation,
}

/// Where rollouts come from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// The policy plays.
    Play(&'a Problem),
    /// They were recorded: each step takes the next groups, around and around.
    Recorded(&'a [Vec<Sample>]),
}

/// Where a run writes and where its randomness starts.
#[derive(Clone, Debug)]
pub struct RunPlace {
    /// The run's folder.
    pub folder: PathBuf,
    /// Its seed.
    pub seed: u64,
    /// Digest of everything that shapes the run.
    pub config_digest: String,
    /// Continue from the newest checkpoint if there is one.
    pub resume: bool,
}

/// A run that could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The update failed.
    #[error("step {step} failed")]
    Learn {
        /// The step.
        step: u64,
        /// Why.
        source: LearnError,
    },
    /// A checkpoint could not be written or read.
    #[error("the run cannot be saved or resumed")]
    Checkpoint(#[from] CheckpointError),
    /// The sentinel's settings are out of range.
    #[error("grpo.sentinel: {0}")]
    Sentinel(String),
    /// Rollouts cannot be replayed as the settings say.
    #[error("grpo.replay: {0}")]
    Replay(String),
    /// Metrics could not be written.
    #[error("metrics cannot be kept")]
    Metrics(#[from] MetricsError),
    /// Too many episodes were lost to faults of ours.
    #[error("step {step} lost too many episodes to infrastructure faults")]
    Infra {
        /// The step.
        step: u64,
        /// What is down.
        source: BudgetExceeded,
    },
    /// The run was asked to stop; a checkpoint holds its state.
    #[error("interrupted after step {step}; the checkpoint in {folder} holds the run; continue with --resume")]
    Interrupted {
        /// Steps done.
        step: u64,
        /// Where the checkpoint is.
        folder: PathBuf,
    },
    /// The sentinel raised a grave alarm; a checkpoint holds the run's state.
    #[error(
        "paused after step {step}: {diagnosis} The checkpoint in {folder} holds the run as it is now: continue it with --resume, or \
         fork an earlier one with --from; grpo.sentinel.stop = false only warns"
    )]
    Paused {
        /// Steps done.
        step: u64,
        /// What happened, in words.
        diagnosis: String,
        /// Where the checkpoint is.
        folder: PathBuf,
    },
    /// The environment cannot be demonstrated.
    #[error("there are no demonstrations")]
    Demonstrations(#[from] RegistryError),
    /// There is nothing to learn from.
    #[error("there are no training questions; give the run at least one")]
    NoTasks,
    /// No demonstration of a step reached its answer.
    #[error("step {step}: none of {tried} demonstrations reached the answer; raise the environment's limits")]
    NoDemonstrations {
        /// The step.
        step: u64,
        /// Demonstrations played.
        tried: usize,
    },
}

/// What the caller says after each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Write a checkpoint and stop.
    Stop,
}

/// Runs GRPO to its last step. `watch` sees each step's metrics row, its episodes (recorded rollouts have none) and the alarms
/// it raised.
///
/// # Errors
/// [`RunError`]; what was checkpointed can be resumed.
pub async fn run_grpo(
    learner: &mut Learner,
    source: Source<'_>,
    config: &GrpoConfig,
    place: &RunPlace,
    mut watch: impl FnMut(&Row, &[Episode], &[Alarm]) -> Control,
) -> Result<(), RunError> {
    let empty = match source {
        Source::Play(problem) => problem.train.is_empty(),
        Source::Recorded(groups) => groups.is_empty(),
    };
    if empty {
        return Err(RunError::NoTasks);
    }
    let plays = matches!(source, Source::Play(_));
    config.check_replay().map_err(RunError::Replay)?;
    if config.replay.is_some() && !plays {
        let fix = "recorded rollouts are used again and again as it is; leave it out";
        return Err(RunError::Replay(fix.to_owned()));
    }
    let sentinel = Sentinel::new(config.sentinel, plays).map_err(RunError::Sentinel)?;
    let mut run = Run { learner, source, config, place, sentinel, ahead: None, buffer: Buffer::default() };
    let first = run.restore().await?;
    run.learner.announce().await.map_err(|source| RunError::Learn { step: first, source })?;
    let saving = Saving { every: config.checkpoint_every, keep: config.keep_checkpoints };
    let mut records = Records::open(place, saving, config.steps, first)?;
    for step in first..config.steps {
        let (mut row, episodes) = run.step(step).await?;
        let facts = TextFacts::of(&episodes);
        if let Some(facts) = &facts {
            row.set("response/repeated_frac", facts.repeated_frac);
        }
        records.write(&row)?;
        let alarms = run.sentinel.observe(&row, facts.as_ref());
        let control = watch(&row, &episodes, &alarms);
        let grave = alarms.iter().find(|alarm| alarm.severity == Severity::Stop && config.sentinel.stop);
        let saved = records.close(step, control, grave.is_some(), || run.snapshot())?;
        if let (Some(alarm), Some(folder)) = (grave, saved) {
            return Err(RunError::Paused { step: step + 1, diagnosis: alarm.message.clone(), folder });
        }
    }
    Ok(())
}

/// A run between two steps.
struct Run<'a> {
    learner: &'a mut Learner,
    source: Source<'a>,
    config: &'a GrpoConfig,
    place: &'a RunPlace,
    sentinel: Sentinel,
    /// Episodes of the next step, played while the last one was learned from.
    ahead: Option<Vec<Episode>>,
    /// Groups of earlier steps; empty where none are replayed.
    buffer: Buffer,
}

impl Run<'_> {
    /// The questions of a step; none where rollouts are recorded.
    fn tasks(&self, step: u64) -> Vec<Arc<Task>> {
        match self.source {
            Source::Play(problem) => step_tasks(&problem.train, self.config.prompts_played(), self.place.seed, step),
            Source::Recorded(_) => Vec::new(),
        }
    }

    /// Plays a group of episodes per task, unless that was done while the last step was learned from.
    async fn rollouts(&mut self, tasks: &[Arc<Task>], step: u64, row: &mut Row) -> Result<Vec<Episode>, RunError> {
        let Source::Play(problem) = self.source else { return Ok(Vec::new()) };
        let started = Instant::now();
        let episodes = match self.ahead.take() {
            Some(episodes) => episodes,
            None => self.play(problem, tasks, step).await,
        };
        InfraBudget::default().check(&episodes).map_err(|source| RunError::Infra { step, source })?;
        describe_episodes(row, &episodes, self.learner.optimizer().steps());
        if let Ok(entry) = registry::find(&problem.factory.spec().id) {
            (entry.metrics)(&episodes, &mut |name, value| row.set(name, value));
        }
        row.set("time/rollout_s", started.elapsed().as_secs_f64());
        Ok(episodes)
    }

    /// Starts the episodes of the next step under the weights of this one.
    fn look_ahead(&self, step: u64) -> Option<JoinHandle<Vec<Episode>>> {
        let Source::Play(problem) = self.source else { return None };
        let next = step + 1;
        let due = self.config.lookahead && next < self.config.steps;
        due.then(|| tokio::spawn(self.play(problem, &self.tasks(next), next)))
    }

    /// Waits for the episodes of the next step. They are all of the weights before this step's update: how old they are does
    /// not depend on timing.
    async fn wait_for(&mut self, ahead: Option<JoinHandle<Vec<Episode>>>, row: &mut Row) {
        if let Some(ahead) = ahead {
            let started = Instant::now();
            self.ahead = Some(ahead.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())));
            row.set("time/wait_s", started.elapsed().as_secs_f64());
        }
    }

    /// The groups that a step learns from: those just played, then those replayed, or the next recorded ones. The played are
    /// kept for later steps.
    fn groups(&mut self, episodes: &[Episode], step: u64, row: &mut Row) -> Vec<Vec<Sample>> {
        if let Source::Recorded(groups) = self.source {
            let count = self.config.prompts_per_step.min(groups.len());
            let first = step as usize * count;
            return (first..first + count).map(|index| groups[index % groups.len()].clone()).collect();
        }
        let played = || episodes.chunks(self.config.group_size);
        let samples = |group: &[Episode]| group.iter().filter_map(Sample::of).collect();
        let mut groups: Vec<Vec<Sample>> = played().map(samples).collect();
        if let Some(replay) = self.config.replay {
            let seed = Seed::root(self.place.seed).child("replay", &[step]);
            let drawn = self.buffer.draw(replay.groups(self.config.prompts_per_step), seed);
            describe_replay(row, &drawn, self.learner.optimizer().steps());
            groups.extend(drawn.into_iter().map(samples));
            self.buffer.keep(played(), replay.capacity);
        }
        groups
    }

    /// The episodes of a step's tasks under the weights that were published last.
    fn play(
        &self,
        problem: &Problem,
        tasks: &[Arc<Task>],
        step: u64,
    ) -> impl Future<Output = Vec<Episode>> + Send + use<> {
        let size = self.config.group_size;
        let seed = Seed::root(self.place.seed).child("rollout", &[step]);
        let jobs = tree_jobs(tasks, size, self.config.trees.unwrap_or(size), seed);
        let sampling = Sampling { temperature: self.config.update.temperature, ..Sampling::FULL };
        let rollout = rollout(self.learner, problem, sampling);
        async move { rollout.run(jobs).await }
    }

    /// Hands changed weights to whoever samples. Recorded rollouts were sampled before, and nobody samples beside them.
    async fn sync_weights(&mut self, stats: &UpdateStats, step: u64) -> Result<(), RunError> {
        if stats.updates == 0 || matches!(self.source, Source::Recorded(_)) {
            return Ok(());
        }
        self.learner.publish().await.map_err(|source| RunError::Learn { step, source })
    }

    /// Plays the development questions greedily when it is time to.
    async fn evaluate(&self, step: u64, row: &mut Row) -> Result<(), RunError> {
        let Source::Play(problem) = self.source else { return Ok(()) };
        let due = self.config.evaluate_every > 0 && (step + 1).is_multiple_of(self.config.evaluate_every);
        let seed = Seed::root(self.place.seed);
        if due && let Some(found) = evaluate(self.learner, problem, Sampling::GREEDY, seed, step).await? {
            row.set(&format!("val/{}", problem.factory.spec().outcome.measure()), found);
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            model: self.learner.checkpoint(),
            optimizer: self.learner.optimizer(),
            ahead: self.ahead.as_deref(),
            replay: self.buffer.groups(),
            sentinel: Some(&self.sentinel),
        }
    }

    async fn restore(&mut self) -> Result<u64, RunError> {
        let optimizer = self.config.update.optimizer;
        let Some(restored) = newest(self.place, optimizer, || self.learner.checkpoint())? else { return Ok(0) };
        let step = restored.state.step;
        if let Some(sentinel) = restored.state.sentinel {
            self.sentinel = sentinel;
        }
        self.ahead = restored.ahead;
        if self.config.replay.is_some() {
            self.buffer = Buffer::of(&restored.replay);
        }
        let failed = |source| RunError::Learn { step, source };
        self.learner.restore(restored.decoder, restored.optimizer).await.map_err(failed)?;
        Ok(step)
    }
}

/// Exact match (for queries NDCG@10) on the development questions, one episode each; `None` without questions.
///
/// # Errors
/// [`RunError::Infra`] when too many episodes were lost to faults of ours; `step` names the place in the run.
pub async fn evaluate(
    learner: &Learner,
    problem: &Problem,
    sampling: Sampling,
    seed: Seed,
    step: u64,
) -> Result<Option<f64>, RunError> {
    let jobs = group_jobs(&problem.dev, 1, seed.child("dev", &[]));
    let episodes = rollout(learner, problem, sampling).run(jobs).await;
    InfraBudget::default().check(&episodes).map_err(|source| RunError::Infra { step, source })?;
    Ok(mean_part(&episodes, problem.factory.spec().outcome.measure()))
}

/// One rollout setup on the learner's current weights.
pub fn rollout(learner: &Learner, problem: &Problem, sampling: Sampling) -> Rollout {
    Rollout {
        policy: learner.policy(),
        tokenizer: Arc::new(learner.checkpoint().tokenizer),
        factory: Arc::clone(&problem.factory),
        rewards: Arc::clone(&problem.rewards),
        sampling,
        presentation: problem.presentation.clone(),
    }
}

/// Mean of a reward part over episodes without infrastructure faults; `None` when there are none.
fn mean_part(episodes: &[Episode], name: &str) -> Option<f64> {
    let parts: Vec<f64> =
        episodes.iter().filter_map(|episode| Some(f64::from(*episode.score.as_ref()?.parts.get(name)?))).collect();
    (!parts.is_empty()).then(|| parts.iter().sum::<f64>() / parts.len() as f64)
}

//! A GRPO run: roll out, score, improve, log, checkpoint; resumable at every checkpoint.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use forage_env::environment::{EnvFactory, TurnKind};
use forage_env::episode::{Ending, Episode};
use forage_env::policy::Sampling;
use forage_env::reward::RewardSet;
use forage_env::rollout::{BudgetExceeded, InfraBudget, Job, Presentation, Rollout};
use forage_env::seed::Seed;
use forage_env::task::Task;
use forage_env::tokens::Provenance;
use serde::{Deserialize, Serialize};

use crate::checkpoint::CheckpointError;
use crate::learner::{LearnError, Learner, UpdateConfig, UpdateStats};
use crate::metrics::{MetricsError, Row};
use crate::records::{Records, Saving, newest};
use crate::sample::Sample;

/// Shape of a GRPO run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GrpoConfig {
    /// Rollout batches, one optimizer step each.
    pub steps: u64,
    /// Questions per step.
    pub prompts_per_step: usize,
    /// Episodes per question.
    pub group_size: usize,
    /// Loss, optimizer, temperature.
    pub update: UpdateConfig,
    /// Steps between checkpoints; 0 writes only the last.
    pub checkpoint_every: u64,
    /// Checkpoints kept.
    pub keep_checkpoints: usize,
    /// Steps between greedy evaluations on the development questions; 0 for none.
    pub evaluate_every: u64,
}

impl Default for GrpoConfig {
    fn default() -> Self {
        Self {
            steps: 100,
            prompts_per_step: 16,
            group_size: 8,
            update: UpdateConfig::default(),
            checkpoint_every: 50,
            keep_checkpoints: 2,
            evaluate_every: 0,
        }
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

/// Runs GRPO to its last step. `watch` sees each step's metrics row and episodes; recorded rollouts have none.
///
/// # Errors
/// [`RunError`]; what was checkpointed can be resumed.
pub async fn run_grpo(
    learner: &mut Learner,
    source: Source<'_>,
    config: &GrpoConfig,
    place: &RunPlace,
    mut watch: impl FnMut(&Row, &[Episode]) -> Control,
) -> Result<(), RunError> {
    let empty = match source {
        Source::Play(problem) => problem.train.is_empty(),
        Source::Recorded(groups) => groups.is_empty(),
    };
    if empty {
        return Err(RunError::NoTasks);
    }
    let saving = Saving { every: config.checkpoint_every, keep: config.keep_checkpoints };
    let first = restore(learner, config, place).await?;
    let mut records = Records::open(place, saving, config.steps, first)?;
    for step in first..config.steps {
        let (row, episodes) = match source {
            Source::Play(problem) => train_step(learner, problem, config, place.seed, step).await?,
            Source::Recorded(groups) => (recorded_step(learner, groups, config, step).await?, Vec::new()),
        };
        records.write(&row)?;
        let control = watch(&row, &episodes);
        records.close(step, control, || learner.checkpoint(), learner.optimizer())?;
    }
    Ok(())
}

async fn train_step(
    learner: &mut Learner,
    problem: &Problem,
    config: &GrpoConfig,
    seed: u64,
    step: u64,
) -> Result<(Row, Vec<Episode>), RunError> {
    let started = Instant::now();
    let tasks = step_tasks(&problem.train, config.prompts_per_step, seed, step);
    let jobs = group_jobs(&tasks, config.group_size, Seed::root(seed).child("rollout", &[step]));
    let sampling = Sampling { temperature: config.update.temperature, ..Sampling::FULL };
    let episodes = rollout(learner, problem, sampling).run(jobs).await;
    InfraBudget::default().check(&episodes).map_err(|source| RunError::Infra { step, source })?;
    let rolled_out = Instant::now();
    let groups = episodes.chunks(config.group_size).map(|group| group.iter().filter_map(Sample::of).collect());
    let stats = learner.improve(groups.collect()).await.map_err(|source| RunError::Learn { step, source })?;
    let mut row = Row::new(step);
    describe_episodes(&mut row, &episodes);
    describe_update(&mut row, &stats);
    row.set("time/rollout_s", (rolled_out - started).as_secs_f64());
    row.set("time/update_s", rolled_out.elapsed().as_secs_f64());
    if config.evaluate_every > 0
        && (step + 1).is_multiple_of(config.evaluate_every)
        && let Some(em) = evaluate(learner, problem, Sampling::GREEDY, Seed::root(seed), step).await?
    {
        row.set("val/em", em);
    }
    Ok((row, episodes))
}

async fn recorded_step(
    learner: &mut Learner,
    groups: &[Vec<Sample>],
    config: &GrpoConfig,
    step: u64,
) -> Result<Row, RunError> {
    let started = Instant::now();
    let count = config.prompts_per_step.min(groups.len());
    let first = step as usize * count;
    let batch = (first..first + count).map(|index| groups[index % groups.len()].clone()).collect();
    let stats = learner.improve(batch).await.map_err(|source| RunError::Learn { step, source })?;
    let mut row = Row::new(step);
    describe_update(&mut row, &stats);
    row.set("time/update_s", started.elapsed().as_secs_f64());
    Ok(row)
}

/// Exact match on the development questions, one episode each; `None` without questions.
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
    Ok(mean_part(&episodes, "em"))
}

/// One rollout setup on the learner's current weights.
pub fn rollout(learner: &Learner, problem: &Problem, sampling: Sampling) -> Rollout {
    Rollout {
        policy: learner.engine(),
        tokenizer: Arc::new(learner.checkpoint().tokenizer),
        factory: Arc::clone(&problem.factory),
        rewards: Arc::clone(&problem.rewards),
        sampling,
        presentation: problem.presentation.clone(),
    }
}

/// `group_size` jobs per task, in order.
pub fn group_jobs(tasks: &[Arc<Task>], group_size: usize, seed: Seed) -> Vec<Job> {
    let members = |(group, task): (usize, &Arc<Task>)| {
        let task = Arc::clone(task);
        (0..group_size as u64).map(move |member| Job {
            task: Arc::clone(&task),
            group: group as u64,
            member,
            seed: seed.child("episode", &[group as u64, member]),
        })
    };
    tasks.iter().enumerate().flat_map(members).collect()
}

/// The tasks of a step: a walk through the tasks in an order drawn anew for each epoch, a function of seed and step.
fn step_tasks(tasks: &[Arc<Task>], count: usize, seed: u64, step: u64) -> Vec<Arc<Task>> {
    let first = step as usize * count;
    let mut order = (usize::MAX, Vec::new());
    (first..first + count)
        .map(|index| {
            let epoch = index / tasks.len();
            if order.0 != epoch {
                order = (epoch, shuffled(tasks.len(), Seed::root(seed).child("order", &[epoch as u64])));
            }
            Arc::clone(&tasks[order.1[index % tasks.len()]])
        })
        .collect()
}

/// 0..`count` in the order that `seed` gives.
pub(crate) fn shuffled(count: usize, seed: Seed) -> Vec<usize> {
    use rand::seq::SliceRandom;
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(&mut seed.rng());
    order
}

fn describe_episodes(row: &mut Row, episodes: &[Episode]) {
    let scored: Vec<&Episode> = episodes.iter().filter(|episode| !episode.ending.is_infra()).collect();
    let mean = |value: &dyn Fn(&Episode) -> f64| {
        scored.iter().map(|episode| value(episode)).sum::<f64>() / scored.len().max(1) as f64
    };
    let reward = |episode: &Episode| f64::from(episode.reward().unwrap_or(0.0));
    let average = mean(&reward);
    row.set("reward/mean", average);
    row.set("reward/std", mean(&|episode| (reward(episode) - average).powi(2)).sqrt());
    let names = scored.first().and_then(|episode| episode.score.as_ref()).map(|score| score.parts.keys());
    for name in names.into_iter().flatten() {
        let part = |episode: &Episode| episode.score.as_ref().and_then(|score| score.parts.get(name)).copied();
        row.set(&format!("reward/component/{name}"), mean(&|episode| f64::from(part(episode).unwrap_or(0.0))));
    }
    row.set("response/tokens_mean", mean(&|episode| episode.tokens.count(Provenance::Policy) as f64));
    let response = |episode: &Episode| episode.tokens.len() - episode.tokens.count(Provenance::Prompt);
    row.set("response/tokens_with_observations_mean", mean(&|episode| response(episode) as f64));
    let truncated = |episode: &Episode| matches!(episode.ending, Ending::Truncated { .. });
    row.set("response/truncated_frac", mean(&|episode| f64::from(u8::from(truncated(episode)))));
    row.set("turns/mean", mean(&|episode| episode.turns.len() as f64));
    row.set("search/calls_mean", mean(&|episode| episode.searches() as f64));
    let turns: Vec<_> = scored.iter().flat_map(|episode| &episode.turns).collect();
    let valid = turns.iter().filter(|turn| !matches!(turn.kind, TurnKind::Invalid { .. })).count();
    row.set("action/valid_frac", valid as f64 / turns.len().max(1) as f64);
    row.set("episode/finished_frac", mean(&|episode| f64::from(u8::from(episode.ending == Ending::Answered))));
    row.set("episode/infra_frac", (episodes.len() - scored.len()) as f64 / episodes.len().max(1) as f64);
}

fn describe_update(row: &mut Row, stats: &UpdateStats) {
    let groups = stats.groups.groups.max(1) as f64;
    row.set("group/zero_std_frac", stats.groups.zero_variance as f64 / groups);
    row.set("group/filtered_frac", stats.groups.filtered as f64 / groups);
    row.set("policy/updates", stats.updates as f64);
    if stats.updates == 0 {
        return;
    }
    row.set("policy/loss", stats.policy_loss);
    row.set("policy/loss_with_penalties", stats.loss);
    row.set("policy/clip_frac", stats.clip_frac);
    row.set("policy/approx_kl_old", stats.approx_kl_old);
    row.set("policy/kl_ref", stats.kl_reference);
    row.set("policy/entropy", stats.entropy);
    row.set("mismatch/logprob_abs_diff", stats.mismatch);
    row.set("mismatch/ratio_deviation_max", stats.ratio_deviation_max);
    row.set("mismatch/truncated_frac", stats.correction_truncated_frac);
    row.set("mismatch/masked_frac", stats.correction_masked_frac);
    row.set("optim/grad_norm", stats.grad_norm);
    row.set("optim/lr", stats.learning_rate);
    row.set("optim/tokens", stats.tokens as f64);
}

/// Mean of a reward part over episodes without infrastructure faults; `None` when there are none.
fn mean_part(episodes: &[Episode], name: &str) -> Option<f64> {
    let parts: Vec<f64> =
        episodes.iter().filter_map(|episode| Some(f64::from(*episode.score.as_ref()?.parts.get(name)?))).collect();
    (!parts.is_empty()).then(|| parts.iter().sum::<f64>() / parts.len() as f64)
}

async fn restore(learner: &mut Learner, config: &GrpoConfig, place: &RunPlace) -> Result<u64, RunError> {
    let Some(restored) = newest(place, config.update.optimizer, || learner.checkpoint())? else { return Ok(0) };
    let updates = restored.state.updates;
    learner
        .restore(restored.decoder, restored.optimizer, updates)
        .await
        .map_err(|error| RunError::Learn { step: restored.state.step, source: error.into() })?;
    Ok(restored.state.step)
}

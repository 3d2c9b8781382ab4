//! The rollout driver: one async task per episode, all in flight together.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::presentation::Presentation;
use super::running::Running;
use crate::environment::EnvFactory;
use crate::episode::{Boundary, Ending, Episode};
use crate::policy::{Policy, Sampling};
use crate::reward::RewardSet;
use crate::seed::Seed;
use crate::task::Task;
use crate::tokenizer::Tokenizer;
use crate::tokens::TokenLog;

/// Everything an episode is played with. Cheap to clone.
#[derive(Clone)]
pub struct Rollout {
    /// Writes the turns; batches behind its trait.
    pub policy: Arc<dyn Policy>,
    /// The policy's tokenizer.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// Makes one environment per episode.
    pub factory: Arc<dyn EnvFactory>,
    /// Scores finished episodes.
    pub rewards: Arc<RewardSet>,
    /// How the policy draws tokens.
    pub sampling: Sampling,
    /// How the environment's text reaches the policy.
    pub presentation: Presentation,
}

/// One episode to play.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is asked.
    pub task: Arc<Task>,
    /// Index of the prompt within the batch.
    pub group: u64,
    /// Index within the group.
    pub member: u64,
    /// Start of the episode's random streams; each turn draws from a child of it.
    pub seed: Seed,
}

impl Rollout {
    /// Plays all jobs, all of them in flight together, and returns their episodes in the order of the jobs.
    ///
    /// Never fails and never loses an episode: what goes wrong on our side is an [`Ending::Infra`] without a score.
    /// Dropping the future stops the episodes. Must be called within a Tokio runtime.
    pub async fn run(&self, jobs: Vec<Job>) -> Vec<Episode> {
        self.run_bounded(jobs, Semaphore::MAX_PERMITS).await
    }

    /// As [`Self::run`], with at most `in_flight` episodes at a time (at least one).
    pub async fn run_bounded(&self, jobs: Vec<Job>, in_flight: usize) -> Vec<Episode> {
        let permits = Arc::new(Semaphore::new(in_flight.clamp(1, Semaphore::MAX_PERMITS)));
        let mut tasks = JoinSet::new();
        let mut index_of = HashMap::with_capacity(jobs.len());
        for (index, job) in jobs.iter().enumerate() {
            let (rollout, permits, job) = (self.clone(), Arc::clone(&permits), job.clone());
            let handle = tasks.spawn(async move {
                // The semaphore is never closed, so a permit always comes.
                let _permit = permits.acquire_owned().await;
                (index, Running::new(&rollout, &job).play().await)
            });
            index_of.insert(handle.id(), index);
        }
        let mut episodes: Vec<Option<Episode>> = vec![None; jobs.len()];
        while let Some(joined) = tasks.join_next_with_id().await {
            match joined {
                Ok((_, (index, episode))) => episodes[index] = Some(episode),
                Err(error) => {
                    if let Some(&index) = index_of.get(&error.id()) {
                        episodes[index] = Some(lost(&jobs[index], error.to_string()));
                    }
                }
            }
        }
        let found = episodes.into_iter().zip(&jobs);
        found.map(|(episode, job)| episode.unwrap_or_else(|| lost(job, "the episode's task vanished".into()))).collect()
    }
}

/// The episode of a task that was lost as a whole.
fn lost(job: &Job, message: String) -> Episode {
    Episode {
        task: Task::clone(&job.task),
        group: job.group,
        member: job.member,
        prompt: String::new(),
        turns: Vec::new(),
        tokens: TokenLog::default(),
        ending: Ending::Infra { boundary: Boundary::Environment, message },
        score: None,
        seed: Some(job.seed),
    }
}

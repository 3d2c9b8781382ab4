//! The rollout driver: one async task per episode, all in flight together.

use std::collections::HashMap;
use std::sync::Arc;

use forage_contracts::environment::EnvFactory;
use forage_contracts::policy::{Policy, Sampling};
use forage_contracts::seed::Seed;
use forage_contracts::{Boundary, Ending, Episode, Task, Tokenizer};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::Instrument;

use super::frontier::Branching;
use super::presentation::Presentation;
use super::running::{BranchPoint, Root, Running};
use super::stage::{Stage, judge_groups};
use crate::reward::RewardSet;

/// The policy, the environment and the rewards that episodes are played with. Cheap to clone.
#[derive(Clone)]
pub struct Rollout {
    /// Writes the turns. It may batch the requests of many episodes.
    pub policy: Arc<dyn Policy>,
    /// The policy's tokenizer.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// Makes one environment per episode.
    pub factory: Arc<dyn EnvFactory>,
    /// Scores finished episodes.
    pub rewards: Arc<RewardSet>,
    /// The way the policy draws tokens.
    pub sampling: Sampling,
    /// The form in which the environment's text reaches the policy.
    pub presentation: Presentation,
}

/// One episode to play.
#[derive(Clone, Debug)]
pub struct Job {
    /// The task that is asked.
    pub task: Arc<Task>,
    /// Index of the prompt within the batch.
    pub group: u64,
    /// Index within the group.
    pub member: u64,
    /// Start of the episode's random streams; each turn draws from a child of it.
    pub seed: Seed,
    /// The place where the episode branches off: the index of a root (a job without this field) among the jobs played together, and the
    /// rule that chooses the turn. Under [`Branching::Frontier`] the group is one tree, and the branch may leave from any earlier job of
    /// the group instead. When the episode to branch from has a single turn, only the prompt is shared.
    pub branches_from: Option<(usize, Branching)>,
    /// A hint: a finished episode of the same task and the number of its turns to begin with. The policy did not write them, so their
    /// tokens are logged as forced. Ignored beside `branches_from`.
    pub hint: Option<(Arc<Episode>, usize)>,
    /// Softmax temperature of its turns; by default the rollout's.
    pub temperature: Option<f32>,
}

impl Job {
    /// The job of a single episode, outside any group.
    pub fn alone(task: Arc<Task>, seed: Seed) -> Self {
        Self {
            task,
            group: 0,
            member: 0,
            seed,
            branches_from: None,
            hint: None,
            temperature: None,
        }
    }
}

impl Rollout {
    /// Tokens of the opening prompt of a task's episode, which is opened and not played. `None` where the episode cannot be opened, and
    /// under a policy that reads text, which alone knows its tokens.
    pub async fn prompt_tokens(&self, task: &Task, seed: Seed) -> Option<usize> {
        if self.policy.reads_text() {
            return None;
        }
        let opened = Stage::open(self.factory.as_ref(), &self.rewards, task, seed).await;
        let stage = opened.ok()?;
        let opening = self.presentation.opening(stage.prompt()).ok()?;
        Some(self.tokenizer.encode(&opening).len())
    }

    /// Plays all jobs, all of them in flight together, and returns their episodes in the order of the jobs.
    ///
    /// Never fails and never loses an episode: what goes wrong on our side is an [`Ending::Infra`] without a score.
    /// Dropping the future stops the episodes. Must be called within a Tokio runtime.
    pub async fn run(&self, jobs: Vec<Job>) -> Vec<Episode> {
        self.run_bounded(jobs, Semaphore::MAX_PERMITS, &|_| {})
            .await
    }

    /// As [`Self::run`], with at most `in_flight` episodes at a time (at least one). Calls `on_end` with each episode as it ends, in any
    /// order and before judges of whole groups have scored it.
    pub async fn run_bounded(
        &self,
        jobs: Vec<Job>,
        in_flight: usize,
        on_end: &(dyn Fn(&Episode) + Sync),
    ) -> Vec<Episode> {
        self.resume(jobs, HashMap::new(), in_flight, on_end).await
    }

    /// As [`Self::run_bounded`] after an interruption: `played` holds the episodes that ended before, as `on_end` received them, by the
    /// index of their job. No job may branch off one of them.
    pub async fn resume(
        &self,
        jobs: Vec<Job>,
        mut played: HashMap<usize, Episode>,
        in_flight: usize,
        on_end: &(dyn Fn(&Episode) + Sync),
    ) -> Vec<Episode> {
        let permits = Arc::new(Semaphore::new(in_flight.clamp(1, Semaphore::MAX_PERMITS)));
        let mut tasks = JoinSet::new();
        let mut index_of = HashMap::with_capacity(jobs.len());
        let waits: Vec<Vec<usize>> = (0..jobs.len())
            .map(|index| roots_of(&jobs, index))
            .collect();
        let mut awaited = vec![false; jobs.len()];
        for &index in waits.iter().flatten() {
            awaited[index] = true;
        }
        let mut finished: HashMap<usize, watch::Receiver<Option<Arc<Root>>>> = HashMap::new();
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        // Roots first: a branch looks up the channels of the jobs that it waits for.
        order.sort_by_key(|&index| jobs[index].branches_from.is_some());
        let mut episodes: Vec<Option<Episode>> = vec![None; jobs.len()];
        for index in order {
            episodes[index] = played.remove(&index);
            if episodes[index].is_some() {
                continue;
            }
            let (rollout, permits, job) = (self.clone(), Arc::clone(&permits), jobs[index].clone());
            let (sender, receiver) = awaited[index].then(|| watch::channel(None)).unzip();
            finished.extend(receiver.map(|receiver| (index, receiver)));
            let earlier = waits[index].iter();
            let earlier = earlier.filter_map(|index| finished.get(index).cloned());
            let earlier: Vec<_> = earlier.collect();
            let (group, member) = (job.group, job.member);
            let span = tracing::debug_span!("episode", group, member, task = %job.task.name());
            let played = async move {
                // Waits before it takes a permit, or waiting episodes would keep permits from those that they wait for.
                let mut played: Vec<Option<Arc<Root>>> = Vec::with_capacity(earlier.len());
                for mut receiver in earlier {
                    // The channel closes without a value when the task of a root panics.
                    let found = receiver
                        .wait_for(Option::is_some)
                        .await
                        .ok()
                        .and_then(|found| found.clone());
                    played.push(found);
                }
                let start = BranchPoint::of(&job, played, rollout.factory.spec().max_turns);
                // The semaphore is never closed, so a permit always comes.
                let _permit = permits.acquire_owned().await;
                let (episode, starts) = Running::new(&rollout, &job).play(start.as_ref()).await;
                if let Some(sender) = sender {
                    sender.send_replace(Some(Arc::new(Root {
                        episode: episode.clone(),
                        starts,
                    })));
                }
                (index, episode)
            };
            let handle = tasks.spawn(played.instrument(span));
            index_of.insert(handle.id(), index);
        }
        while let Some(joined) = tasks.join_next_with_id().await {
            match joined {
                Ok((_, (index, episode))) => {
                    on_end(&episode);
                    episodes[index] = Some(episode);
                }
                Err(error) => {
                    if let Some(&index) = index_of.get(&error.id()) {
                        episodes[index] = Some(lost(&jobs[index], error.to_string()));
                    }
                }
            }
        }
        let found = episodes.into_iter().zip(&jobs);
        let found = found.map(|(episode, job)| {
            episode.unwrap_or_else(|| lost(job, "the episode's task vanished".into()))
        });
        let mut episodes: Vec<Episode> = found.collect();
        judge_groups(&self.rewards, &mut episodes).await;
        episodes
    }
}

/// The jobs that a job may branch from, and so waits for.
fn roots_of(jobs: &[Job], index: usize) -> Vec<usize> {
    match jobs[index].branches_from {
        None => Vec::new(),
        Some((root, Branching::Random)) => vec![root],
        Some((_, branching)) => {
            let from_branches = matches!(branching, Branching::Frontier { .. });
            (0..index)
                .filter(|&other| jobs[other].group == jobs[index].group)
                .filter(|&other| from_branches || jobs[other].branches_from.is_none())
                .collect()
        }
    }
}

/// The episode recorded for a job whose task (of Tokio) panicked or was cancelled.
fn lost(job: &Job, message: String) -> Episode {
    Episode {
        group: job.group,
        member: job.member,
        ending: Ending::Infra {
            boundary: Boundary::Environment,
            message,
        },
        seed: Some(job.seed),
        ..Episode::new(Task::clone(&job.task))
    }
}

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
use super::running::{Root, Running, Start};
use super::stage::judge_groups;
use crate::reward::RewardSet;

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
    /// Index, among the jobs played together, of the episode that this one leaves after some of its turns, and how these are chosen;
    /// that one leaves none. By the frontier the whole group is the tree, and any job before this one may be left in its stead. Where
    /// nothing but a last turn was played, both share the prompt alone.
    pub leaves: Option<(usize, Branching)>,
    /// A finished episode of the same task, and the number of its turns that this one begins with. Another wrote them, so their tokens are
    /// forced; turns, tokens and environment go on from there. Not read beside `leaves`.
    pub hint: Option<(Arc<Episode>, usize)>,
    /// Softmax temperature of its turns; the rollout's where there is none.
    pub temperature: Option<f32>,
}

impl Job {
    /// An episode of no group.
    pub fn alone(task: Arc<Task>, seed: Seed) -> Self {
        Self {
            task,
            group: 0,
            member: 0,
            seed,
            leaves: None,
            hint: None,
            temperature: None,
        }
    }
}

impl Rollout {
    /// Plays all jobs, all of them in flight together, and returns their episodes in the order of the jobs.
    ///
    /// Never fails and never loses an episode: what goes wrong on our side is an [`Ending::Infra`] without a score.
    /// Dropping the future stops the episodes. Must be called within a Tokio runtime.
    pub async fn run(&self, jobs: Vec<Job>) -> Vec<Episode> {
        self.run_bounded(jobs, Semaphore::MAX_PERMITS, &|_| {})
            .await
    }

    /// As [`Self::run`], with at most `in_flight` episodes at a time (at least one). `told` hears of each episode when it ends, in
    /// whatever order they do and before judges of whole groups have scored it.
    pub async fn run_bounded(
        &self,
        jobs: Vec<Job>,
        in_flight: usize,
        told: &(dyn Fn(&Episode) + Sync),
    ) -> Vec<Episode> {
        self.go_on(jobs, HashMap::new(), in_flight, told).await
    }

    /// As [`Self::run_bounded`], where some of the jobs were played before: `played` has their episodes, as `told` heard of them then,
    /// by the index of the job. No job may leave one of them.
    pub async fn go_on(
        &self,
        jobs: Vec<Job>,
        mut played: HashMap<usize, Episode>,
        in_flight: usize,
        told: &(dyn Fn(&Episode) + Sync),
    ) -> Vec<Episode> {
        let permits = Arc::new(Semaphore::new(in_flight.clamp(1, Semaphore::MAX_PERMITS)));
        let mut tasks = JoinSet::new();
        let mut index_of = HashMap::with_capacity(jobs.len());
        let waits: Vec<Vec<usize>> = (0..jobs.len()).map(|index| before(&jobs, index)).collect();
        let mut awaited = vec![false; jobs.len()];
        for &index in waits.iter().flatten() {
            awaited[index] = true;
        }
        let mut finished: HashMap<usize, watch::Receiver<Option<Arc<Root>>>> = HashMap::new();
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        // Roots first, so that those which leave them find where to wait.
        order.sort_by_key(|&index| jobs[index].leaves.is_some());
        let mut episodes: Vec<Option<Episode>> = vec![None; jobs.len()];
        for index in order {
            episodes[index] = played.remove(&index);
            if episodes[index].is_some() {
                continue;
            }
            let (rollout, permits, job) = (self.clone(), Arc::clone(&permits), jobs[index].clone());
            let told = awaited[index].then(|| watch::channel(None));
            let (tell, told) = told.map_or((None, None), |(tell, told)| (Some(tell), Some(told)));
            finished.extend(told.map(|told| (index, told)));
            let earlier = waits[index]
                .iter()
                .map(|index| finished.get(index).cloned());
            let earlier: Vec<_> = earlier.collect();
            let (group, member) = (job.group, job.member);
            let span = tracing::debug_span!("episode", group, member, task = %job.task.name());
            let played = async move {
                // Before the permit, or those that wait would keep it from those they wait for.
                let mut played: Vec<Option<Arc<Root>>> = Vec::with_capacity(earlier.len());
                for told in earlier {
                    let Some(mut told) = told else { continue };
                    // Nobody tells where a root was lost.
                    let found = told
                        .wait_for(Option::is_some)
                        .await
                        .ok()
                        .and_then(|found| found.clone());
                    played.push(found);
                }
                let start = Start::of(&job, played, rollout.factory.spec().max_turns);
                // The semaphore is never closed, so a permit always comes.
                let _permit = permits.acquire_owned().await;
                let (episode, starts) = Running::new(&rollout, &job).play(start.as_ref()).await;
                if let Some(tell) = tell {
                    tell.send_replace(Some(Arc::new(Root {
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
                    told(&episode);
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

/// The jobs whose episodes one may leave, which it waits for.
fn before(jobs: &[Job], index: usize) -> Vec<usize> {
    match jobs[index].leaves {
        None => Vec::new(),
        Some((root, Branching::Random)) => vec![root],
        Some((_, branching)) => {
            let leaves_branches = matches!(branching, Branching::Frontier { .. });
            (0..index)
                .filter(|&other| jobs[other].group == jobs[index].group)
                .filter(|&other| leaves_branches || jobs[other].leaves.is_none())
                .collect()
        }
    }
}

/// The episode of a task that was lost as a whole.
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

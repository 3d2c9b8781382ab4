//! The episodes that a run plays, each rank its share: those of a step, and those of an evaluation.

use std::ops::Range;
use std::sync::Arc;

use forage_contracts::policy::Sampling;
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, Task};
use forage_env::{InfraBudget, Job, Rollout};

use super::hints::Hints;
use super::jobs::{dealt, group_jobs, tree_jobs};
use super::rows::describe_validation;
use super::{Problem, Run, RunError, Source, lost_at};
use crate::learner::Learner;
use crate::metrics::Row;
use crate::ranks::{RankError, Ranks};

impl Run<'_> {
    /// Plays this rank's share of one group of episodes per question, under the weights published last. Groups are numbered from `first`.
    pub(super) fn play(
        &self,
        problem: &Problem,
        questions: &[usize],
        first: usize,
        step: u64,
    ) -> impl Future<Output = Played> + Send + use<> {
        let size = self.config.group_size;
        let tasks = questions
            .iter()
            .map(|&place| Arc::clone(&problem.train[place]));
        let tasks: Vec<Arc<Task>> = tasks.collect();
        let seed = Seed::root(self.place.seed).child("rollout", &[step]);
        let trees = |task: &Task| {
            let is_solved = self.solved.find(task).is_some();
            let trees = self.config.trees.filter(|_| !is_solved);
            (trees.unwrap_or(size), self.config.branching)
        };
        let mut jobs = tree_jobs(&tasks, first, size, trees, seed);
        self.config.update.temper(&mut jobs);
        let rollout = rollout(self.learner, problem, Sampling::FULL);
        play_own(rollout, self.hints.clone(), jobs, &self.ranks)
    }

    /// Gathers the episodes of these groups from all ranks.
    pub(super) fn collect(
        &self,
        own: Played,
        groups: Range<usize>,
        step: u64,
    ) -> Result<Vec<Episode>, RunError> {
        let members = 0..self.config.group_size as u64;
        let all: Vec<(u64, u64)> = groups
            .flat_map(|group| members.clone().map(move |member| (group as u64, member)))
            .collect();
        let episodes = own.and_then(|own| self.ranks.episodes(own, &all));
        episodes.map_err(lost_at(step))
    }

    /// Plays the development questions greedily if an evaluation is due.
    pub(super) async fn evaluate(&self, step: u64, row: &mut Row) -> Result<(), RunError> {
        let Source::Play(problem) = self.source else {
            return Ok(());
        };
        let every = self.config.evaluate_every;
        if every > 0 && (step + 1).is_multiple_of(every) {
            let seed = Seed::root(self.place.seed);
            let budget = self.config.fault_budget();
            evaluate(self.learner, problem, budget, seed, step, row).await?;
        }
        Ok(())
    }
}

/// Plays the development questions greedily, once each, and puts the mean of the environment's measure into the row; `None` without
/// questions.
pub(crate) async fn evaluate(
    learner: &Learner,
    problem: &Problem,
    budget: InfraBudget,
    seed: Seed,
    step: u64,
    row: &mut Row,
) -> Result<Option<f64>, RunError> {
    let jobs = group_jobs(&problem.dev, 1, seed.child("dev", &[]));
    let (all, ranks) = (names(&jobs), learner.ranks());
    let rollout = rollout(learner, problem, Sampling::GREEDY);
    let own = play_own(rollout, None, jobs, ranks).await;
    let episodes = own.and_then(|own| ranks.episodes(own, &all));
    let episodes = episodes.map_err(lost_at(step))?;
    budget
        .check(&episodes)
        .map_err(|source| RunError::Infra { step, source })?;
    let measure = problem.factory.spec().outcome.measure();
    Ok(describe_validation(row, &episodes, measure))
}

/// Episodes that a rank has played.
pub(super) type Played = Result<Vec<Episode>, RankError>;

/// Plays this rank's share of the jobs; ends at once when a rank is lost.
fn play_own(
    rollout: Rollout,
    hints: Option<Hints>,
    jobs: Vec<Job>,
    ranks: &Ranks,
) -> impl Future<Output = Played> + Send + use<> {
    let (own, lost) = (dealt(jobs, ranks), ranks.lost());
    let played = async move {
        match hints {
            Some(hints) => hints.play(&rollout, own).await,
            None => rollout.run(own).await,
        }
    };
    async move {
        tokio::select! {
            episodes = played => Ok(episodes),
            error = lost => Err(error),
        }
    }
}

/// Group and member numbers of each job.
fn names(jobs: &[Job]) -> Vec<(u64, u64)> {
    jobs.iter().map(|job| (job.group, job.member)).collect()
}

/// The rollout setup for the learner's current weights.
pub(crate) fn rollout(learner: &Learner, problem: &Problem, sampling: Sampling) -> Rollout {
    Rollout {
        policy: learner.policy(),
        tokenizer: Arc::new(learner.checkpoint().tokenizer),
        factory: Arc::clone(&problem.factory),
        rewards: Arc::clone(&problem.rewards),
        sampling,
        presentation: problem.presentation.clone(),
    }
}

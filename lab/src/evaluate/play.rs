//! The episodes of an evaluation.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use forage_contracts::Episode;
use forage_contracts::policy::{Policy, Sampling};
use forage_contracts::seed::Seed;
use forage_env::{EpisodeWriter, InfraBudget, Job, RecordError, Rollout};
use forage_trainer::Checkpoint;
use forage_trainer::run::group_jobs;

use super::exam::{SAMPLED, beside};
use crate::config::Resolved;
use crate::data::{Data, Tasks};
use crate::error::{Context, Result};
use crate::observer::Observer;
use crate::records::write_episodes;
use crate::runtime::runtime;
use crate::session::Session;

/// Name of the episodes at temperature 0, for whoever follows.
const GREEDY: &str = "greedy";

/// Episodes of one policy on the same questions.
#[derive(Clone, Debug)]
pub(crate) struct Evaluated {
    /// One episode of each question.
    pub(crate) greedy: Vec<Episode>,
    /// The samples of each question, at temperature 1.
    pub(crate) sampled: Vec<Episode>,
}

/// Plays questions with a checkpoint as a config says: once greedily and as often as it says at temperature 1. Blocks.
pub(crate) fn evaluate_checkpoint(
    config: &Resolved,
    checkpoint: &Checkpoint,
    data: &Data,
    tasks: &Tasks,
    observer: &dyn Observer,
) -> Result<Evaluated> {
    let session = Session::of(config, &data.corpus, checkpoint, observer)?;
    let policy = config.generation().start(checkpoint);
    evaluate_policy(config, &session, policy, tasks, observer)
}

/// The same with any policy that writes in the tokens of a session. Blocks.
pub(crate) fn evaluate_policy(
    config: &Resolved,
    session: &Session,
    policy: Arc<dyn Policy>,
    tasks: &Tasks,
    observer: &dyn Observer,
) -> Result<Evaluated> {
    let rollout = session.rollout(policy, Sampling::GREEDY)?;
    let way = Way {
        in_flight: usize::MAX,
        budget: fault_budget(config),
        out: None,
        observer,
    };
    way.play(&rollout, tasks, config.seed, config.evaluation.samples)
}

/// The share of faults of ours that the episodes of a config's policy may hold, in training and wherever else they are played.
pub(crate) fn fault_budget(config: &Resolved) -> InfraBudget {
    InfraBudget {
        share: config.grpo.fault_share,
    }
}

/// The way in which questions are played.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    /// Most episodes at a time.
    pub(crate) in_flight: usize,
    /// The faults of ours that the episodes may hold.
    pub(crate) budget: InfraBudget,
    /// File for the episodes, those at temperature 1 beside it. A process that is killed leaves those that had ended, with the ending
    /// `.partial`.
    pub(crate) out: Option<&'a Path>,
    /// Hears how many have ended.
    pub(crate) observer: &'a dyn Observer,
}

impl Way<'_> {
    /// Plays `tasks` once greedily and `samples` times sampled. Seeds depend on the task's place and sample alone, so two
    /// policies meet the same randomness. Blocks.
    pub(crate) fn play(
        self,
        rollout: &Rollout,
        tasks: &Tasks,
        seed: u64,
        samples: usize,
    ) -> Result<Evaluated> {
        let greedy = self.play_greedily(rollout, tasks, seed, GREEDY)?;
        let beside = self.out.map(|out| beside(out, SAMPLED));
        let way = Way {
            out: beside.as_deref().filter(|_| samples > 0),
            ..self
        };
        let jobs = group_jobs(tasks, samples, stream(seed));
        let sampled = way.set(rollout, Sampling::FULL, jobs, SAMPLED)?;
        Ok(Evaluated { greedy, sampled })
    }

    /// Plays `tasks` once greedily, under a name for whoever follows. Blocks.
    pub(crate) fn play_greedily(
        self,
        rollout: &Rollout,
        tasks: &Tasks,
        seed: u64,
        name: &str,
    ) -> Result<Vec<Episode>> {
        let jobs = group_jobs(tasks, 1, stream(seed));
        self.set(rollout, Sampling::GREEDY, jobs, name)
    }

    fn set(
        self,
        rollout: &Rollout,
        sampling: Sampling,
        jobs: Vec<Job>,
        name: &str,
    ) -> Result<Vec<Episode>> {
        let rollout = Rollout {
            sampling,
            ..rollout.clone()
        };
        let (done, total) = (AtomicU64::new(0), jobs.len() as u64);
        let writer = self.out.map(EpisodeWriter::create).transpose()?;
        let kept: Mutex<Result<_, RecordError>> = Mutex::new(Ok(writer));
        let told = |episode: &Episode| {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            self.observer.progress(name, done, total, "");
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(Some(writer)) = &mut *kept
                && let Err(error) = writer.write(episode.clone())
            {
                *kept = Err(error);
            }
        };
        let episodes = runtime()?.block_on(rollout.run_bounded(jobs, self.in_flight, &told));
        let writer = kept.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        let checked = self.budget.check(&episodes);
        if let Err(error) = checked.context("the evaluation shows nothing") {
            writer.map(EpisodeWriter::discard).transpose()?;
            return Err(error);
        }
        if let Some(path) = self.out {
            // In the order of the questions, with the scores of judges of whole groups.
            write_episodes(path, episodes.iter().cloned())?;
        }
        Ok(episodes)
    }
}

/// Start of an evaluation's random streams.
fn stream(seed: u64) -> Seed {
    Seed::root(seed).child("evaluation", &[])
}

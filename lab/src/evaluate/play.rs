//! The episodes of an evaluation.

use std::sync::Arc;

use forage_contracts::Episode;
use forage_contracts::policy::{Policy, Sampling};
use forage_contracts::seed::Seed;
use forage_env::{InfraBudget, Rollout};
use forage_trainer::Checkpoint;
use forage_trainer::run::group_jobs;

use crate::config::Resolved;
use crate::data::{Data, Tasks};
use crate::error::{Context, Result};
use crate::observer::Observer;
use crate::runtime::runtime;
use crate::session::Session;

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
    evaluate_policy(config, &session, policy, tasks)
}

/// The same with any policy that writes in the tokens of a session. Blocks.
pub(crate) fn evaluate_policy(
    config: &Resolved,
    session: &Session,
    policy: Arc<dyn Policy>,
    tasks: &Tasks,
) -> Result<Evaluated> {
    let rollout = session.rollout(policy, Sampling::GREEDY)?;
    let samples = config.evaluation.samples;
    let budget = fault_budget(config);
    play(&rollout, tasks, config.seed, samples, usize::MAX, budget)
}

/// How many faults of ours the episodes of a config's policy may hold, in training and wherever else they are played.
pub(crate) fn fault_budget(config: &Resolved) -> InfraBudget {
    InfraBudget {
        share: config.grpo.fault_share,
    }
}

/// Plays `tasks` once greedily. Blocks.
pub(crate) fn play_greedily(
    rollout: &Rollout,
    tasks: &Tasks,
    seed: u64,
    in_flight: usize,
    budget: InfraBudget,
) -> Result<Vec<Episode>> {
    Ok(play(rollout, tasks, seed, 0, in_flight, budget)?.greedy)
}

/// Plays `tasks` once greedily and `samples` times sampled. Seeds depend on the task's place and sample alone, so two
/// policies meet the same randomness. At most `in_flight` episodes are played at a time.
pub(crate) fn play(
    rollout: &Rollout,
    tasks: &Tasks,
    seed: u64,
    samples: usize,
    in_flight: usize,
    budget: InfraBudget,
) -> Result<Evaluated> {
    let seed = Seed::root(seed).child("evaluation", &[]);
    let round = |sampling, count| -> Result<Vec<Episode>> {
        let rollout = Rollout {
            sampling,
            ..rollout.clone()
        };
        let jobs = group_jobs(tasks, count, seed);
        let episodes = runtime()?.block_on(rollout.run_bounded(jobs, in_flight));
        budget
            .check(&episodes)
            .context("the evaluation shows nothing")?;
        Ok(episodes)
    };
    // Where the first round shows nothing the second is not begun.
    Ok(Evaluated {
        greedy: round(Sampling::GREEDY, 1)?,
        sampled: round(Sampling::FULL, samples)?,
    })
}

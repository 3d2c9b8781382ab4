//! Demonstrations for supervised learning.

use std::sync::Arc;

use super::oracle::{Haste, Means, Oracle, OracleStyle};
use crate::environment::EnvFactory;
use crate::episode::Episode;
use crate::policy::Sampling;
use crate::reward::RewardSet;
use crate::rollout::{Job, Presentation, Rollout};
use crate::seed::Seed;
use crate::task::Task;
use crate::tokenizer::Tokenizer;

/// Plays `tasks` once each with the oracle. [`crate::tokens::TokenLog::loss_mask`] of an episode marks what to learn.
///
/// Failed demonstrations are returned as well, with their score: keep those that earned what you want to teach.
pub async fn demonstrate(
    tasks: &[Arc<Task>],
    style: OracleStyle,
    haste: Haste,
    factory: Arc<dyn EnvFactory>,
    tokenizer: Arc<dyn Tokenizer>,
    rewards: Arc<RewardSet>,
    seed: Seed,
) -> Vec<Episode> {
    let means = Means::of(factory.spec());
    let policy = Arc::new(Oracle::hasty(Arc::clone(&tokenizer), tasks.iter().cloned(), means, style, haste));
    let jobs = (0..).zip(tasks).map(|(group, task)| Job {
        task: Arc::clone(task),
        group,
        member: 0,
        seed: seed.child("demonstration", &[group]),
        leaves: None,
    });
    let rollout =
        Rollout { policy, tokenizer, factory, rewards, sampling: Sampling::FULL, presentation: Presentation::Raw };
    rollout.run(jobs.collect()).await
}

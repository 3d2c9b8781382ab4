//! Demonstrations for supervised learning.

use std::sync::Arc;

use forage_contracts::entry::RegistryError;

use crate::environment::EnvFactory;
use crate::episode::Episode;
use crate::policy::Sampling;
use crate::registry;
use crate::reward::RewardSet;
use crate::rollout::{Job, Presentation, Rollout};
use crate::scripted::{Cast, Haste, ORACLE, OracleStyle};
use crate::seed::Seed;
use crate::task::Task;
use crate::tokenizer::Tokenizer;

/// Plays `tasks` once each with the oracle of their environment. [`crate::tokens::TokenLog::loss_mask`] of an episode marks what to learn.
///
/// Failed demonstrations are returned as well, with their score: keep those that earned what you want to teach.
///
/// # Errors
/// When the environment is not registered or brings no oracle.
pub async fn demonstrate(
    tasks: &[Arc<Task>],
    style: OracleStyle,
    haste: Haste,
    factory: Arc<dyn EnvFactory>,
    tokenizer: Arc<dyn Tokenizer>,
    rewards: Arc<RewardSet>,
    seed: Seed,
) -> Result<Vec<Episode>, RegistryError> {
    let cast = Cast::new(Arc::clone(&tokenizer), tasks.iter().cloned())
        .in_style(style)
        .hasty(haste);
    let policy = registry::find(&factory.spec().id)?.script(ORACLE, cast)?;
    let jobs = (0..).zip(tasks).map(|(group, task)| Job {
        task: Arc::clone(task),
        group,
        member: 0,
        seed: seed.child("demonstration", &[group]),
        leaves: None,
    });
    let rollout = Rollout {
        policy,
        tokenizer,
        factory,
        rewards,
        sampling: Sampling::FULL,
        presentation: Presentation::Raw,
    };
    Ok(rollout.run(jobs.collect()).await)
}

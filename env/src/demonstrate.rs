//! Demonstrations for supervised learning.

use std::sync::Arc;

use forage_contracts::environment::EnvFactory;
use forage_contracts::policy::Sampling;
use forage_contracts::scripted::{Cast, Haste, OracleStyle, ScriptEntry};
use forage_contracts::seed::Seed;
use forage_contracts::{Episode, RegistryError, Task, Tokenizer};

use crate::registry;
use crate::reward::RewardSet;
use crate::rollout::{Job, Presentation, Rollout};

/// Plays `tasks` once each with the oracle of their environment. [`forage_contracts::TokenLog::loss_mask`] of an episode marks what to learn.
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
    let policy = registry::find(factory.entry())?.script(ScriptEntry::ORACLE, cast)?;
    let jobs = (0..).zip(tasks).map(|(group, task)| Job {
        task: Arc::clone(task),
        group,
        member: 0,
        seed: seed.child("demonstration", &[group]),
        branches_from: None,
        hint: None,
        temperature: None,
    });
    let rollout = Rollout {
        policy,
        tokenizer,
        factory,
        rewards,
        sampling: Sampling::FULL,
        presentation: Presentation::RAW,
    };
    Ok(rollout.run(jobs.collect()).await)
}

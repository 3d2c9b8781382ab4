//! Policies that can be asked: checkpoints and scripts.

use std::sync::Arc;

use forage_contracts::EnvEntry;
use forage_contracts::policy::Policy;
use forage_contracts::scripted::{Cast, Scripted};
use forage_env::registry::environments;
use forage_env::{ChatSettings, registry};
use forage_trainer::{Checkpoint, Precision};

use crate::config::Generation;
use crate::data::Tasks;
use crate::error::Result;
use crate::policy::{PolicyFormat, open_policy};

/// Begins the name of the policy that always gives one answer.
const CONSTANT: &str = "constant:";

/// Tells whether a policy of this name is a script, whose tokens are bytes.
pub(crate) fn is_script(name: &str) -> bool {
    let known = |entry: &EnvEntry| entry.scripts.iter().any(|script| script.name == name);
    name.starts_with(CONSTANT) || environments().any(known)
}

/// A policy with its format, and its weights where it has some.
pub(super) struct Player {
    pub(super) policy: Arc<dyn Policy>,
    pub(super) format: PolicyFormat,
    pub(super) weights: Option<Checkpoint>,
}

/// A policy to be opened for an environment.
pub(super) struct Opening<'a> {
    pub(super) name: &'a str,
    pub(super) tokens_of: Option<&'a str>,
    pub(super) environment: &'a str,
    pub(super) chat: Option<&'a ChatSettings>,
    pub(super) generation: &'a Generation,
    /// For a probe that reads them; else they are the engine's alone.
    pub(super) keep_weights: bool,
}

impl Opening<'_> {
    pub(super) fn open(&self, tasks: &Tasks) -> Result<Player> {
        let device = &self.generation.device;
        if !is_script(self.name) {
            let checkpoint = open_policy(self.name, Precision::Full, device)?;
            return Ok(Player {
                policy: self.generation.start(&checkpoint),
                format: PolicyFormat::of(&checkpoint, self.chat, self.generation)?,
                weights: self.keep_weights.then_some(checkpoint),
            });
        }
        let format = match self.tokens_of {
            None => PolicyFormat::bytes(),
            Some(name) => {
                let checkpoint = open_policy(name, Precision::Full, device)?;
                PolicyFormat::of(&checkpoint, None, self.generation)?
            }
        };
        let tokenizer = Arc::clone(&format.tokenizer);
        let policy: Arc<dyn Policy> = if let Some(answer) = self.name.strip_prefix(CONSTANT) {
            Arc::new(Scripted::constant(tokenizer, answer))
        } else {
            let cast = Cast::new(tokenizer, tasks.iter().cloned());
            registry::find(self.environment)?.script(self.name, cast)?
        };
        Ok(Player {
            policy,
            format,
            weights: None,
        })
    }
}

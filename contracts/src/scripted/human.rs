//! A person as the policy.

use std::sync::Arc;

use super::engine::{Script, Scripted, View};
use crate::policy::PolicyError;
use crate::tokenizer::Tokenizer;

/// Shows a person what is new and returns the turn they write; `None` when they leave.
type Ask = Box<dyn Fn(&View<'_>) -> Option<String> + Send + Sync>;

/// Asks a person for each turn.
struct Human(Ask);

impl Scripted {
    /// A person reached through `ask`, which may block: play one episode at a time. When it returns `None` the episode
    /// ends as [`PolicyError::Gone`].
    pub fn human(
        tokenizer: Arc<dyn Tokenizer>,
        ask: impl Fn(&View<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::with_script(Human(Box::new(ask)), tokenizer)
    }
}

impl Script for Human {
    fn write(&self, view: &View<'_>) -> Result<String, PolicyError> {
        (self.0)(view).ok_or_else(|| PolicyError::Gone("the person left".to_owned()))
    }
}

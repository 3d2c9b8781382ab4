//! The oracle of an environment that brings its own.

use std::collections::HashMap;
use std::sync::Arc;

use super::engine::{Script, Scripted, View, Written};
use crate::policy::PolicyError;
use crate::registry::Own;
use crate::task::Task;
use crate::tokenizer::Tokenizer;

/// Writes what the entry's `oracle` says.
pub struct OwnScript {
    tasks: HashMap<String, Arc<Task>>,
    own: Own,
}

/// [`OwnScript`] as a policy.
pub type OwnOracle = Scripted<OwnScript>;

impl Scripted<OwnScript> {
    /// An oracle for `tasks`, which it recognises by their questions.
    pub fn of_own(tokenizer: Arc<dyn Tokenizer>, tasks: impl IntoIterator<Item = Arc<Task>>, own: Own) -> Self {
        let tasks = tasks.into_iter().map(|task| (task.question.trim().to_owned(), task)).collect();
        Self::with_script(OwnScript { tasks, own }, tokenizer)
    }
}

impl Script for OwnScript {
    fn write(&self, view: &View<'_>) -> Result<Written, PolicyError> {
        let known = self.tasks.iter().filter(|(question, _)| view.prompt.contains(question.as_str()));
        // Of questions that contain each other, the longest is the one that was asked.
        let (_, task) = known.max_by_key(|(question, _)| question.len()).ok_or_else(|| {
            PolicyError::BadRequest("the oracle finds none of its questions in the prompt".to_owned())
        })?;
        Ok(Written::Raw((self.own.oracle)(task, view.shown)))
    }
}

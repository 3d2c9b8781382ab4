//! The purpose of an environment's episodes.

use serde::{Deserialize, Serialize};

use super::EnvError;
use crate::task::Task;

/// The purpose of an environment's episodes, which decides which rewards judge them and what a task must know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// An answer, compared with the task's golds.
    #[default]
    Answer,
    /// A ranking, that of a query or one that the policy wrote itself, compared with the task's judgments.
    #[serde(alias = "query")]
    Ranking,
}

impl Outcome {
    /// The reward part that says how well an episode went, whatever the weights are.
    pub fn measure(self) -> &'static str {
        match self {
            Self::Answer => "em",
            Self::Ranking => "ndcg",
        }
    }

    /// [`Self::measure`] in words, and in short.
    pub fn words(self) -> [&'static str; 2] {
        match self {
            Self::Answer => ["exact match", "EM"],
            Self::Ranking => ["NDCG@10", "NDCG"],
        }
    }

    /// Tells whether an [`accuracy`](Self::accuracy) counts as right: a half or more.
    pub fn is_right(accuracy: f32) -> bool {
        accuracy >= 0.5
    }

    /// Refuses a task without judged passages where they are what a ranking is compared with: everything would earn 0. What answers are
    /// compared with is the rewards' affair ([`Reward::needs_golds`](crate::reward::Reward::needs_golds)).
    ///
    /// # Errors
    /// [`EnvError::Task`], which names the task.
    pub fn check(self, task: &Task) -> Result<(), EnvError> {
        if self == Self::Answer || !task.judgments().is_empty() {
            return Ok(());
        }
        let missing =
            "has no judged passage; give it `qrels` or `evidence`, or read it from a BEIR folder";
        Err(EnvError::Task {
            task: task.name(),
            question: task.question.clone(),
            missing: missing.to_owned(),
        })
    }
}

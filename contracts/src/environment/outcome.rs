//! The purpose of an environment's episodes.

use serde::{Deserialize, Serialize};

use super::EnvError;
use crate::episode::{Ending, Episode, Score};
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

    /// The outcome of scored episodes, by the parts of their scores; answers when there are none.
    pub fn of(episodes: &[Episode]) -> Self {
        let scores = episodes.iter().find_map(|episode| episode.score.as_ref());
        let has = |part: &str| scores.is_some_and(|score| score.parts.contains_key(part));
        if has(Self::Ranking.measure()) && !has(Self::Answer.measure()) {
            Self::Ranking
        } else {
            Self::Answer
        }
    }

    /// Whether a demonstration is worth learning from: it reached its end, and a careful one earned full marks. A hasty one may fail and,
    /// in rankings, break the protocol: that is part of what it shows.
    pub fn teaches(self, episode: &Episode, careful: bool) -> bool {
        let ended = match episode.ending {
            Ending::Answered => true,
            Ending::Malformed { .. } => self == Self::Ranking && !careful,
            Ending::Truncated { .. } | Ending::Infra { .. } => false,
        };
        let needed: &[&str] = match self {
            _ if !careful => &[],
            Self::Answer => &["em"],
            Self::Ranking => &["mrr", "syntax"],
        };
        let scores = episode.score.as_ref();
        let earned = |part: &&str| {
            scores.is_some_and(|score| score.parts.get(*part).is_some_and(|part| *part >= 1.0))
        };
        ended && needed.iter().all(earned)
    }

    /// Whether the answer of an episode was right, 0 to 1; its reward where nothing says.
    pub fn accuracy(score: &Score) -> f32 {
        let part = score.parts.get(Self::Answer.measure());
        part.copied().unwrap_or(score.total)
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

//! The Gymnasium-shaped contract of a text environment.

mod code;
mod outcome;
mod query;
mod tool;

use std::error::Error;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::policy::Finish;
use crate::seed::Seed;
use crate::task::Task;

pub use code::{CodeTurn, SEARCH_TOOL, ToolCall};
pub use forage_sandbox::Status as CodeStatus;
pub use outcome::Outcome;
pub use query::QueryTurn;
pub use tool::{TurnForm, TurnTool};

/// Text the environment shows the policy. Appended verbatim to the token log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The text; empty on the last step.
    pub text: String,
    /// What calls of tools returned, one by one, without the text around them: messages where episodes are chats, in the
    /// place of the text. Empty where the turn called none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<String>,
}

impl Observation {
    /// Text that answers no call.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), results: Vec::new() }
    }

    /// Adds a sentence at the end, of the last result too.
    pub fn add(&mut self, sentence: &str) {
        self.text.push_str(sentence);
        if let Some(last) = self.results.last_mut() {
            last.push_str(sentence.trim_end());
        }
    }
}

/// One turn of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What the policy wrote in this turn, decoded.
    pub text: String,
    /// Why the completion ended.
    pub finish: Finish,
}

/// What kind of turn the environment understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum TurnKind {
    /// A search with what it found.
    Search {
        /// The query as parsed.
        query: String,
        /// Further queries of the same turn.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        more: Vec<String>,
        /// Ids of the passages shown, best first, query by query.
        shown: Vec<String>,
    },
    /// An answer.
    Answer {
        /// The answer as parsed.
        answer: String,
    },
    /// A program that was run, or tools that were called.
    Code(CodeTurn),
    /// A query that is what the episode was for, with what it found.
    Query(QueryTurn),
    /// Nothing the protocol knows.
    Invalid {
        /// Why.
        fault: String,
    },
}

impl TurnKind {
    /// A search of one query that showed passages of these ids.
    pub fn search(query: impl Into<String>, shown: Vec<String>) -> Self {
        Self::Search { query: query.into(), more: Vec::new(), shown }
    }

    /// Removes from the record what the policy was not shown after all.
    pub fn hide(&mut self) {
        match self {
            Self::Search { shown, .. } => shown.clear(),
            Self::Code(turn) => turn.gold_read = false,
            // What a final query found is not there to be read.
            Self::Query(_) | Self::Answer { .. } | Self::Invalid { .. } => {}
        }
    }

    /// The queries of the turn, in order.
    pub fn queries(&self) -> Vec<&str> {
        match self {
            Self::Search { query, more, .. } => std::iter::once(query).chain(more).map(String::as_str).collect(),
            Self::Code(turn) => turn.queries().collect(),
            Self::Query(turn) => vec![&turn.query],
            Self::Answer { .. } | Self::Invalid { .. } => Vec::new(),
        }
    }
}

/// The environment's reaction to one action.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Shown to the policy before its next turn.
    pub observation: Observation,
    /// Reward of this turn, finite; 0 where the score is given at the end by the episode's rewards.
    pub reward: f32,
    /// The task itself ended: an answer was given, or an invalid turn in a profile that ends on it.
    pub terminated: bool,
    /// A limit ended the episode. Never together with `terminated`.
    pub truncated: bool,
    /// What was understood.
    pub kind: TurnKind,
    /// Text the driver puts into the policy's mouth before its next turn, logged as forced and never trained on.
    /// The next [`Action::text`] begins with it.
    pub forced_prefix: Option<String>,
}

/// Facts about an environment that do not change between episodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EnvSpec {
    /// `forage/NAME-vN`.
    pub id: String,
    /// What its episodes are for.
    pub outcome: Outcome,
    /// Most completions per episode.
    pub max_turns: usize,
    /// Most tokens per completion.
    pub max_turn_tokens: usize,
    /// Most tokens per episode, prompt and observations included.
    pub max_episode_tokens: usize,
    /// Strings that end a completion.
    pub stop: Vec<String>,
    /// Whether the driver appends the end-of-sequence token, as forced, to completions that end with a stop string.
    pub append_eos_after_stop: bool,
    /// JSON schemas of the tools that a chat template is to show; empty where the prompt says all there is to say.
    pub tools: Vec<serde_json::Value>,
}

/// A fault of the environment or what stands behind it. Never a reward of zero.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// The retriever failed.
    #[error("search failed")]
    Retriever(#[from] forage_retriever::RetrieverError),
    /// The sandbox failed.
    #[error("the code cannot be run")]
    Sandbox(#[from] forage_sandbox::SandboxError),
    /// The task does not say what would be right.
    #[error("task `{task}` (`{question}`) {missing}")]
    Task {
        /// The task's id.
        task: String,
        /// Its question.
        question: String,
        /// What it lacks, and the fix.
        missing: &'static str,
    },
    /// `step` was called before `reset` or after the end.
    #[error("step called {0}; call reset first")]
    OutOfOrder(&'static str),
    /// What an environment from outside stands on failed.
    #[error("the environment failed")]
    Own(#[source] Box<dyn Error + Send + Sync>),
}

/// One episode at a time.
#[async_trait]
pub trait Environment: Send {
    /// Starts an episode; returns the opening prompt.
    ///
    /// # Errors
    /// [`EnvError`] for infrastructure faults.
    async fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError>;

    /// Reacts to one policy turn.
    ///
    /// # Errors
    /// [`EnvError`] for infrastructure faults and calls out of order.
    async fn step(&mut self, action: &Action) -> Result<Step, EnvError>;

    /// Limits, stop strings, id.
    fn spec(&self) -> &EnvSpec;
}

/// Makes environments of one kind and settings; shared by all episodes of a run.
pub trait EnvFactory: Send + Sync {
    /// A fresh environment for one episode at a time.
    fn make(&self) -> Box<dyn Environment>;

    /// What every environment it makes has in common.
    fn spec(&self) -> &EnvSpec;

    /// Its actions as tools, for clients that call tools; none where turns can only be written as text.
    fn tools(&self) -> Vec<TurnTool> {
        Vec::new()
    }
}

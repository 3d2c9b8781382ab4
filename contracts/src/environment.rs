//! The Gymnasium-shaped contract of a text environment.

mod call;
mod outcome;
mod tool;

use std::error::Error;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::policy::Finish;
use crate::retriever::RetrieverError;
use crate::seed::Seed;
use crate::task::Task;

pub use call::{Call, TurnKind};
pub use outcome::Outcome;
pub use tool::{TurnForm, TurnTool};

/// Text the environment shows the policy. Appended verbatim to the token log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The text; empty on the last step.
    pub text: String,
    /// Results of tool calls, one by one, without the text around them: the messages of episodes that are chats, in place of `text`.
    /// Empty where the turn called no tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<String>,
}

impl Observation {
    /// Text that answers no call.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            results: Vec::new(),
        }
    }

    /// Appends a sentence to the text and to the last result.
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
    /// The text that the policy wrote in this turn, decoded.
    pub text: String,
    /// Why the completion ended.
    pub finish: Finish,
    /// Turns that the driver allows after this one. After the last turn nobody reads the observation, so the environment need not produce
    /// one.
    pub turns_left: usize,
}

impl Action {
    /// A turn that ended by itself and is not the last.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            finish: Finish::Stop,
            turns_left: usize::MAX,
        }
    }

    /// Whether nobody reads what the environment answers.
    pub fn is_last(&self) -> bool {
        self.turns_left == 0
    }
}

/// The environment's reaction to one action.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Shown to the policy before its next turn.
    pub observation: Observation,
    /// Reward of this turn, finite; 0 where the score is given at the end by the episode's rewards.
    pub reward: f32,
    /// The task itself ended: an answer was given, or an invalid turn in a profile that ends on it. Limits are the driver's.
    pub terminated: bool,
    /// The turn as it was understood.
    pub kind: TurnKind,
    /// Text with which the driver begins the policy's next turn, logged as forced and never trained on. The next [`Action::text`] begins
    /// with it.
    pub forced_prefix: Option<String>,
}

impl Step {
    /// A reaction after which the policy writes again, unless the driver's limits are reached.
    pub fn reply(observation: Observation, kind: TurnKind) -> Self {
        Self {
            observation,
            reward: 0.0,
            terminated: false,
            kind,
            forced_prefix: None,
        }
    }

    /// The end of the episode.
    pub fn end(kind: TurnKind) -> Self {
        Self {
            terminated: true,
            ..Self::reply(Observation::default(), kind)
        }
    }
}

/// Facts about an environment that do not change between episodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EnvSpec {
    /// `forage/NAME-vN`; of an environment on a server the server's own.
    pub id: String,
    /// The purpose of its episodes.
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

/// The part of the system behind an infrastructure fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boundary {
    /// The policy or its engine.
    Policy,
    /// The retriever.
    Retriever,
    /// The sandbox that runs the policy's code.
    Sandbox,
    /// The environment itself.
    Environment,
    /// A reward or judge.
    Reward,
}

/// A fault of the environment or of a system that it uses; never counted as a reward of 0.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// A system that the environment uses failed.
    #[error("{}", match boundary {
        Boundary::Retriever => "search failed",
        Boundary::Sandbox => "the code cannot be run",
        _ => "the environment failed",
    })]
    Failed {
        /// The part that failed.
        boundary: Boundary,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The task lacks what its episodes are judged by.
    #[error("task `{task}` (`{question}`) {missing}")]
    Task {
        /// The task's id.
        task: String,
        /// Its question.
        question: String,
        /// The missing part, and the fix.
        missing: String,
    },
    /// `step` was called before `reset`.
    #[error("step called before reset")]
    NotReset,
}

impl EnvError {
    /// A fault of the environment itself or of anything that has no boundary of its own.
    pub fn own(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::at(Boundary::Environment, error)
    }

    /// A fault of one part of the system.
    pub fn at(boundary: Boundary, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let source = error.into();
        Self::Failed { boundary, source }
    }
}

impl From<RetrieverError> for EnvError {
    fn from(error: RetrieverError) -> Self {
        Self::at(Boundary::Retriever, error)
    }
}

/// One episode at a time. The driver calls `reset` before `step`, no `step` after the end, and counts turns: an
/// environment need not.
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
    /// [`EnvError`] for infrastructure faults.
    async fn step(&mut self, action: &Action) -> Result<Step, EnvError>;

    /// Limits, stop strings, id.
    fn spec(&self) -> &EnvSpec;
}

/// Makes environments of one kind and settings; shared by all episodes of a run.
pub trait EnvFactory: Send + Sync {
    /// A fresh environment for one episode at a time.
    fn make(&self) -> Box<dyn Environment>;

    /// The facts common to all environments it makes.
    fn spec(&self) -> &EnvSpec;

    /// Id of its entry in the registry: the spec's, unless what it plays has a name of its own.
    fn entry(&self) -> &str {
        &self.spec().id
    }

    /// Its actions as tools, for clients that call tools; empty where turns can only be written as text. The last one is what an episode
    /// is to end with, an answer for instance, and receives a client's final message.
    fn tools(&self) -> Vec<TurnTool> {
        Vec::new()
    }
}

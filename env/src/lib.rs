//! The reinforcement-learning problem: tasks, protocols, environments, rewards, the token log and the rollout driver.
//!
//! # What it is
//! Everything between a question and a scored episode. An `Environment` of the contracts speaks text in a Gymnasium-shaped
//! way, a `Policy` speaks token ids, and the [`Rollout`] driver stands between them: it owns the
//! `TokenLog`, runs one task per episode and turns every fault of ours into an ending without a reward.
//!
//! # What it is not
//! No model, no gradient, no statistics, no printing: learners live in `forage-trainer`, metrics in `forage-eval`, the
//! terminal in `forage`. Passages come from `forage-retriever`.
//!
//! # Map, in reading order
//! - `forage_contracts`: tasks, seeds, the contracts of environments, policies and rewards, token logs, episodes, scripted policies.
//! - `tokenizer`: a model's own.
//! - [`chat`]: chat templates, conversations that only grow, tool calls.
//! - `protocol`: tags in policy turns, and the structure a whole response must have.
//! - [`registry`]: the list of environments and rewards; [`Plugins`]: entries from outside; [`CheckPlan`]: the contract, checked for any.
//! - [`reward`]: grading, rewards by name, their weighted set.
//! - `monitor`: the table of metrics, items of telemetry, and alarms.
//! - `rollout`: the driver, the fault budget, records on disk.
//! - [`server`]: the environments over HTTP, WebSocket and MCP.
//! - `probe`: evaluations under a change.
//! - [`demonstrate()`]: what oracles show.
//! - `world`, `dataset`: generated and published questions.

mod tokenizer;

pub mod chat;
mod protocol;

mod check;
mod code_search;
mod demonstrate;
mod experience;
mod external;
mod math;
mod plugins;
mod probe;
mod query_writer;
pub mod registry;
mod rerank;
mod search_r1;
mod settings;

pub use check::{CheckFailure, CheckPlan};
pub use dataset::{
    Contamination, DatasetError, LabelError, Labels, Leak, Repeated, digest_ids, pick_ids,
    read_all, read_tasks,
};
pub use demonstrate::demonstrate;
pub use fuzz::read_turn;
pub use monitor::{Alarm, Example, Severity};
pub use plugins::Plugins;
pub use probe::{PassageProbe, Probe, ProbeError};
pub use rollout::{
    Branching, BudgetExceeded, ChatSettings, Difference, EpisodeRecord, EpisodeWriter, InfraBudget,
    Job, Keep, Presentation, RecordError, Rejection, RejectionCounts, ReplayError, Rollout, replay,
};
pub use tokenizer::{HfTokenizer, TokenizerError};
pub use wiki::{Wiki, WikiError};
pub use world::{Difficulty, QuestionCounts, World, WorldError, WorldSpec};

mod monitor;
pub mod reward;

mod rollout;

pub mod server;

mod dataset;
mod wiki;
mod world;

mod ask;
mod fuzz;
mod merge;
mod paraphrases;

// Tests inside of the crate name it as its users do.
#[cfg(test)]
extern crate self as forage_env;
#[cfg(test)]
mod tests;

//! The reinforcement-learning problem: tasks, protocols, environments, rewards, the token log and the rollout driver.
//!
//! # What it is
//! Everything between a question and a scored episode. An [`environment::Environment`] speaks text in a Gymnasium-shaped
//! way, a [`policy::Policy`] speaks token ids, and the [`rollout::Rollout`] driver stands between them: it owns the
//! [`tokens::TokenLog`], runs one task per episode and turns every fault of ours into an ending without a reward.
//!
//! # What it is not
//! No model, no gradient, no statistics, no printing: learners live in `forage-trainer`, metrics in `forage-eval`, the
//! terminal in `forage`. Passages come from `forage-retriever`.
//!
//! # Map, in reading order
//! - [`task`], [`seed`]: what is asked; where randomness comes from.
//! - [`environment`], [`policy`], [`tokenizer`]: the three contracts; [`tokens`], [`episode`]: what a rollout leaves behind.
//! - [`chat`]: chat templates, conversations that only grow, tool calls.
//! - [`protocol`]: tags in policy turns, and the structure a whole response must have.
//! - [`search_r1`], [`code_search`], [`query_writer`]: the environments; [`registry`]: the list of environments; [`plugins`]: entries from
//!   outside; [`check`]: the contract, checked for any.
//! - [`reward`]: grading, rewards by name, their weighted set.
//! - [`monitor`]: the table of metrics, and alarms.
//! - [`rollout`]: the driver, the fault budget, records on disk.
//! - [`server`]: the environments over HTTP, WebSocket and MCP.
//! - [`probe`]: evaluations under a change.
//! - [`scripted`]: policies without a model: oracle, controls, human; [`demonstrate`]: what oracles show.
//! - [`world`], [`dataset`]: generated and published questions.

pub use forage_contracts::{environment, episode, policy, scripted, seed, task, tokens};

pub mod tokenizer;

pub mod chat;
pub mod protocol;

pub mod check;
pub mod code_search;
pub mod demonstrate;
pub mod plugins;
pub mod probe;
pub mod query_writer;
pub mod registry;
pub mod search_r1;
pub mod settings;

pub mod monitor;
pub mod reward;

pub mod rollout;

pub mod server;

pub mod dataset;
pub mod wiki;
pub mod world;

mod merge;
pub mod nearest;
mod paraphrases;

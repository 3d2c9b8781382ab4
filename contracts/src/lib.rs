//! The contracts: the traits, records and registry entries that a plug-in implements or hands over, and nothing that runs them.
//!
//! A plug-in depends on this crate alone, which brings no index, no sandbox, no server and no tensors:
//!
//! - an environment: [`environment`], [`entry`], and [`scripted`] for its policies without a model;
//! - a reward: [`reward`], which sees a [`task`] and an [`episode`];
//! - a retriever that brings its own passages: [`retriever`];
//! - a corpus format or a question format: [`corpus`], [`question`], over the [`row`]s of a file;
//! - a loss or an advantage: [`objective`], over plain slices.
//!
//! What runs them is in the crates above: indexes in `forage-retriever`, built-in environments, rewards and the rollout driver in
//! `forage-env`, the learner in `forage-trainer`. A search mode works on an index folder, and so its entry is in
//! `forage-retriever`.

pub mod corpus;
pub mod entry;
pub mod environment;
pub mod episode;
pub mod metric;
pub mod objective;
pub mod pages;
pub mod policy;
pub mod question;
pub mod registry;
pub mod retriever;
pub mod reward;
pub mod row;
pub mod scripted;
pub mod seed;
pub mod tag;
pub mod task;
pub mod tokenizer;
pub mod tokens;

//! The objective: the GRPO family as pure functions over plain slices.
//!
//! # What it is
//! Rewards become advantages (`Advantage`), advantages and what turns earned become token credit ([`Credit`],
//! `Recipe::advantages`), and a `PolicyLoss` with a
//! [`KlPenalty`] and a [`Correction`] gives each policy token a loss and its derivative by the token's log-probability.
//! An `Aggregation` weighs the tokens of a whole optimizer step. A [`Recipe`] holds one of each; an `Algorithm` is a
//! published recipe by name. Losses and advantages are entries of two lists, `losses.rs` and `advantages.rs`,
//! which [`Plugins`](crate::Plugins) make longer.
//!
//! # What it is not
//! Nothing here knows tensors. The gradient of a step by the weights is that of `(logprobs * gradients).sum()`, with the
//! gradients as constants: `Recipe::sequence` returns them per token, already weighed.
//!
//! # Conventions
//! Log-probabilities are in nats. Slices over tokens hold policy tokens only, in order: observation tokens have no loss and no
//! gradient because they are not there. Inputs and outputs are `f32`, arithmetic is `f64`. Losses are minimised.

mod advantage;
mod advantages;
mod aggregate;
mod algorithm;
mod anchored;
mod bounds;
mod config;
mod correction;
mod covariance;
mod credit;
mod entropy;
mod entry;
mod filter;
mod kl;
mod lipo;
mod loss;
mod losses;
mod potential;
mod rank_shaping;
mod step;
#[cfg(test)]
mod tests;
mod turns;
mod value;

pub(crate) use advantage::Advantage;
#[cfg(test)]
pub(crate) use advantage::SignWeights;
#[cfg(test)]
pub(crate) use aggregate::Aggregation;
pub(crate) use algorithm::Algorithm;
pub use algorithm::{AlgorithmEntry, Recipe};
pub(crate) use anchored::AnchoredEntropy;
pub use config::ObjectiveConfig;
pub(crate) use correction::CorrectionCounts;
pub use correction::{Bound, Correction, RatioLevel};
pub use credit::Credit;
pub(crate) use entropy::EntropyTerms;
pub use entry::{Choice, Entry};
pub(crate) use filter::GroupFilter;
pub use forage_contracts::objective::{
    AdvantageEntry, Group, GroupOutcome, LossEntry, Setting, Settings, TokenInputs, TokenTerms,
};
pub use kl::{KlEstimator, KlPenalty};
pub(crate) use loss::PolicyLoss;
pub(crate) use potential::step_potential;
pub(crate) use rank_shaping::{RankMetrics, RankShaping, rank_means};
pub(crate) use step::ObjectiveStats;
pub(crate) use turns::Member;
pub(crate) use value::{ValueTerms, explained_variance, value_loss};

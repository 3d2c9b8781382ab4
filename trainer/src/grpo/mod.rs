//! Group-relative policy optimisation (Shao et al. 2024, `DeepSeekMath`), as plain functions.

mod advantage;
mod loss;

pub use advantage::{Advantage, GroupOutcome, group_advantages};
pub use loss::{ClipRange, KlPenalty, LossConfig, LossParts, LossStats, policy_loss};

//! Low-rank adapters: attached and merged. [`crate::weights`] reads and writes their folders.
//!
//! An adapted decoder computes `x W + s (x A) B`; the product `A B` is made only by merging. Its base is frozen: gradients
//! and moments exist for `A` and `B` alone (see `grads::track`).

mod attach;
mod config;

pub(crate) use attach::{attach, merge, set, shift};
pub use config::{LoraConfig, Targets};

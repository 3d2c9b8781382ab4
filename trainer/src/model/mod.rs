//! Qwen2, Qwen2.5 and Qwen3 dense decoders.

mod attend;
mod batch;
mod cache;
mod config;
mod decoder;
mod dense;
pub(crate) mod host;
mod init;
mod linear;
mod pointwise;
mod quantised;
mod rope;

pub(crate) use attend::Heads;
pub use batch::{Batch, Span};
pub use cache::{BLOCK_POSITIONS, Chunk, KvCache, Pass};
pub use config::{Architecture, ConfigError, ModelConfig};
pub use decoder::Decoder;
pub(crate) use decoder::{ARRANGED_INPUTS, Gated};
pub(crate) use dense::Dense;
pub use init::{init_quick, init_random};
pub(crate) use linear::{LOW_RANK, product};
pub use linear::{Linear, LowRank};
pub(crate) use pointwise::{normalise, normalise_backward, swiglu, swiglu_backward};
pub(crate) use quantised::BLOCK_INPUTS;
pub use rope::RopeTables;

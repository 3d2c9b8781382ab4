//! Qwen2, Qwen2.5 and Qwen3 dense decoders.

mod cache;
mod config;
mod decoder;
mod init;
mod rope;

pub use cache::KvCache;
pub use config::{Architecture, ConfigError, ModelConfig};
pub use decoder::{Batch, Decoder};
pub use init::{init_quick, init_random};
pub use rope::RopeTables;

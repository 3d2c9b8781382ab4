//! Dense decoders of several families.

mod attend;
mod batch;
mod cache;
mod config;
mod decoder;
mod dense;
mod families;
pub(crate) mod host;
mod init;
mod kernels;
mod layer;
mod linear;
mod parameter_grads;
mod quantised;
mod rope;

pub use batch::{Batch, Span};
pub use cache::{BLOCK_POSITIONS, Chunk, KvCache, Pass};
pub use config::{ConfigError, ModelConfig, RopeScaling};
pub(crate) use decoder::ARRANGED_INPUTS;
pub use decoder::Decoder;
pub(crate) use dense::{Dense, attention_numbers};
pub use families::Architecture;
pub use init::{init_quick, init_random};
pub(crate) use kernels::Kernels;
pub(crate) use layer::{Kept, LayerBackward, LayerSizes};
pub(crate) use linear::LOW_RANK;
pub use linear::{Linear, LowRank};
pub(crate) use parameter_grads::ParameterGrads;
pub(crate) use quantised::BLOCK_INPUTS;
pub use rope::RopeTables;

//! Dense decoders of several families.

mod attend;
mod batch;
mod cache;
mod config;
#[cfg(feature = "gpu")]
mod cube;
mod decoder;
mod dense;
mod dropout;
mod families;
pub(crate) mod host;
mod init;
mod kernels;
mod layer;
mod linear;
mod parameter_grads;
mod quantised;
mod rope;
mod sizes;

pub(crate) use attend::Heads;
pub(crate) use batch::{Batch, Span, common_prefix};
pub(crate) use cache::{BLOCK_POSITIONS, Chunk, KvCache, Pass};
pub(crate) use config::check_sizes;
pub use config::{ModelConfig, RopeScaling};
#[cfg(feature = "gpu")]
pub(crate) use cube::{
    Choice, Codes, Cuts, MOMENT_BLOCK, Wanted, adamw, adamw_of_8_bits, all_product_kernels, choose,
    logit_grads, product_by, product_kernels, sums_of_squares, token_scores,
};
pub use decoder::Decoder;
pub(crate) use decoder::HEAD;
pub(crate) use dense::{Dense, attention_numbers};
pub(crate) use dropout::Dropout;
pub use families::{Architecture, Family, NormPlacement, Published, QkNorm};
pub(crate) use init::init_quick;
pub(crate) use kernels::Kernels;
pub(crate) use layer::{Kept, LayerBackward, PROJECTIONS, Projection, projections};
pub(crate) use linear::LOW_RANK;
pub(crate) use linear::{Linear, LowRank};
pub(crate) use parameter_grads::ParameterGrads;
pub(crate) use quantised::bytes_of_8_bits;
pub(crate) use rope::RopeTables;
pub(crate) use sizes::LayerSizes;

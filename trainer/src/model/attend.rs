//! What attention is given: how the tokens of a pass see each other is the one part of the decoder that differs between training
//! and generation.

use burn::tensor::Tensor;

/// Score of a masked position: finite, so that a fully masked row is uniform rather than NaN.
pub(super) const MASKED: f32 = -1e9;

/// The projections of one layer for the `n` tokens of a pass, before rotation.
#[derive(Clone, Debug)]
pub(crate) struct Heads {
    /// `[n, heads, head_dim]`.
    pub(crate) queries: Tensor<3>,
    /// `[n, kv_heads, head_dim]`.
    pub(crate) keys: Tensor<3>,
    /// `[n, kv_heads, head_dim]`.
    pub(crate) values: Tensor<3>,
}

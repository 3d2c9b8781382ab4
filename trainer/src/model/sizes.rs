//! The memory that training takes of a layer.

use super::ModelConfig;
use super::families::{NormPlacement, QkNorm};

/// Numbers that a layer holds for each token of a micro-batch, by the code of [`super::layer`].
pub(crate) struct LayerSizes {
    /// [`super::Kept`] without activations.
    pub(crate) kept: usize,
    /// The activations of [`super::Kept`].
    pub(crate) activations: usize,
    /// While [`super::LayerBackward`] goes through the feed-forward part: gate, up, activation and the gradient by it; the stream, its
    /// norm and the gradients by both; the mixed values.
    pub(crate) feed_forward: usize,
    /// The share of these that is counted with activations where those were kept: gate, up and stream.
    pub(crate) shared: usize,
    /// While it goes through attention: the stream as before; projections before and after they are rotated, with the gradients by
    /// each.
    pub(crate) attention: usize,
}

impl LayerSizes {
    pub(crate) fn of(config: &ModelConfig) -> Self {
        let (h, i) = (config.hidden_size, config.intermediate_size);
        let q = config.num_attention_heads * config.head_dim;
        let k = config.num_key_value_heads * config.head_dim;
        Self {
            kept: h + q,
            activations: q + 2 * k + h + 2 * i,
            feed_forward: 4 * i + 4 * h + q,
            shared: 2 * i + h,
            attention: 4 * h + 4 * q + 6 * k,
        }
    }

    /// The same on a GPU, where nothing is changed in place on the way back: of a joined layer, whose low-rank changes have so many
    /// `ranks` together, or of one that is not joined. A joined one keeps heads that are normalised as they were before too, and what
    /// changes read, made narrow.
    pub(crate) fn on_card(config: &ModelConfig, ranks: Option<usize>) -> Self {
        let plain = Self::of(config);
        let (h, i) = (config.hidden_size, config.intermediate_size);
        let Some(ranks) = ranks else {
            return Self {
                feed_forward: plain.feed_forward + i,
                ..plain
            };
        };
        let q = config.num_attention_heads * config.head_dim;
        let heads = q + 2 * config.num_key_value_heads * config.head_dim;
        let normed = config.architecture.family().qk_norm == QkNorm::Head;
        Self {
            activations: plain.activations + ranks + if normed { heads } else { 0 },
            // Gate, up and the gradients by both, the activation and the gradient by it, to which an adapter adds.
            feed_forward: (6 + usize::from(ranks > 0)) * i + 4 * h + q,
            attention: 4 * h + q + 4 * heads,
            ..plain
        }
    }

    /// Returns whether all layers of this shape are joined where training computes with a copy of them on a GPU.
    pub(crate) fn joins(config: &ModelConfig) -> bool {
        let family = config.architecture.family();
        family.norms == NormPlacement::Before && family.qk_norm != QkNorm::Width
    }
}

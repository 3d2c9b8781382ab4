//! How the tokens of a pass see each other: the one part of the decoder that differs between training and generation.

use std::ops::Range;

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

/// Grouped-query attention of one pass, layer by layer.
pub(crate) trait Attend {
    /// Returns the mixed values, `[n, heads * head_dim]`.
    fn attend(&mut self, layer: usize, heads: Heads) -> Tensor<2>;
}

/// Whole sequences, one after the other: what stands in a row of a matrix is a token, and none is padding.
#[derive(Clone, Debug)]
pub struct Batch {
    ids: Vec<i32>,
    spans: Vec<Range<usize>>,
}

impl Batch {
    /// Sequences of token ids.
    ///
    /// # Panics
    /// When there are no tokens.
    pub fn new(sequences: &[&[u32]]) -> Self {
        let ids: Vec<i32> = sequences.iter().flat_map(|sequence| sequence.iter().map(|&id| id as i32)).collect();
        assert!(!ids.is_empty(), "a batch has tokens");
        let mut end = 0;
        let span = |sequence: &&[u32]| {
            end += sequence.len();
            end - sequence.len()..end
        };
        Self { ids, spans: sequences.iter().map(span).collect() }
    }

    /// Rows of each sequence.
    pub fn spans(&self) -> &[Range<usize>] {
        &self.spans
    }

    /// Token ids, one per row.
    pub(crate) fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// Position of each token in its sequence.
    pub(super) fn positions(&self) -> Vec<i32> {
        self.spans.iter().flat_map(|span| (0..span.len()).map(|position| position as i32)).collect()
    }
}

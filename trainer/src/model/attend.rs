//! How the tokens of a pass see each other: the one part of the decoder that differs between training and generation.

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};

use super::rope::rotate;
use super::{ModelConfig, RopeTables};

/// Score of a masked position: finite, so that a fully masked row is uniform rather than NaN.
pub(super) const MASKED: f32 = -1e9;

/// The projections of one layer for the `n` tokens of a pass, before rotation.
#[derive(Clone, Debug)]
pub(super) struct Heads {
    /// `[n, heads, head_dim]`.
    pub(super) queries: Tensor<3>,
    /// `[n, kv_heads, head_dim]`.
    pub(super) keys: Tensor<3>,
    /// `[n, kv_heads, head_dim]`.
    pub(super) values: Tensor<3>,
}

/// Grouped-query attention of one pass, layer by layer.
pub(super) trait Attend {
    /// Returns the mixed values, `[n, heads * head_dim]`.
    fn attend(&mut self, layer: usize, heads: Heads) -> Tensor<2>;
}

/// Token rows to run whole, padded on the right to a common length.
#[derive(Clone, Debug)]
pub struct Batch {
    ids: Vec<i32>,
    rows: usize,
    width: usize,
}

impl Batch {
    /// Rows of token ids.
    ///
    /// # Panics
    /// When there are no rows.
    pub fn new(rows: &[&[u32]]) -> Self {
        assert!(!rows.is_empty(), "a batch has rows");
        let width = rows.iter().map(|row| row.len()).max().unwrap_or(0).max(1);
        let mut ids = Vec::with_capacity(rows.len() * width);
        for row in rows {
            ids.extend(row.iter().map(|&id| id as i32));
            ids.resize(ids.len() + width - row.len(), 0);
        }
        Self { ids, rows: rows.len(), width }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Common length of the padded rows.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Token ids, row-major.
    pub(super) fn ids(&self) -> &[i32] {
        &self.ids
    }

    fn positions(&self) -> Vec<i32> {
        (0..self.rows).flat_map(|_| (0..self.width).map(|position| position as i32)).collect()
    }

    /// Additive mask `[rows, 1, group * width, width]`: token t of a row sees columns up to its own position.
    fn mask(&self, group: usize, device: &Device) -> Tensor<4> {
        let mut mask = Vec::with_capacity(self.rows * group * self.width * self.width);
        for _ in 0..self.rows * group {
            for t in 0..self.width {
                mask.resize(mask.len() + t + 1, 0.0);
                mask.resize(mask.len() + self.width - t - 1, MASKED);
            }
        }
        Tensor::from_data(TensorData::new(mask, [self.rows, 1, group * self.width, self.width]), device)
    }
}

/// Whole sequences, each attending to itself causally; carries gradients.
pub(super) struct Dense {
    cos: Tensor<3>,
    sin: Tensor<3>,
    mask: Tensor<4>,
    rows: usize,
    width: usize,
}

impl Dense {
    pub(super) fn new(config: &ModelConfig, rope: &RopeTables, batch: &Batch, device: &Device) -> Self {
        let plain = device.clone().without_autodiff();
        let (cos, sin) = rope.rows(Tensor::<1, Int>::from_ints(batch.positions().as_slice(), &plain));
        let mask = batch.mask(config.num_attention_heads / config.num_key_value_heads, &plain);
        let same = |tensor: Tensor<3>| if device.is_autodiff() { tensor.autodiff() } else { tensor };
        let mask = if device.is_autodiff() { mask.autodiff() } else { mask };
        Self { cos: same(cos), sin: same(sin), mask, rows: batch.rows, width: batch.width }
    }
}

impl Attend for Dense {
    fn attend(&mut self, _layer: usize, heads: Heads) -> Tensor<2> {
        let [n, query_heads, dim] = heads.queries.dims();
        let [_, kv_heads, _] = heads.keys.dims();
        let (rows, width) = (self.rows, self.width);
        let by_head = |x: Tensor<3>, heads: usize| x.reshape([rows, width, heads, dim]).swap_dims(1, 2);
        let queries = by_head(rotate(heads.queries, &self.cos, &self.sin), query_heads);
        let keys = by_head(rotate(heads.keys, &self.cos, &self.sin), kv_heads);
        let values = by_head(heads.values, kv_heads);
        // The heads of a group are folded into query rows, so keys and values are never copied.
        let folded = queries.reshape([rows, kv_heads, query_heads / kv_heads * width, dim]);
        let scores = folded.matmul(keys.swap_dims(2, 3)) * (1.0 / (dim as f64).sqrt()) + self.mask.clone();
        let mixed = softmax(scores, 3).matmul(values);
        mixed.reshape([rows, query_heads, width, dim]).swap_dims(1, 2).reshape([n, query_heads * dim])
    }
}

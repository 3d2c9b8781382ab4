//! Static key-value cache: one slot per episode, column = position.
//!
//! A token's keys and values stand at its own position whatever its batch neighbours do, so that an episode reads the
//! same numbers in the same order alone or in company.

use burn::tensor::{Device, Int, Tensor};

use super::ModelConfig;

/// Keys `[slots, kv_heads, head_dim, positions]` and values `[slots, kv_heads, positions, head_dim]` of every layer.
///
/// Keys are stored transposed: a row-major right-hand side keeps the processor's matrix product on one code path for all
/// shapes, so that a score has the same bits whatever the batch and the window are.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<(Tensor<4>, Tensor<4>)>,
    positions: usize,
}

/// Where the rows of a batch stand in the cache.
#[derive(Clone, Debug)]
pub(super) struct CacheRows<'a> {
    /// Slot of each row.
    pub(super) slots: &'a [usize],
    /// Position of each row's first new token.
    pub(super) starts: &'a [usize],
    /// Number of new tokens of each row.
    pub(super) lengths: &'a [usize],
    /// Columns to read: at least every row's start + length.
    pub(super) window: usize,
}

impl KvCache {
    /// An empty cache for `slots` episodes of up to `positions` tokens.
    pub fn new(config: &ModelConfig, slots: usize, positions: usize, device: &Device) -> Self {
        let (heads, dim) = (config.num_key_value_heads, config.head_dim);
        // Zeros, not garbage: masked columns are multiplied by a zero weight, and zero times NaN is NaN.
        let layer = |_| {
            (
                Tensor::zeros([slots, heads, dim, positions], device),
                Tensor::zeros([slots, heads, positions, dim], device),
            )
        };
        let layers = (0..config.num_hidden_layers).map(layer).collect();
        Self { layers, positions }
    }

    /// Positions per slot.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Writes new keys and values of `layer` (`[rows, kv_heads, t, head_dim]`) and returns what the rows may attend to:
    /// keys `[rows, kv_heads, head_dim, window]` and values `[rows, kv_heads, window, head_dim]`.
    pub(super) fn update(
        &mut self,
        layer: usize,
        keys: &Tensor<4>,
        values: &Tensor<4>,
        rows: &CacheRows<'_>,
    ) -> (Tensor<4>, Tensor<4>) {
        let (mut cached_keys, mut cached_values) = self.layers[layer].clone();
        // The stored handles are dropped here so that the writes below happen in place.
        self.layers[layer] =
            (Tensor::empty([0, 0, 0, 0], &cached_keys.device()), Tensor::empty([0, 0, 0, 0], &cached_values.device()));
        let [_, heads, _, dim] = keys.dims();
        for (row, ((&slot, &start), &length)) in rows.slots.iter().zip(rows.starts).zip(rows.lengths).enumerate() {
            if length == 0 {
                continue;
            }
            let source = [row..row + 1, 0..heads, 0..length, 0..dim];
            let columns = start..start + length;
            let new_keys = keys.clone().slice(source.clone()).swap_dims(2, 3);
            cached_keys = cached_keys.slice_assign([slot..slot + 1, 0..heads, 0..dim, columns.clone()], new_keys);
            let new_values = values.clone().slice(source);
            cached_values = cached_values.slice_assign([slot..slot + 1, 0..heads, columns, 0..dim], new_values);
        }
        let visible = (read(&cached_keys, 3, rows), read(&cached_values, 2, rows));
        self.layers[layer] = (cached_keys, cached_values);
        visible
    }
}

/// The rows' part of a cached tensor whose positions are dimension `axis`.
fn read(cached: &Tensor<4>, axis: usize, rows: &CacheRows<'_>) -> Tensor<4> {
    let window = cached.clone().narrow(axis, 0, rows.window);
    let first = rows.slots.first().copied().unwrap_or(0);
    let contiguous = rows.slots.iter().enumerate().all(|(row, &slot)| slot == first + row);
    if contiguous {
        // A view: no copy.
        return window.narrow(0, first, rows.slots.len());
    }
    let indices: Vec<i32> = rows.slots.iter().map(|&slot| slot as i32).collect();
    window.select(0, Tensor::<1, Int>::from_ints(indices.as_slice(), &cached.device()))
}

//! Attention over the rows of a batch: its launches, and the tiles that they work on.

use burn::tensor::{DType, Device, Int, Tensor};

use super::super::batch::Span;
use super::kernels::packed::{TILE_KEYS, TILE_ROWS};
use super::kernels::{attention, packed};
use super::launch::{argument, cubes, element, empty, numbers, stored, tensor, units};

/// The rows of a batch's sequences, as kernels read them.
pub(crate) struct Packed {
    /// Four numbers per tile of queries, then the rows of the tokens of every sequence.
    queries: Tensor<1, Int>,
    query_tiles: usize,
    tile: usize,
    /// Five numbers per tile of keys, then four for each of those who see the keys of a sequence.
    keys: Tensor<1, Int>,
    key_tiles: usize,
    /// Angles of all positions, `[positions, head_dim]`, and the position of each row, then its number.
    turns: Option<(Tensor<2>, Tensor<1, Int>)>,
}

impl Packed {
    /// For sequences whose key heads serve `group` query heads each.
    pub(crate) fn new(spans: &[Span], group: usize, device: &Device) -> Self {
        let tile = (TILE_ROWS / group).max(1);
        let (mut queries, mut rows) = (Vec::new(), Vec::new());
        let (mut keys, mut viewers) = (Vec::new(), Vec::new());
        let tiles = |span: &Span, tile: usize| span.own.len().div_ceil(tile);
        let query_tiles: usize = spans.iter().map(|span| tiles(span, tile)).sum();
        let key_tiles: usize = spans.iter().map(|span| tiles(span, TILE_KEYS)).sum();
        for (index, span) in spans.iter().enumerate() {
            let (before, tokens) = (span.before(), query_tiles * 4 + rows.len());
            rows.extend(span.ranges().flatten());
            for offset in (0..span.own.len()).step_by(tile) {
                let count = tile.min(span.own.len() - offset);
                queries.extend([span.own.start + offset, count, tokens, before + offset]);
            }

            // Its own queries see its keys, and those of later sequences that begin with some of them.
            let first = key_tiles * 5 + viewers.len();
            viewers.extend([span.own.start, span.own.len(), before, span.own.end]);
            for other in &spans[index + 1..] {
                let shared = other.shared.iter();
                for rows in shared.filter(|rows| span.own.contains(&rows.start)) {
                    viewers.extend([other.own.start, other.own.len(), other.before(), rows.end]);
                }
            }
            let count = (key_tiles * 5 + viewers.len() - first) / 4;
            for offset in (0..span.own.len()).step_by(TILE_KEYS) {
                let rows = TILE_KEYS.min(span.own.len() - offset);
                keys.extend([span.own.start + offset, rows, before + offset, first, count]);
            }
        }
        queries.extend(rows);
        keys.extend(viewers);
        let ints = |numbers: Vec<usize>| {
            let numbers: Vec<i32> = numbers.into_iter().map(|number| number as i32).collect();
            Tensor::<1, Int>::from_ints(numbers.as_slice(), device)
        };
        Self {
            queries: ints(queries),
            query_tiles,
            tile,
            keys: ints(keys),
            key_tiles,
            turns: None,
        }
    }

    /// The same for heads that are rotated by `angles`, `[positions, head_dim]`; `positions` has one for each row.
    #[must_use]
    pub(crate) fn turning(mut self, angles: &Tensor<2>, positions: &[i32]) -> Self {
        let mut places = positions.to_vec();
        places.extend(0..positions.len() as i32);
        let places = Tensor::<1, Int>::from_ints(places.as_slice(), &angles.device());
        self.turns = Some((angles.clone(), places));
        self
    }

    /// # Panics
    /// Where [`Self::turning`] was not called.
    pub(super) fn turns(&self) -> (&Tensor<2>, &Tensor<1, Int>) {
        let (angles, places) = self.turns.as_ref().expect("heads of a layer are rotated");
        (angles, places)
    }

    /// Mixed values of rotated heads, `[n, heads, head_dim]`, and for each row and head two numbers, `[n, heads, 2]` in f32, the
    /// first of which is the logarithm of the sum of exponentiated scores.
    pub(crate) fn attend(
        &self,
        queries: Tensor<3>,
        keys: Tensor<3>,
        values: Tensor<3>,
    ) -> (Tensor<3>, Tensor<3>) {
        let ([rows, heads, dim], [_, kv_heads, _]) = (queries.dims(), keys.dims());
        let (queries, keys, values) = (stored(queries), stored(keys), stored(values));
        let places = numbers(self.queries.clone());
        let out = empty(&queries, [rows, heads, dim], queries.dtype);
        let stats = empty(&queries, [rows, heads, 2], DType::F32);
        // Partial sums of spans, of which there are none.
        let mixed = empty(&queries, [1], DType::F32);
        let longest = u32::MAX / 2;
        attention::attend::launch(
            &queries.client,
            cubes(self.query_tiles, kv_heads, 1),
            units(dim),
            argument(&queries),
            argument(&keys),
            argument(&values),
            argument(&places),
            argument(&places),
            argument(&out),
            argument(&mixed),
            argument(&stats),
            1,
            kv_heads as u32,
            longest,
            1.0 / (dim as f32).sqrt(),
            dim,
            heads / kv_heads,
            self.tile,
            true,
            false,
            element(&queries),
        );
        (tensor(out), tensor(stats))
    }

    /// Derivatives by rotated queries, keys and values where that by [`Self::attend`]'s result `mixed` is `grad`; `stats` is what it
    /// returned besides.
    pub(crate) fn attend_backward(
        &self,
        [queries, keys, values]: [Tensor<3>; 3],
        mixed: Tensor<3>,
        stats: Tensor<3>,
        grad: Tensor<3>,
    ) -> [Tensor<3>; 3] {
        let ([rows, heads, dim], [_, kv_heads, _]) = (queries.dims(), keys.dims());
        let group = heads / kv_heads;
        let [queries, keys, values, mixed, stats, grad] =
            [queries, keys, values, mixed, stats, grad].map(stored);
        let by_queries = empty(&queries, [rows, heads, dim], queries.dtype);
        let by_keys = empty(&queries, [rows, kv_heads, dim], queries.dtype);
        let by_values = empty(&queries, [rows, kv_heads, dim], queries.dtype);
        let scale = 1.0 / (dim as f32).sqrt();
        packed::attend_back_to_queries::launch(
            &queries.client,
            cubes(self.query_tiles, kv_heads, 1),
            units(dim),
            argument(&queries),
            argument(&keys),
            argument(&values),
            argument(&mixed),
            argument(&grad),
            argument(&numbers(self.queries.clone())),
            argument(&stats),
            argument(&by_queries),
            kv_heads as u32,
            scale,
            dim,
            group,
            self.tile,
            element(&queries),
        );
        packed::attend_back_to_keys::launch(
            &queries.client,
            cubes(self.key_tiles, kv_heads, 1),
            units(dim),
            argument(&queries),
            argument(&keys),
            argument(&values),
            argument(&grad),
            argument(&numbers(self.keys.clone())),
            argument(&stats),
            argument(&by_keys),
            argument(&by_values),
            kv_heads as u32,
            scale,
            dim,
            group,
            element(&queries),
        );
        [by_queries, by_keys, by_values].map(tensor)
    }
}

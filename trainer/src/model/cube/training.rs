//! Launches of training: derivatives of what generation runs too, and attention over the rows of a batch.

use burn::tensor::{DType, Device, Int, Tensor};
use cubecl::prelude::*;

use super::super::batch::Span;
use super::kernels::packed::{TILE_KEYS, TILE_ROWS};
use super::kernels::{attention, packed, pointwise};
use super::launch::{
    UNITS, argument, cubes, element, elementwise, empty, numbers, stored, tensor, units, writable,
};

/// Most cubes that derivatives of a norm are spread over: each leaves a row of sums by gamma.
const NORM_CUBES: usize = 512;

/// Derivatives of [`super::swiglu`] by `gate` and `up`, all `[n, width]`.
pub(crate) fn swiglu_backward(
    gate: Tensor<2>,
    up: Tensor<2>,
    grad: Tensor<2>,
) -> (Tensor<2>, Tensor<2>) {
    let shape = gate.dims();
    let (gate, up, grad) = (stored(gate), stored(up), stored(grad));
    let by_gate = empty(&gate, shape, gate.dtype);
    let by_up = empty(&gate, shape, gate.dtype);
    let count: usize = shape.iter().product();
    pointwise::swiglu_backward::launch(
        &gate.client,
        elementwise(count),
        units(UNITS),
        argument(&gate),
        argument(&up),
        argument(&grad),
        argument(&by_gate),
        argument(&by_up),
        count as u32,
        element(&gate),
    );
    (tensor(by_gate), tensor(by_up))
}

/// Derivatives of [`super::rms_norm`] by `x`, `[n, width]`, and by gamma as rows to be added up, `[rows, width]` in f32.
pub(crate) fn rms_norm_backward(
    x: Tensor<2>,
    gamma: Tensor<1>,
    epsilon: f64,
    grad: Tensor<2>,
) -> (Tensor<2>, Tensor<2>) {
    let [rows, width] = x.dims();
    let (x, gamma, grad) = (stored(x), stored(gamma), stored(grad));
    let each = rows.div_ceil(NORM_CUBES).max(1);
    let count = rows.div_ceil(each);
    let across = UNITS.min(width.next_power_of_two());
    let by_x = empty(&x, [rows, width], x.dtype);
    let by_gamma = empty(&x, [count, width], DType::F32);
    pointwise::rms_norm_backward::launch(
        &x.client,
        cubes(count, 1, 1),
        units(across),
        argument(&x),
        argument(&gamma),
        argument(&grad),
        argument(&by_x),
        argument(&by_gamma),
        rows as u32,
        width as u32,
        each as u32,
        epsilon as f32,
        across,
        width.div_ceil(across),
        element(&x),
    );
    (tensor(by_x), tensor(by_gamma))
}

/// `x`, `[n, heads, head_dim]`, rotated by the angles of its rows, `[n, 1, head_dim / 2]`.
pub(crate) fn rotate(x: Tensor<3>, cos: &Tensor<3>, sin: &Tensor<3>) -> Tensor<3> {
    let [rows, heads, dim] = x.dims();
    let (x, cos, sin) = (stored(x), stored(cos.clone()), stored(sin.clone()));
    let out = empty(&x, [rows, heads, dim], x.dtype);
    let count = rows * heads * dim / 2;
    pointwise::rotate::launch(
        &x.client,
        elementwise(count),
        units(UNITS),
        argument(&x),
        argument(&cos),
        argument(&sin),
        argument(&out),
        heads as u32,
        (dim / 2) as u32,
        count as u32,
        element(&x),
    );
    tensor(out)
}

/// A parameter and its moments after a step of `AdamW`, each written in place where nothing else holds it. `factors`: the decay of the
/// first moment and 1 minus it, the same of the second, the biases of both, epsilon, the rate, and the factor of the parameter.
pub(crate) fn adamw<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<1>,
    [first, second]: [Tensor<1>; 2],
    factors: [f32; 9],
) -> (Tensor<D>, [Tensor<1>; 2]) {
    let [
        beta1,
        rest1,
        beta2,
        rest2,
        bias1,
        bias2,
        epsilon,
        rate,
        decay,
    ] = factors;
    let gradient = stored(gradient);
    let (parameter, first, second) = (writable(parameter), writable(first), writable(second));
    let count = parameter.meta.num_elements();
    pointwise::adamw::launch(
        &gradient.client,
        elementwise(count),
        units(UNITS),
        argument(&gradient),
        argument(&parameter),
        argument(&first),
        argument(&second),
        beta1,
        rest1,
        beta2,
        rest2,
        bias1,
        bias2,
        epsilon,
        rate,
        decay,
        count as u32,
    );
    (tensor(parameter), [first, second].map(tensor))
}

/// Where the sequences of a batch stand among its rows, as the kernels of attention read it.
pub(crate) struct Packed {
    /// Four numbers per tile of queries, then the rows of the tokens of every sequence.
    queries: Tensor<1, Int>,
    query_tiles: usize,
    tile: usize,
    /// Five numbers per tile of keys, then four for each of those who see the keys of a sequence.
    keys: Tensor<1, Int>,
    key_tiles: usize,
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
        }
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

//! Launches of training: derivatives of what generation runs too, scores of tokens, and steps of `AdamW`.

use burn::tensor::{DType, Int, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::kernels::{loss, moments, pointwise, rotation};
use super::launch::{
    Extra, UNITS, argument, cubes, element, elementwise, empty, numbers, stored, tensor, units,
    writable, writable_numbers,
};
use super::maps::Sum;

/// Most cubes that sums over rows are spread over: each leaves a row of them.
const MOST_CUBES: usize = 512;

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

/// Sums over rows that several kernels of a layer leave for one launch to add up: a row of numbers for some rows of a pass each.
pub(super) struct Partial {
    /// `[cubes, width]` in f32.
    sums: CubeTensor,
    rows: usize,
    /// Rows of a cube.
    each: usize,
    width: usize,
}

impl Partial {
    /// Memory for partial sums of `width` columns over `rows` rows, on the device of `like`.
    fn new(like: &CubeTensor, rows: usize, width: usize) -> Self {
        let each = rows.div_ceil(MOST_CUBES).max(1);
        Self {
            sums: empty(like, [rows.div_ceil(each), width], DType::F32),
            rows,
            each,
            width,
        }
    }

    /// The same for the pass that `like` is of, `[n, _]`.
    pub(super) fn of(like: &Tensor<2>, width: usize) -> Self {
        Self::new(&stored(like.clone()), like.dims()[0], width)
    }

    fn cubes(&self) -> usize {
        self.rows.div_ceil(self.each)
    }

    /// The sums, `[width]`.
    pub(super) fn total(self) -> Tensor<1> {
        let width = self.width;
        tensor::<2>(self.sums).sum_dim(0).reshape([width])
    }
}

/// Derivatives of [`super::rms_norm`] by `x`, `[n, width]`, and, where it learns, by gamma.
pub(crate) fn rms_norm_backward(
    x: Tensor<2>,
    gamma: Tensor<1>,
    epsilon: f64,
    grad: Tensor<2>,
    learns: bool,
) -> (Tensor<2>, Option<Tensor<1>>) {
    let partial = Partial::of(&x, x.dims()[1]);
    let (by_x, _) = norm_back(x, gamma, epsilon, grad.into(), None, &partial, 0);
    (by_x, learns.then(|| partial.total()))
}

/// The same where `x` is the residual stream, whose derivative from elsewhere is `upper`: their sum, and the norm itself. The sums
/// by gamma go to `partial` from `offset` on.
pub(super) fn residual_norm_backward(
    x: Tensor<2>,
    (gamma, epsilon): (Tensor<1>, f64),
    grad: Sum,
    upper: Tensor<2>,
    partial: &Partial,
    offset: usize,
) -> (Tensor<2>, Tensor<2>) {
    norm_back(x, gamma, epsilon, grad, Some(upper), partial, offset)
}

fn norm_back(
    x: Tensor<2>,
    gamma: Tensor<1>,
    epsilon: f64,
    grad: Sum,
    upper: Option<Tensor<2>>,
    partial: &Partial,
    offset: usize,
) -> (Tensor<2>, Tensor<2>) {
    let [rows, width] = x.dims();
    let (x, gamma, (grad, more, adds)) = (stored(x), stored(gamma), grad.stored());
    let across = UNITS.min(width.next_power_of_two());
    let by_x = empty(&x, [rows, width], x.dtype);
    let residual = upper.is_some();
    // What a launch does not use is as small as it can be.
    let none = || empty(&x, [1, 1], x.dtype);
    let normed = if residual {
        empty(&x, [rows, width], x.dtype)
    } else {
        none()
    };
    let upper = upper.map_or_else(none, stored);
    pointwise::rms_norm_backward::launch(
        &x.client,
        cubes(partial.cubes(), 1, 1),
        units(across),
        argument(&x),
        argument(&gamma),
        argument(&grad),
        argument(&more),
        argument(&upper),
        argument(&by_x),
        argument(&normed),
        argument(&partial.sums),
        rows as u32,
        width as u32,
        partial.each as u32,
        partial.width as u32,
        offset as u32,
        epsilon as f32,
        across,
        width.div_ceil(across),
        residual,
        adds,
        element(&x),
    );
    (tensor(by_x), tensor(normed))
}

/// Computes, from the derivative by `silu(gate) * up`, `[n, width]`, that by `[gate, up]`, `[n, 2 width]`, and the value.
pub(super) fn swiglu_joined_backward(both: Tensor<2>, grad: Sum) -> (Tensor<2>, Tensor<2>) {
    let [rows, both_widths] = both.dims();
    let width = both_widths / 2;
    let (both, (grad, more, adds)) = (stored(both), grad.stored());
    let by_both = empty(&both, [rows, 2 * width], both.dtype);
    let out = empty(&both, [rows, width], both.dtype);
    pointwise::swiglu_joined_backward::launch(
        &both.client,
        elementwise(rows * width),
        units(UNITS),
        argument(&both),
        argument(&grad),
        argument(&more),
        argument(&by_both),
        argument(&out),
        width as u32,
        (rows * width) as u32,
        adds,
        element(&both),
    );
    (tensor(by_both), tensor(out))
}

/// Back through [`super::launch::rotate_and_store`]: from derivatives by rotated queries, keys and values, `[n, heads, head_dim]`,
/// that by the product, `[n, (heads + 2 kv_heads) * head_dim]`; `both` is the product where heads are normalised. The sums by what
/// was added go to `partial` from `offset` on: biases, and with a norm those by its gain of every head.
pub(super) fn rotate_backward(
    [by_queries, by_keys, by_values]: [Tensor<3>; 3],
    both: Option<Tensor<2>>,
    extra: &Extra<'_>,
    angles: &Tensor<2>,
    places: &Tensor<1, Int>,
    (partial, offset): (&Partial, usize),
) -> Tensor<2> {
    let ([rows, heads, dim], [_, kv_heads, _]) = (by_queries.dims(), by_keys.dims());
    let all = heads + 2 * kv_heads;
    let [by_queries, by_keys, by_values] = [by_queries, by_keys, by_values].map(stored);
    let by_both = empty(&by_queries, [rows, all * dim], by_queries.dtype);
    let none = || empty(&by_queries, [1, 1], by_queries.dtype);
    let both = both.map_or_else(none, stored);
    rotation::rotate_backward::launch(
        &by_queries.client,
        cubes(partial.cubes(), all, 1),
        units(dim / 2),
        argument(&by_queries),
        argument(&by_keys),
        argument(&by_values),
        argument(&both),
        argument(&stored(extra.numbers.clone())),
        argument(&stored(angles.clone())),
        argument(&numbers(places.clone())),
        argument(&by_both),
        argument(&partial.sums),
        heads as u32,
        kv_heads as u32,
        rows as u32,
        partial.each as u32,
        partial.width as u32,
        offset as u32,
        extra.epsilon as f32,
        dim,
        extra.normed,
        element(&by_queries),
    );
    tensor(by_both)
}

/// `x`, `[n, heads, head_dim]`, rotated by the angles of its rows, `[n, 1, head_dim / 2]`.
pub(crate) fn rotate(x: Tensor<3>, cos: &Tensor<3>, sin: &Tensor<3>) -> Tensor<3> {
    let [rows, heads, dim] = x.dims();
    let (x, cos, sin) = (stored(x), stored(cos.clone()), stored(sin.clone()));
    let out = empty(&x, [rows, heads, dim], x.dtype);
    let count = rows * heads * dim / 2;
    rotation::rotate::launch(
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

/// Log-probabilities of `ids` and entropies, `[n, 2]` in nats, from logits, `[n, vocabulary]` in f32, at an inverse temperature.
pub(crate) fn token_scores(logits: Tensor<2>, ids: Tensor<1, Int>, inverse: f32) -> Tensor<2> {
    let [rows, vocabulary] = logits.dims();
    let logits = stored(logits);
    let scores = empty(&logits, [rows, 2], DType::F32);
    loss::token_scores::launch(
        &logits.client,
        cubes(rows, 1, 1),
        units(UNITS),
        argument(&logits),
        argument(&numbers(ids)),
        argument(&scores),
        vocabulary as u32,
        inverse,
        UNITS,
    );
    tensor(scores)
}

/// Derivatives by the logits, in their place where nothing else holds them; `grads` are those by what [`token_scores`] gives.
pub(crate) fn logit_grads(
    logits: Tensor<2>,
    ids: Tensor<1, Int>,
    grads: Tensor<2>,
    inverse: f32,
) -> Tensor<2> {
    let [rows, vocabulary] = logits.dims();
    let logits = writable(logits);
    loss::logit_grads::launch(
        &logits.client,
        cubes(rows, 1, 1),
        units(UNITS),
        argument(&logits),
        argument(&numbers(ids)),
        argument(&stored(grads)),
        vocabulary as u32,
        inverse,
        UNITS,
    );
    tensor(logits)
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
    moments::adamw::launch(
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

/// Numbers of a moment of 8 bits that share a scale.
pub(crate) const MOMENT_BLOCK: usize = moments::BLOCK;

/// A moment of 8 bits.
#[derive(Clone, Debug)]
pub(crate) struct Codes {
    /// Four codes per word, the first lowest: not every shader has integers of 8 bits.
    pub(crate) words: Tensor<1, Int>,
    /// A scale per [`MOMENT_BLOCK`] codes.
    pub(crate) scales: Tensor<1>,
}

/// As [`adamw`], with the first moment and the root of the second in 8 bits; `tables` are what codes stand for
/// (`optim::eight_bit::tables`).
pub(crate) fn adamw_of_8_bits<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<1>,
    [first, root]: [Codes; 2],
    tables: &Tensor<1>,
    factors: [f32; 9],
) -> (Tensor<D>, [Codes; 2]) {
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
    let parameter = writable(parameter);
    let [firsts, roots] = [first.words, root.words].map(writable_numbers);
    let [first_scales, root_scales] = [first.scales, root.scales].map(writable);
    let count = parameter.meta.num_elements();
    let across = moments::BLOCK / moments::WORD;
    moments::adamw_of_8_bits::launch(
        &gradient.client,
        // A cube per block.
        elementwise(count.div_ceil(moments::BLOCK) * UNITS),
        units(across),
        argument(&gradient),
        argument(&stored(tables.clone())),
        argument(&parameter),
        argument(&firsts),
        argument(&first_scales),
        argument(&roots),
        argument(&root_scales),
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
        across,
    );
    let codes = |words: CubeTensor, scales: CubeTensor| Codes {
        words: Tensor::<1, Int>::from_primitive::<CubeBackend>(words),
        scales: tensor(scales),
    };
    let codes = [codes(firsts, first_scales), codes(roots, root_scales)];
    (tensor(parameter), codes)
}

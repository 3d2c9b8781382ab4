//! The launches: tensors of Burn in, tensors out, one launch per function.

use burn::tensor::{DType, Int, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::prelude::*;

use super::kernels::{attention, pointwise, rotation, sum};
use super::maps::Sum;

pub(super) const ON_A_DEVICE: &str = "the caller checked that the tensor is on a device of CubeCL";
/// Units (threads) of a cube that works on a row.
pub(super) const UNITS: usize = 256;

pub(super) fn stored<const D: usize>(x: Tensor<D>) -> CubeTensor {
    into_contiguous(x.try_into_primitive::<CubeBackend>().expect(ON_A_DEVICE))
}

/// The memory of a tensor that is written in place: its own where nothing else holds it, else that of a copy.
pub(super) fn writable<const D: usize>(x: Tensor<D>) -> CubeTensor {
    let x = stored(x);
    if x.can_mut() { x } else { x.copy() }
}

/// The memory of a tensor that is written in place though others hold it too.
///
/// # Panics
/// Where its rows do not stand side by side: a copy would be written, and the tensor stay as it was.
fn shared(x: &Tensor<2>) -> CubeTensor {
    let x = x.clone().try_into_primitive::<CubeBackend>();
    let x = x.expect(ON_A_DEVICE);
    assert!(x.is_contiguous(), "what is written in place is contiguous");
    x
}

pub(super) fn numbers<const D: usize>(x: Tensor<D, Int>) -> CubeTensor {
    into_contiguous(x.try_into_primitive::<CubeBackend>().expect(ON_A_DEVICE))
}

/// As [`writable`], for whole numbers.
pub(super) fn writable_numbers<const D: usize>(x: Tensor<D, Int>) -> CubeTensor {
    let x = numbers(x);
    if x.can_mut() { x } else { x.copy() }
}

pub(super) fn tensor<const D: usize>(x: CubeTensor) -> Tensor<D> {
    Tensor::from_primitive::<CubeBackend>(x)
}

/// Uninitialised memory on the device of `like`, for a launch to fill.
pub(super) fn empty<const D: usize>(
    like: &CubeTensor,
    shape: [usize; D],
    dtype: DType,
) -> CubeTensor {
    empty_device_contiguous_dtype(
        like.client.clone(),
        like.device.clone(),
        shape.into(),
        dtype,
    )
}

pub(super) fn element(x: &CubeTensor) -> ElemType {
    ElemType::Float(match x.dtype {
        DType::BF16 => FloatKind::BF16,
        DType::F16 => FloatKind::F16,
        _ => FloatKind::F32,
    })
}

pub(super) fn argument(x: &CubeTensor) -> BufferArg {
    x.clone().into_buffer_arg()
}

pub(super) fn cubes(x: usize, y: usize, z: usize) -> CubeCount {
    CubeCount::Static(x as u32, y as u32, z as u32)
}

/// Cubes of [`UNITS`] units for `numbers` numbers. A grid has at most 65,535 cubes per dimension.
pub(super) fn elementwise(numbers: usize) -> CubeCount {
    let count = numbers.div_ceil(UNITS);
    let across = count.min(1 << 15);
    cubes(across, count.div_ceil(across), 1)
}

pub(super) fn units(count: usize) -> CubeDim {
    CubeDim::new_1d(count as u32)
}

/// The same matrix, `[inputs, outputs]`, stored by output, so that no product has to copy it.
pub(crate) fn by_output(matrix: Tensor<2>) -> Tensor<2> {
    tensor::<2>(stored(matrix.swap_dims(0, 1))).swap_dims(0, 1)
}

/// `x / sqrt(mean(x^2) + epsilon) * gamma` of rows, `[n, width]`.
pub(crate) fn rms_norm(x: Tensor<2>, gamma: Tensor<1>, epsilon: f64) -> Tensor<2> {
    let [rows, width] = x.dims();
    let (x, gamma) = (stored(x), stored(gamma));
    let out = empty(&x, [rows, width], x.dtype);
    pointwise::rms_norm::launch(
        &x.client,
        cubes(rows, 1, 1),
        units(UNITS),
        argument(&x),
        argument(&gamma),
        argument(&out),
        width as u32,
        epsilon as f32,
        UNITS,
        element(&x),
    );
    tensor(out)
}

/// Sums of squares of fixed stretches of `x`, each added up in one order.
pub(crate) fn sums_of_squares(x: Tensor<1>) -> Tensor<1> {
    let [count] = x.dims();
    let x = stored(x);
    let stretches = count.div_ceil(sum::SQUARES);
    let sums = empty(&x, [stretches], DType::F32);
    sum::sums_of_squares::launch(
        &x.client,
        cubes(stretches, 1, 1),
        units(UNITS),
        argument(&x),
        argument(&sums),
        count as u32,
        UNITS,
        element(&x),
    );
    tensor(sums)
}

/// `x + y`, `[n, width]`.
pub(super) fn add(x: Tensor<2>, y: Sum) -> Tensor<2> {
    let shape = x.dims();
    let (x, (y, more, adds)) = (stored(x), y.stored());
    let out = empty(&x, shape, x.dtype);
    let count: usize = shape.iter().product();
    pointwise::add_more::launch(
        &x.client,
        elementwise(count),
        units(UNITS),
        argument(&x),
        argument(&y),
        argument(&more),
        argument(&out),
        count as u32,
        adds,
        element(&x),
    );
    tensor(out)
}

/// `x + y` and its norm, both `[n, width]`.
pub(super) fn add_rms_norm(
    x: Tensor<2>,
    y: Sum,
    gamma: Tensor<1>,
    epsilon: f64,
) -> (Tensor<2>, Tensor<2>) {
    let [rows, width] = x.dims();
    let (x, gamma, (y, more, adds)) = (stored(x), stored(gamma), y.stored());
    let sum = empty(&x, [rows, width], x.dtype);
    let out = empty(&x, [rows, width], x.dtype);
    pointwise::add_rms_norm::launch(
        &x.client,
        cubes(rows, 1, 1),
        units(UNITS),
        argument(&x),
        argument(&y),
        argument(&more),
        argument(&gamma),
        argument(&sum),
        argument(&out),
        width as u32,
        epsilon as f32,
        UNITS,
        adds,
        element(&x),
    );
    (tensor(sum), tensor(out))
}

/// `x + norm(y)`, `[n, width]`.
pub(crate) fn rms_norm_add(
    x: Tensor<2>,
    y: Tensor<2>,
    gamma: Tensor<1>,
    epsilon: f64,
) -> Tensor<2> {
    let [rows, width] = x.dims();
    let (x, y, gamma) = (stored(x), stored(y), stored(gamma));
    let out = empty(&x, [rows, width], x.dtype);
    pointwise::rms_norm_add::launch(
        &x.client,
        cubes(rows, 1, 1),
        units(UNITS),
        argument(&x),
        argument(&y),
        argument(&gamma),
        argument(&out),
        width as u32,
        epsilon as f32,
        UNITS,
        element(&x),
    );
    tensor(out)
}

/// `silu(gate) * up`, all `[n, width]`.
pub(crate) fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    let shape = gate.dims();
    swiglu_of(&stored(gate), &stored(up), shape, (shape[1], 0))
}

/// `silu(gate) * up`, `[n, width]`, of `[gate, up]`, `[n, 2 width]`.
pub(super) fn swiglu_joined(both: Tensor<2>) -> Tensor<2> {
    let [rows, both_widths] = both.dims();
    let (both, width) = (stored(both), both_widths / 2);
    swiglu_of(&both, &both, [rows, width], (both_widths, width))
}

fn swiglu_of(
    gate: &CubeTensor,
    up: &CubeTensor,
    [rows, width]: [usize; 2],
    (stride, offset): (usize, usize),
) -> Tensor<2> {
    let out = empty(gate, [rows, width], gate.dtype);
    pointwise::swiglu::launch(
        &gate.client,
        elementwise(rows * width),
        units(UNITS),
        argument(gate),
        argument(up),
        argument(&out),
        width as u32,
        stride as u32,
        offset as u32,
        (rows * width) as u32,
        element(gate),
    );
    tensor(out)
}

/// What [`rotate_and_store`] adds to a product.
pub(super) struct Extra<'a> {
    /// Biases of all heads, norm of queries, norm of keys.
    pub(super) numbers: &'a Tensor<1>,
    /// Whether heads are normalised.
    pub(super) normed: bool,
    pub(super) epsilon: f64,
}

/// The keys and values of a layer, `[positions, kv_heads * head_dim]`; written in place.
pub(super) struct Stored<'a> {
    pub(super) keys: &'a Tensor<2>,
    pub(super) values: &'a Tensor<2>,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
}

/// Queries of a pass, `[n, heads * head_dim]`, from the product `both`, `[n, (heads + 2 kv_heads) * head_dim]`; its keys and
/// values go into the cache. `angles` is `[positions, head_dim]`, `places` the `n` positions and the `n` slots.
pub(super) fn rotate_and_store(
    both: Tensor<2>,
    extra: &Extra<'_>,
    angles: &Tensor<2>,
    places: &Tensor<1, Int>,
    cache: &Stored<'_>,
) -> Tensor<2> {
    let ([rows, width], dim) = (both.dims(), cache.head_dim);
    let heads = width / dim - 2 * cache.kv_heads;
    let both = stored(both);
    let queries = empty(&both, [rows, heads * dim], both.dtype);
    rotation::rotate_and_store::launch(
        &both.client,
        cubes(rows, heads + 2 * cache.kv_heads, 1),
        units(dim / 2),
        argument(&both),
        argument(&stored(extra.numbers.clone())),
        argument(&stored(angles.clone())),
        argument(&numbers(places.clone())),
        argument(&queries),
        argument(&shared(cache.keys)),
        argument(&shared(cache.values)),
        heads as u32,
        cache.kv_heads as u32,
        extra.epsilon as f32,
        dim,
        extra.normed,
        element(&both),
    );
    tensor(queries)
}

/// As [`rotate_and_store`], where nothing is cached: queries, keys and values, `[n, heads, head_dim]`; `places` ends with the rows' own
/// numbers.
pub(super) fn rotate_to_rows(
    both: Tensor<2>,
    extra: &Extra<'_>,
    angles: &Tensor<2>,
    places: &Tensor<1, Int>,
    [heads, kv_heads, dim]: [usize; 3],
) -> [Tensor<3>; 3] {
    let rows = both.dims()[0];
    let both = stored(both);
    let fresh = || tensor::<2>(empty(&both, [rows, kv_heads * dim], both.dtype));
    let (keys, values) = (fresh(), fresh());
    let cache = Stored {
        keys: &keys,
        values: &values,
        kv_heads,
        head_dim: dim,
    };
    let queries = rotate_and_store(tensor(both.clone()), extra, angles, places, &cache);
    [(queries, heads), (keys, kv_heads), (values, kv_heads)]
        .map(|(x, heads)| x.reshape([rows, heads, dim]))
}

/// Tiles of queries that attend together.
pub(super) struct Tiles {
    /// Four numbers each; see [`attention::attend`].
    pub(super) places: Vec<[usize; 4]>,
    /// The numbers on the device.
    pub(super) items: Tensor<1, Int>,
    /// Rows of a tile at most.
    pub(super) tile: usize,
    /// Positions of a span and number of spans, which is 1 for tiles that are not the first rows of a pass, one by one.
    pub(super) span: usize,
    pub(super) spans: usize,
}

/// The blocks of every sequence.
pub(super) struct Tables {
    pub(super) blocks: Tensor<1, Int>,
    pub(super) width: usize,
}

/// Attention of `queries`, `[n, heads * head_dim]`, tile by tile: the mixed values, of the same shape.
pub(super) fn attend(
    queries: Tensor<2>,
    cache: &Stored<'_>,
    tables: &Tables,
    tiles: &[Tiles],
) -> Tensor<2> {
    let ([rows, width], dim) = (queries.dims(), cache.head_dim);
    let heads = width / dim;
    let group = heads / cache.kv_heads;
    let queries = stored(queries);
    let (keys, values) = (stored(cache.keys.clone()), stored(cache.values.clone()));
    let blocks = numbers(tables.blocks.clone());
    let out = empty(&queries, [rows, width], queries.dtype);
    for part in tiles {
        let whole = part.spans == 1;
        // What a launch does not use is as small as it can be.
        let partial = if whole { 0 } else { rows * heads * part.spans };
        let mixed = empty(&queries, [(partial * dim).max(1)], DType::F32);
        let stats = empty(&queries, [(partial * 2).max(1)], DType::F32);
        let items = numbers(part.items.clone());
        attention::attend::launch(
            &queries.client,
            cubes(part.places.len(), cache.kv_heads, part.spans),
            units(dim),
            argument(&queries),
            argument(&keys),
            argument(&values),
            argument(&items),
            argument(&blocks),
            argument(&out),
            argument(&mixed),
            argument(&stats),
            tables.width as u32,
            cache.kv_heads as u32,
            part.span as u32,
            1.0 / (dim as f32).sqrt(),
            dim,
            group,
            part.tile,
            whole,
            true,
            element(&queries),
        );
        if !whole {
            attention::merge_spans::launch(
                &queries.client,
                cubes(part.places.len(), heads, 1),
                units(dim),
                argument(&mixed),
                argument(&stats),
                argument(&items),
                argument(&out),
                heads as u32,
                part.spans as u32,
                part.span as u32,
                dim,
                element(&queries),
            );
        }
    }
    tensor(out)
}

//! Generation on a device: a pass of about ten launches per layer, with our own kernels and products by `CubeK`.

mod eight_bit;
mod kernels;
mod launch;
mod layer;
mod maps;
mod packed;
mod product;
mod sampling;
mod training;

use burn::tensor::{DType, Device, Int, Tensor};

use super::cache::Traffic;
use super::host::BLOCK;
use super::layer::Layer;
use super::linear::Linear;
use super::quantised::BLOCK_INPUTS;
use super::{Chunk, Decoder, Kernels, ModelConfig, Pass, RopeTables};
pub(super) use eight_bit::{product_of_8_bits, widened};
pub(crate) use launch::sums_of_squares;
use launch::{Extra, Stored, Tables, Tiles, add_rms_norm, rms_norm_add, swiglu_joined};
pub(super) use launch::{by_output, rms_norm, swiglu};
pub(crate) use layer::KeptJoined;
pub(super) use layer::{JoinedLayer, separate};
use maps::{Changes, Map};
pub(super) use packed::Packed;
pub(crate) use product::{all_product_kernels, product_by, product_kernels};
pub(super) use product::{product, product_in_f32};
pub(crate) use sampling::{Choice, Cuts, Wanted, choose};
pub(crate) use training::{Codes, MOMENT_BLOCK, adamw, adamw_of_8_bits, logit_grads, token_scores};
pub(super) use training::{rms_norm_backward, rotate, swiglu_backward};

const _: () = assert!(BLOCK == kernels::attention::BLOCK && BLOCK_INPUTS == kernels::bytes::SCALED);

/// Positions that one cube attends to in a decode step: long sequences are spread over the device.
const SPAN: usize = 256;
/// Query heads of a tile of several tokens; each unit keeps a sum for each of them.
const TILE_HEADS: usize = 32;

/// The frozen matrices of a layer that are joined, of which the layer's own are views.
#[derive(Clone, Debug)]
pub(super) struct Base {
    /// Queries, keys and values, `[hidden, (heads + 2 kv_heads) * head_dim]`.
    pub(super) qkv: Linear,
    /// `[hidden, 2 intermediate]`.
    pub(super) gate_up: Linear,
}

/// The matrices of a layer that are multiplied together because they have the same input, and what is added to products.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    /// The map of [`Base`]; `None` where queries, keys and values are normalised over their whole width, or adapted or of 8 bits without
    /// a joined base.
    pub(super) qkv: Option<Linear>,
    /// The map of [`Base`]; `None` in the same cases.
    pub(super) gate_up: Option<Linear>,
    /// Low-rank changes beside a joined base.
    changes: AllChanges,
    /// See [`Extra::numbers`].
    extra: Tensor<1>,
    normed: bool,
}

/// The low-rank changes of the maps of a layer.
#[derive(Clone, Debug, Default)]
struct AllChanges {
    qkv: Option<Changes>,
    output: Option<Changes>,
    gate_up: Option<Changes>,
    down: Option<Changes>,
}

impl AllChanges {
    fn of(layer: &Layer) -> Self {
        let (attention, mlp) = (&layer.self_attn, &layer.mlp);
        Self {
            qkv: Changes::of(&[&attention.q_proj, &attention.k_proj, &attention.v_proj]),
            output: Changes::of(&[&attention.o_proj]),
            gate_up: Changes::of(&[&mlp.gate_proj, &mlp.up_proj]),
            down: Changes::of(&[&mlp.down_proj]),
        }
    }
}

/// Names of joined maps in a layer.
const QKV: &str = "self_attn.qkv";
const GATE_UP: &str = "mlp.gate_up";

impl Joined {
    /// The joined matrices of `layer`.
    pub(super) fn of(layer: &Layer) -> Self {
        let attention = &layer.self_attn;
        let projections = [&attention.q_proj, &attention.k_proj, &attention.v_proj];
        let norms = [&attention.q_norm, &attention.k_norm];
        let norms: Vec<Tensor<1>> = norms
            .into_iter()
            .flatten()
            .map(|norm| norm.gamma.val())
            .collect();
        let whole = |gamma: &Tensor<1>| gamma.dims() == [attention.o_proj.shape()[0]];
        let whole_norm = norms.first().is_some_and(whole);
        let normed = !norms.is_empty() && !whole_norm;
        let base = layer.base();
        let joined = |parts: &[&Linear]| {
            let plain = parts.iter().all(|part| part.is_plain());
            plain.then(|| Linear::joined(parts))
        };
        let qkv = match base {
            Some(base) => Some(base.qkv.clone()),
            None if whole_norm => None,
            None => joined(&projections),
        };
        let gate_up = match base {
            Some(base) => Some(base.gate_up.clone()),
            None => joined(&[&layer.mlp.gate_proj, &layer.mlp.up_proj]),
        };
        let gamma = layer.gain();
        let zeros = |width| Tensor::<1>::zeros([width], &gamma.device()).cast(gamma.dtype());
        let bias = |part: &Linear| match &part.bias {
            // Parts that are multiplied alone add theirs themselves.
            Some(bias) if qkv.is_some() => bias.val().cast(gamma.dtype()),
            _ => zeros(part.shape()[1]),
        };
        let mut extra: Vec<Tensor<1>> = projections.into_iter().map(bias).collect();
        if normed {
            extra.extend(norms);
        }
        Self {
            changes: base.map_or_else(AllChanges::default, |_| AllChanges::of(layer)),
            gate_up,
            extra: Tensor::cat(extra, 0),
            normed,
            qkv,
        }
    }

    /// Queries, keys and values as one map.
    fn qkv(&self) -> Option<Map<'_>> {
        Some(Map {
            name: QKV,
            base: self.qkv.as_ref()?,
            changes: self.changes.qkv.as_ref(),
        })
    }

    /// Gate and up as one map.
    fn gate_up(&self) -> Option<Map<'_>> {
        Some(Map {
            name: GATE_UP,
            base: self.gate_up.as_ref()?,
            changes: self.changes.gate_up.as_ref(),
        })
    }

    /// The product with queries, keys and values of `x`, `[n, hidden]`.
    fn project(&self, layer: &Layer, x: Tensor<2>) -> Tensor<2> {
        if let Some(qkv) = self.qkv() {
            return qkv.forward(x).0.total();
        }
        let attention = &layer.self_attn;
        let [queries, keys, values] = [&attention.q_proj, &attention.k_proj, &attention.v_proj]
            .map(|part| part.forward(Kernels::Cube, x.clone()));
        let whole = |norm: &Option<burn::nn::RmsNorm>, x: Tensor<2>| match norm {
            Some(norm) if !self.normed => rms_norm(x, norm.gamma.val(), norm.epsilon),
            _ => x,
        };
        let queries = whole(&attention.q_norm, queries);
        let keys = whole(&attention.k_norm, keys);
        Tensor::cat(vec![queries, keys, values], 1)
    }

    /// The activation of the feed-forward part on `x`, `[n, hidden]`.
    fn activate(&self, layer: &Layer, x: Tensor<2>) -> Tensor<2> {
        if let Some(gate_up) = self.gate_up() {
            return swiglu_joined(gate_up.forward(x).0.total());
        }
        let [gate, up] = [&layer.mlp.gate_proj, &layer.mlp.up_proj]
            .map(|part| part.forward(Kernels::Cube, x.clone()));
        swiglu(gate, up)
    }
}

/// Keys and values as `[positions, kv_heads * head_dim]` per layer. The block after the last takes what padding writes.
#[derive(Debug)]
pub(super) struct CubeCache {
    layers: Vec<(Tensor<2>, Tensor<2>)>,
    blocks: usize,
    pub(super) traffic: Traffic,
}

impl CubeCache {
    pub(super) fn new(config: &ModelConfig, blocks: usize, dtype: DType, device: &Device) -> Self {
        let width = config.num_key_value_heads * config.head_dim;
        let positions = (blocks + 1) * BLOCK;
        // A device may pad the rows of a matrix that it makes; kernels write into rows that stand side by side.
        let empty =
            || Tensor::<1>::zeros([positions * width], (device, dtype)).reshape([positions, width]);
        let layers = (0..config.num_hidden_layers)
            .map(|_| (empty(), empty()))
            .collect();
        Self {
            layers,
            blocks,
            traffic: Traffic::default(),
        }
    }
}

impl Traffic {
    /// Counts a pass: what [`kernels::attention::attend`] and [`kernels::attention::merge_spans`] read and write.
    fn add(&mut self, pass: &Pass<'_>, tiles: &[Tiles], config: &ModelConfig, element: usize) {
        let layers = config.num_hidden_layers;
        let row = config.num_attention_heads * config.head_dim * element;
        let position = 2 * config.num_key_value_heads * config.head_dim * element;
        let partial = config.num_attention_heads * (config.head_dim + 2) * size_of::<f32>();
        for part in tiles {
            for &[_, count, _, start] in &part.places {
                let own = (start + count).div_ceil(part.span);
                // Every span reads the queries, and one writes what they get.
                let mut moved = (start + count) * position + (part.spans + 1) * count * row;
                if part.spans > 1 {
                    moved += 2 * own * count * partial;
                }
                self.moved += (layers * moved) as u64;
            }
        }
        let live = pass
            .chunks
            .iter()
            .map(|chunk| chunk.start + chunk.ids.len());
        self.live += (layers * live.sum::<usize>() * position) as u64;
    }
}

/// Positions of the tokens of a pass, on the device.
struct Places {
    /// The position of every row, then its slot in the cache.
    numbers: Tensor<1, Int>,
    tables: Tables,
    tiles: Vec<Tiles>,
}

impl Places {
    /// Single tokens stand first in a pass; the rows behind the last token are padding, which the trash block is for.
    fn of(pass: &Pass<'_>, config: &ModelConfig, trash: usize, device: &Device) -> Self {
        let ints = |numbers: &[i32]| Tensor::<1, Int>::from_ints(numbers, device);
        let slot = |(chunk, position): (&Chunk<'_>, usize)| {
            (chunk.blocks[position / BLOCK] as usize * BLOCK + position % BLOCK) as i32
        };
        let mut places: Vec<i32> = pass.places().map(|(_, position)| position as i32).collect();
        places.resize(pass.rows, 0);
        places.extend(pass.places().map(slot));
        places.resize(2 * pass.rows, (trash * BLOCK) as i32);

        let end = |chunk: &Chunk<'_>| chunk.start + chunk.ids.len();
        let longest = pass.chunks.iter().map(end).max().unwrap_or(1);
        let width = longest.div_ceil(BLOCK);
        let mut blocks = vec![trash as i32; (pass.chunks.len() + 1) * width];
        for (row, chunk) in blocks.chunks_exact_mut(width).zip(&pass.chunks) {
            for (entry, &block) in row.iter_mut().zip(chunk.blocks) {
                *entry = block as i32;
            }
        }

        let single = |chunk: &&Chunk<'_>| chunk.ids.len() == 1;
        let singles = pass.chunks.iter().take_while(single).count();
        let group = config.num_attention_heads / config.num_key_value_heads;
        let tile = (TILE_HEADS / group).max(1);
        let (mut one, mut many): (Vec<[usize; 4]>, Vec<[usize; 4]>) = (Vec::new(), Vec::new());
        let mut row = 0;
        for (table, chunk) in pass.chunks.iter().enumerate() {
            let count = chunk.ids.len();
            if table < singles {
                one.push([row, 1, table, chunk.start]);
            } else {
                let starts = (0..count).step_by(tile);
                many.extend(starts.map(|offset| {
                    let rows = tile.min(count - offset);
                    [row + offset, rows, table, chunk.start + offset]
                }));
            }
            row += count;
        }
        let padding = (row..pass.rows).map(|row| [row, 1, pass.chunks.len(), 0]);
        let last = if many.is_empty() { &mut one } else { &mut many };
        last.extend(padding);

        let tiles = |places: Vec<[usize; 4]>, tile: usize, span: usize| Tiles {
            items: {
                let numbers = places.iter().flatten().map(|&number| number as i32);
                ints(&numbers.collect::<Vec<_>>())
            },
            places,
            tile,
            span,
            spans: longest.div_ceil(span),
        };
        let mut parts = Vec::new();
        if !one.is_empty() {
            parts.push(tiles(one, 1, SPAN));
        }
        if !many.is_empty() {
            parts.push(tiles(many, tile, width * BLOCK));
        }
        Self {
            numbers: ints(&places),
            tables: Tables {
                blocks: ints(&blocks),
                width,
            },
            tiles: parts,
        }
    }
}

/// Final hidden states of the rows of a pass, padding included, `[n, hidden]`.
pub(super) fn hidden(
    decoder: &Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    pass: &Pass<'_>,
    cache: &mut CubeCache,
) -> Tensor<2> {
    let mut stream = decoder.embed(&pass.ids());
    let places = Places::of(pass, config, cache.blocks, &stream.device());
    let element = stream.dtype().size();
    cache.traffic.add(pass, &places.tiles, config, element);
    let epsilon = config.rms_norm_eps;
    let input_norm = |index: usize| {
        if index == decoder.depth() {
            Some(decoder.norm())
        } else {
            decoder.layer(index).attention_input_norm()
        }
    };
    let mut x = match input_norm(0) {
        Some(norm) => rms_norm(stream.clone(), norm.gamma.val(), epsilon),
        None => stream.clone(),
    };
    for index in 0..decoder.depth() {
        let layer = decoder.layer(index);
        let joined = layer.joined();
        let (keys, values) = &cache.layers[index];
        let stored = Stored {
            keys,
            values,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
        };
        let extra = Extra {
            numbers: &joined.extra,
            normed: joined.normed,
            epsilon,
        };
        let both = joined.project(layer, x);
        let queries =
            launch::rotate_and_store(both, &extra, rope.angles(), &places.numbers, &stored);
        let mixed = launch::attend(queries, &stored, &places.tables, &places.tiles);
        let attended = layer.self_attn.o_proj.forward(Kernels::Cube, mixed);
        let [own, next] = layer.norms_between();
        (stream, x) = added(stream, attended, own, next, epsilon);
        let activation = joined.activate(layer, x);
        let lowered = layer.mlp.down_proj.forward(Kernels::Cube, activation);
        (stream, x) = added(
            stream,
            lowered,
            layer.output_norm(),
            input_norm(index + 1),
            epsilon,
        );
    }
    x
}

/// The stream with `y` added to it, normalised by `own` if that is there, and the stream normalised by `next` if that is.
fn added(
    stream: Tensor<2>,
    y: Tensor<2>,
    own: Option<&burn::nn::RmsNorm>,
    next: Option<&burn::nn::RmsNorm>,
    epsilon: f64,
) -> (Tensor<2>, Tensor<2>) {
    let stream = match (own, next) {
        (None, Some(next)) => return add_rms_norm(stream, y.into(), next.gamma.val(), epsilon),
        (Some(own), _) => rms_norm_add(stream, y, own.gamma.val(), epsilon),
        (None, None) => stream + y,
    };
    let x = match next {
        Some(next) => rms_norm(stream.clone(), next.gamma.val(), epsilon),
        None => stream.clone(),
    };
    (stream, x)
}

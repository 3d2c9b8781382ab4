//! A pass over the cache of a device.

use burn::nn::RmsNorm;
use burn::tensor::{DType, Device, Int, Tensor};

use super::kernels;
use super::launch::{
    Extra, Stored, Tables, Tiles, add_rms_norm, attend, rms_norm, rms_norm_add, rotate_and_store,
};
use crate::model::cache::Traffic;
use crate::model::host::BLOCK;
use crate::model::quantised::BLOCK_INPUTS;
use crate::model::{Chunk, Decoder, Kernels, ModelConfig, Pass, RopeTables};

const _: () = assert!(BLOCK == kernels::attention::BLOCK && BLOCK_INPUTS == kernels::bytes::SCALED);

/// Positions that one cube attends to in a decode step: long sequences are spread over the device.
const SPAN: usize = 256;
/// Query heads of a tile of several tokens; each unit keeps a sum for each of them.
const TILE_HEADS: usize = 32;

/// Keys and values as `[positions, kv_heads * head_dim]` per layer. The block after the last takes what padding writes.
#[derive(Debug)]
pub(in crate::model) struct CubeCache {
    layers: Vec<(Tensor<2>, Tensor<2>)>,
    blocks: usize,
    pub(in crate::model) traffic: Traffic,
}

impl CubeCache {
    pub(in crate::model) fn new(
        config: &ModelConfig,
        blocks: usize,
        dtype: DType,
        device: &Device,
    ) -> Self {
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
pub(in crate::model) fn hidden(
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
        let queries = rotate_and_store(both, &extra, rope.angles(), &places.numbers, &stored);
        let mixed = attend(queries, &stored, &places.tables, &places.tiles);
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
    own: Option<&RmsNorm>,
    next: Option<&RmsNorm>,
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

//! The cache in tensors: new positions are written by index and a sequence's blocks are gathered, in a fixed number of
//! operations per layer however many sequences there are.

use burn::tensor::activation::softmax;
use burn::tensor::{DType, Device, IndexingUpdateOp, Int, Tensor, TensorData};

use super::{Attend, Chunk, Heads, ModelConfig, Pass, RopeTables, bucket};
use crate::model::Kernels;
use crate::model::attend::MASKED;
use crate::model::host::BLOCK;

/// Keys and values as `[positions, kv_heads * head_dim]` per layer. The block after the last takes what padding writes.
#[derive(Debug)]
pub(super) struct DeviceCache {
    layers: Vec<(Tensor<2>, Tensor<2>)>,
    blocks: usize,
    kv_heads: usize,
}

impl DeviceCache {
    pub(super) fn new(config: &ModelConfig, blocks: usize, dtype: DType, device: &Device) -> Self {
        let width = config.num_key_value_heads * config.head_dim;
        // Zeros, not garbage: masked positions are multiplied by a zero weight, and zero times NaN is NaN.
        let empty = || Tensor::<2>::zeros([(blocks + 1) * BLOCK, width], device).cast(dtype);
        let layers = (0..config.num_hidden_layers)
            .map(|_| (empty(), empty()))
            .collect();
        Self {
            layers,
            blocks,
            kv_heads: config.num_key_value_heads,
        }
    }
}

/// Some tokens that attend together: one token of each of many sequences, or many of one.
struct Part {
    /// First row of the pass.
    first: usize,
    /// Rows that count.
    count: usize,
    /// Sequences, padded.
    rows: usize,
    /// Tokens per sequence.
    width: usize,
    /// Block numbers `[rows * blocks]`, row-major.
    table: Tensor<1, Int>,
    /// `[rows, 1, width, positions]`: 0 or [`MASKED`].
    mask: Tensor<4>,
}

impl Part {
    /// One new token of each of `chunks`, whose rows begin at `first`.
    fn decode(chunks: &[Chunk<'_>], trash: usize, available: usize, device: &Device) -> Self {
        let rows = bucket(chunks.len()).min(available);
        Self::new(0, chunks, rows, 1, trash, device)
    }

    fn new(
        first: usize,
        chunks: &[Chunk<'_>],
        rows: usize,
        width: usize,
        trash: usize,
        device: &Device,
    ) -> Self {
        let longest = chunks
            .iter()
            .map(|chunk| chunk.start + width)
            .max()
            .unwrap_or(1);
        let blocks = bucket(longest.div_ceil(BLOCK));
        let positions = blocks * BLOCK;
        let mut table = vec![trash as i32; rows * blocks];
        let mut mask = vec![MASKED; rows * width * positions];
        for (row, chunk) in chunks.iter().enumerate() {
            for (entry, &block) in table[row * blocks..]
                .iter_mut()
                .zip(chunk.blocks)
                .take(blocks)
            {
                *entry = block as i32;
            }
            for offset in 0..width {
                mask[(row * width + offset) * positions..][..=chunk.start + offset].fill(0.0);
            }
        }
        Self {
            first,
            count: chunks.len() * width,
            rows,
            width,
            table: Tensor::from_ints(table.as_slice(), device),
            mask: Tensor::from_data(TensorData::new(mask, [rows, 1, width, positions]), device),
        }
    }

    /// Blocks of every row, `[rows, kv_heads, positions, head_dim]`.
    fn gather(&self, stored: &Tensor<2>, kv_heads: usize) -> Tensor<4> {
        let [total, width] = stored.dims();
        let [entries] = self.table.dims();
        let by_block = stored.clone().reshape([total / BLOCK, BLOCK * width]);
        let gathered = by_block.select(0, self.table.clone());
        gathered
            .reshape([
                self.rows,
                entries / self.rows * BLOCK,
                kv_heads,
                width / kv_heads,
            ])
            .swap_dims(1, 2)
    }
}

/// One pass over a [`DeviceCache`].
pub(super) struct DevicePass<'a> {
    kernels: Kernels,
    cache: &'a mut DeviceCache,
    cos: Tensor<3>,
    sin: Tensor<3>,
    /// Where each row's keys and values go, `[n, 1]`.
    slots: Tensor<2, Int>,
    parts: Vec<Part>,
}

impl<'a> DevicePass<'a> {
    pub(super) fn new(cache: &'a mut DeviceCache, rope: &RopeTables, pass: &Pass<'_>) -> Self {
        let device = cache.layers[0].0.device();
        let trash = cache.blocks;
        let mut positions: Vec<i32> = pass.places().map(|(_, position)| position as i32).collect();
        let slot = |(chunk, position): (&Chunk<'_>, usize)| {
            (chunk.blocks[position / BLOCK] as usize * BLOCK + position % BLOCK) as i32
        };
        let mut slots: Vec<i32> = pass.places().map(slot).collect();
        positions.resize(pass.rows, 0);
        slots.resize(pass.rows, (trash * BLOCK) as i32);
        let (cos, sin) = rope.rows(Tensor::from_ints(positions.as_slice(), &device));
        let slots = Tensor::<1, Int>::from_ints(slots.as_slice(), &device).unsqueeze_dim(1);
        let singles = pass
            .chunks
            .iter()
            .take_while(|chunk| chunk.ids.len() == 1)
            .count();
        let mut parts = Vec::new();
        if singles > 0 {
            parts.push(Part::decode(
                &pass.chunks[..singles],
                trash,
                pass.rows,
                &device,
            ));
        }
        let mut first = singles;
        for chunk in &pass.chunks[singles..] {
            parts.push(Part::new(
                first,
                &[*chunk],
                1,
                chunk.ids.len(),
                trash,
                &device,
            ));
            first += chunk.ids.len();
        }
        Self {
            kernels: Kernels::of(&device),
            cache,
            cos,
            sin,
            slots,
            parts,
        }
    }

    /// Writes new keys or values by index; in place, because nothing else holds the tensor.
    fn write(&self, stored: &mut Tensor<2>, new: Tensor<3>) {
        let [n, heads, dim] = new.dims();
        let device = stored.device();
        let taken = std::mem::replace(stored, Tensor::empty([0, 0], &device));
        let dtype = taken.dtype();
        *stored = taken.scatter_nd(
            self.slots.clone(),
            new.reshape([n, heads * dim]).cast(dtype),
            IndexingUpdateOp::Assign,
        );
    }
}

impl Attend for DevicePass<'_> {
    fn attend(&mut self, layer: usize, heads: Heads) -> Tensor<2> {
        let [n, query_heads, dim] = heads.queries.dims();
        let kv_heads = self.cache.kv_heads;
        let group = query_heads / kv_heads;
        let dtype = heads.queries.dtype();
        let angle = |table: &Tensor<3>| table.clone().cast(dtype);
        let (cos, sin) = (angle(&self.cos), angle(&self.sin));
        let queries = self.kernels.rotate(heads.queries, &cos, &sin);
        let empty = Tensor::empty([0, 0], &queries.device());
        let (mut keys, mut values) =
            std::mem::replace(&mut self.cache.layers[layer], (empty.clone(), empty));
        let rotated = self.kernels.rotate(heads.keys, &cos, &sin);
        self.write(&mut keys, rotated);
        self.write(&mut values, heads.values);
        let mut outputs = Vec::with_capacity(self.parts.len() + 1);
        let mut done = 0;
        for part in &self.parts {
            let (rows, width) = (part.rows, part.width);
            let taken = queries.clone().narrow(0, part.first, rows * width);
            let folded = taken
                .reshape([rows, width, kv_heads, group, dim])
                .permute([0, 2, 3, 1, 4]);
            let folded = folded.reshape([rows, kv_heads, group * width, dim]);
            let scores = folded
                .matmul(part.gather(&keys, kv_heads).swap_dims(2, 3))
                .cast(DType::F32);
            let mask = part.mask.clone().repeat_dim(2, group);
            let weights = softmax(scores * (1.0 / (dim as f64).sqrt()) + mask, 3).cast(dtype);
            let mixed = weights
                .matmul(part.gather(&values, kv_heads))
                .reshape([rows, kv_heads, group, width, dim]);
            let joined = mixed
                .permute([0, 3, 1, 2, 4])
                .reshape([rows * width, query_heads * dim]);
            outputs.push(joined.narrow(0, 0, part.count));
            done += part.count;
        }
        if done < n {
            outputs.push(
                Tensor::<2>::zeros([n - done, query_heads * dim], &queries.device()).cast(dtype),
            );
        }
        self.cache.layers[layer] = (keys, values);
        if outputs.len() == 1 {
            outputs.remove(0)
        } else {
            Tensor::cat(outputs, 0)
        }
    }
}

//! The decoder: field names are those of Hugging Face, so that checkpoints map onto them without a table.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig};
use burn::tensor::activation::{silu, softmax};
use burn::tensor::{Device, Int, Tensor, TensorData};

use super::cache::CacheRows;
use super::rope::rotate;
use super::{Architecture, KvCache, ModelConfig, RopeTables};

/// Score of a masked position: finite, so that a fully masked row is uniform rather than NaN.
const MASKED: f32 = -1e9;

/// Token rows to run, padded on the right to a common length.
#[derive(Clone, Debug)]
pub struct Batch {
    ids: Vec<i32>,
    starts: Vec<usize>,
    lengths: Vec<usize>,
    width: usize,
}

impl Batch {
    /// Rows of token ids; `starts[i]` is the position of row i's first token (0 without a cache).
    ///
    /// # Panics
    /// When there are no rows or the slices differ in length.
    pub fn new(rows: &[&[u32]], starts: &[usize]) -> Self {
        assert!(!rows.is_empty() && rows.len() == starts.len(), "one start per row");
        let width = rows.iter().map(|row| row.len()).max().unwrap_or(0).max(1);
        let mut ids = Vec::with_capacity(rows.len() * width);
        for row in rows {
            ids.extend(row.iter().map(|&id| id as i32));
            ids.resize(ids.len() + width - row.len(), 0);
        }
        let lengths = rows.iter().map(|row| row.len()).collect();
        Self { ids, starts: starts.to_vec(), lengths, width }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.starts.len()
    }

    /// Common length of the padded rows.
    pub fn width(&self) -> usize {
        self.width
    }

    fn positions(&self) -> Vec<i32> {
        let row = |&start: &usize| (start..start + self.width).map(|position| position as i32);
        self.starts.iter().flat_map(row).collect()
    }

    /// Largest position any row reads, plus one.
    fn end(&self) -> usize {
        self.starts.iter().zip(&self.lengths).map(|(start, length)| start + length).max().unwrap_or(0)
    }

    /// Additive mask `[rows, 1, group * width, window]`: token t of a row sees columns up to its own position.
    fn mask(&self, group: usize, window: usize, device: &Device) -> Tensor<4> {
        let mut mask = Vec::with_capacity(self.rows() * group * self.width * window);
        for &start in &self.starts {
            for _ in 0..group {
                for t in 0..self.width {
                    let visible = (start + t + 1).min(window);
                    mask.resize(mask.len() + visible, 0.0);
                    mask.resize(mask.len() + window - visible, MASKED);
                }
            }
        }
        Tensor::from_data(TensorData::new(mask, [self.rows(), 1, group * self.width, window]), device)
    }
}

#[derive(Module, Debug)]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    q_norm: Option<RmsNorm>,
    k_norm: Option<RmsNorm>,
}

#[derive(Module, Debug)]
#[expect(clippy::struct_field_names, reason = "checkpoint names")]
struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

#[derive(Module, Debug)]
struct Layer {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

#[derive(Module, Debug)]
struct Backbone {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
}

/// A dense Qwen2 or Qwen3 decoder.
#[derive(Module, Debug)]
pub struct Decoder {
    model: Backbone,
    lm_head: Option<Linear>,
}

/// What one forward pass shares between layers.
struct Pass<'a> {
    config: &'a ModelConfig,
    cos: Tensor<3>,
    sin: Tensor<3>,
    mask: Tensor<4>,
    rows: usize,
    width: usize,
}

impl Decoder {
    /// A decoder of the given shape with Burn's own initial values; see [`super::init_random`] for seeded ones.
    pub fn new(config: &ModelConfig, device: &Device) -> Self {
        let hidden = config.hidden_size;
        let embed_tokens = EmbeddingConfig::new(config.vocab_size, hidden).init(device);
        let layers = (0..config.num_hidden_layers).map(|_| Layer::new(config, device)).collect();
        let norm = norm(hidden, config, device);
        let head = || LinearConfig::new(hidden, config.vocab_size).with_bias(false).init(device);
        let lm_head = (!config.tie_word_embeddings).then(head);
        Self { model: Backbone { embed_tokens, layers, norm }, lm_head }
    }

    /// Final hidden states of whole sequences, each attending to itself causally.
    ///
    /// # Shapes
    /// Returns `[rows * width, hidden]`, row-major; padding rows hold finite values that mean nothing.
    pub fn hidden(&self, config: &ModelConfig, rope: &RopeTables, batch: &Batch) -> Tensor<2> {
        self.run(config, rope, batch, batch.width, &mut |_, keys, values| (keys.swap_dims(2, 3), values))
    }

    /// Final hidden states of new tokens that continue the sequences in `cache`; row i uses slot `slots[i]`.
    ///
    /// # Shapes
    /// As [`Self::hidden`].
    pub fn hidden_cached(
        &self,
        config: &ModelConfig,
        rope: &RopeTables,
        batch: &Batch,
        cache: &mut KvCache,
        slots: &[usize],
    ) -> Tensor<2> {
        // A window in steps of 32 bounds the number of distinct shapes; extra columns are masked.
        let window = batch.end().next_multiple_of(32).min(cache.positions());
        let rows = CacheRows { slots, starts: &batch.starts, lengths: &batch.lengths, window };
        self.run(config, rope, batch, window, &mut |layer, keys, values| cache.update(layer, &keys, &values, &rows))
    }

    fn run(
        &self,
        config: &ModelConfig,
        rope: &RopeTables,
        batch: &Batch,
        window: usize,
        // Takes new keys and values, `[rows, kv_heads, t, head_dim]`; returns what to attend to, the keys transposed.
        attend: &mut dyn FnMut(usize, Tensor<4>, Tensor<4>) -> (Tensor<4>, Tensor<4>),
    ) -> Tensor<2> {
        let weight = self.model.embed_tokens.weight.val();
        let device = weight.device();
        let plain = device.clone().without_autodiff();
        let (rows, width) = (batch.rows(), batch.width);
        let int = |values: &[i32]| Tensor::<1, Int>::from_ints(values, &device);
        let (cos, sin) = rope.rows(Tensor::from_ints(batch.positions().as_slice(), &plain));
        let group = config.num_attention_heads / config.num_key_value_heads;
        let mask = batch.mask(group, window, &plain);
        let same = |tensor: Tensor<3>| if device.is_autodiff() { tensor.autodiff() } else { tensor };
        let mask = if device.is_autodiff() { mask.autodiff() } else { mask };
        let pass = Pass { config, cos: same(cos), sin: same(sin), mask, rows, width };
        let mut x = weight.select(0, int(&batch.ids));
        for (index, layer) in self.model.layers.iter().enumerate() {
            x = layer.forward(x, &pass, &mut |keys, values| attend(index, keys, values));
        }
        self.model.norm.forward(x)
    }

    /// Logits `[n, vocab]` of hidden states `[n, hidden]`.
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        match &self.lm_head {
            Some(head) => head.forward(hidden),
            None => hidden.matmul(self.model.embed_tokens.weight.val().transpose()),
        }
    }

    /// The device the weights are on.
    pub fn device(&self) -> Device {
        self.model.embed_tokens.weight.val().device()
    }
}

impl Layer {
    fn new(config: &ModelConfig, device: &Device) -> Self {
        let hidden = config.hidden_size;
        let linear = |input, output, bias| LinearConfig::new(input, output).with_bias(bias).init(device);
        let (queries, keys) =
            (config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim);
        let bias = config.architecture == Architecture::Qwen2;
        let head_norm = || (config.architecture == Architecture::Qwen3).then(|| norm(config.head_dim, config, device));
        Self {
            input_layernorm: norm(hidden, config, device),
            self_attn: Attention {
                q_proj: linear(hidden, queries, bias),
                k_proj: linear(hidden, keys, bias),
                v_proj: linear(hidden, keys, bias),
                o_proj: linear(queries, hidden, false),
                q_norm: head_norm(),
                k_norm: head_norm(),
            },
            post_attention_layernorm: norm(hidden, config, device),
            mlp: Mlp {
                gate_proj: linear(hidden, config.intermediate_size, false),
                up_proj: linear(hidden, config.intermediate_size, false),
                down_proj: linear(config.intermediate_size, hidden, false),
            },
        }
    }

    fn forward(
        &self,
        x: Tensor<2>,
        pass: &Pass<'_>,
        attend: &mut dyn FnMut(Tensor<4>, Tensor<4>) -> (Tensor<4>, Tensor<4>),
    ) -> Tensor<2> {
        let x = x.clone() + self.self_attn.forward(self.input_layernorm.forward(x), pass, attend);
        x.clone() + self.mlp.forward(self.post_attention_layernorm.forward(x))
    }
}

impl Mlp {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let gate = silu(self.gate_proj.forward(x.clone()));
        self.down_proj.forward(gate * self.up_proj.forward(x))
    }
}

impl Attention {
    /// Grouped-query attention; the heads of a group are folded into query rows, so keys and values are never copied.
    fn forward(
        &self,
        x: Tensor<2>,
        pass: &Pass<'_>,
        attend: &mut dyn FnMut(Tensor<4>, Tensor<4>) -> (Tensor<4>, Tensor<4>),
    ) -> Tensor<2> {
        let Pass { config, rows, width, .. } = *pass;
        let (heads, kv_heads, dim) = (config.num_attention_heads, config.num_key_value_heads, config.head_dim);
        let group = heads / kv_heads;
        let n = rows * width;
        let split = |projected: Tensor<2>, heads: usize, norm: Option<&RmsNorm>| {
            let headed = projected.reshape([n, heads, dim]);
            norm.map_or_else(|| headed.clone(), |norm| norm.forward(headed.clone()))
        };
        let queries = split(self.q_proj.forward(x.clone()), heads, self.q_norm.as_ref());
        let keys = split(self.k_proj.forward(x.clone()), kv_heads, self.k_norm.as_ref());
        let values = self.v_proj.forward(x).reshape([rows, width, kv_heads, dim]).swap_dims(1, 2);
        let queries = rotate(queries, &pass.cos, &pass.sin).reshape([rows, width, heads, dim]).swap_dims(1, 2);
        let keys = rotate(keys, &pass.cos, &pass.sin).reshape([rows, width, kv_heads, dim]).swap_dims(1, 2);
        let (keys, values) = attend(keys, values);
        let folded = queries.reshape([rows, kv_heads, group * width, dim]);
        let scores = folded.matmul(keys) * (1.0 / (dim as f64).sqrt()) + pass.mask.clone();
        let mixed = softmax(scores, 3).matmul(values);
        let joined = mixed.reshape([rows, heads, width, dim]).swap_dims(1, 2).reshape([n, heads * dim]);
        self.o_proj.forward(joined)
    }
}

fn norm(width: usize, config: &ModelConfig, device: &Device) -> RmsNorm {
    RmsNormConfig::new(width).with_epsilon(config.rms_norm_eps).init(device)
}

//! The decoder: field names are those of Hugging Face, so that checkpoints map onto them without a table.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::{Embedding, EmbeddingConfig, RmsNorm, RmsNormConfig};
use burn::tensor::activation::silu;
use burn::tensor::{Device, Int, Tensor};

use super::attend::{Attend, Dense, Heads};
use super::host;
use super::linear::{Linear, matmul};
use super::{Architecture, Batch, KvCache, ModelConfig, Pass, RopeTables};

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

impl Decoder {
    /// A decoder of the given shape with Burn's own initial values; see [`super::init_random`] for seeded ones.
    pub fn new(config: &ModelConfig, device: &Device) -> Self {
        let hidden = config.hidden_size;
        let embed_tokens = EmbeddingConfig::new(config.vocab_size, hidden).init(device);
        let layers = (0..config.num_hidden_layers).map(|_| Layer::new(config, device)).collect();
        let norm = norm(hidden, config, device);
        let head = || Linear::new(hidden, config.vocab_size, false, device);
        let lm_head = (!config.tie_word_embeddings).then(head);
        Self { model: Backbone { embed_tokens, layers, norm }, lm_head }
    }

    /// Final hidden states of whole sequences, each attending to itself causally.
    ///
    /// # Shapes
    /// Returns `[rows * width, hidden]`, row-major; padding rows hold finite values that mean nothing.
    pub fn hidden(&self, config: &ModelConfig, rope: &RopeTables, batch: &Batch) -> Tensor<2> {
        let mut dense = Dense::new(config, rope, batch, &self.device());
        self.run(config, batch.ids(), &mut dense)
    }

    /// Final hidden states of new tokens that continue sequences in `cache`.
    ///
    /// # Shapes
    /// Returns `[tokens of the pass, hidden]`, in the order of the pass.
    pub fn hidden_cached(
        &self,
        config: &ModelConfig,
        rope: &RopeTables,
        pass: &Pass<'_>,
        cache: &mut KvCache,
    ) -> Tensor<2> {
        let mut pass = pass.clone();
        cache.pad(&mut pass);
        self.run(config, &pass.ids(), cache.over(rope, &pass).as_mut()).narrow(0, 0, pass.tokens())
    }

    fn run(&self, config: &ModelConfig, ids: &[i32], attend: &mut dyn Attend) -> Tensor<2> {
        let weight = self.model.embed_tokens.weight.val();
        let ids = Tensor::<1, Int>::from_ints(ids, &weight.device());
        // Embeddings may be kept in half precision beside norms in single precision: those say what is computed in.
        let mut x = weight.select(0, ids).cast(self.model.norm.gamma.val().dtype());
        for (index, layer) in self.model.layers.iter().enumerate() {
            x = layer.forward(x, config, &mut |heads| attend.attend(index, heads));
        }
        self.model.norm.forward(x)
    }

    /// Logits `[n, vocab]` of hidden states `[n, hidden]`.
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        match &self.lm_head {
            Some(head) => head.forward(hidden),
            None => matmul(hidden, self.model.embed_tokens.weight.val().transpose()),
        }
    }

    /// The same numbers, arranged for generation on the processor: matrices with many inputs row by output, where few
    /// tokens are multiplied twice as fast. On other devices nothing changes.
    #[must_use]
    pub fn for_inference(self) -> Self {
        if host::runs_on(&self.model.embed_tokens.weight.val()) {
            self.map(&mut Arrange { embedding: false })
        } else {
            self
        }
    }

    /// Whether any linear map has a low-rank change.
    pub fn is_adapted(&self) -> bool {
        self.clone().linears().iter().any(|(_, linear)| linear.low_rank.is_some())
    }

    /// The base without its adapter: the reference policy of a run that trains one, without a second copy.
    #[must_use]
    pub fn without_adapter(mut self) -> Self {
        for (_, linear) in self.linears() {
            linear.low_rank = None;
        }
        self
    }

    /// Every linear map by its name in checkpoints; the head has one where it is not tied.
    pub(crate) fn linears(&mut self) -> Vec<(String, &mut Linear)> {
        let mut all = Vec::new();
        for (index, layer) in self.model.layers.iter_mut().enumerate() {
            let Attention { q_proj, k_proj, v_proj, o_proj, .. } = &mut layer.self_attn;
            for (name, linear) in [("q_proj", q_proj), ("k_proj", k_proj), ("v_proj", v_proj), ("o_proj", o_proj)] {
                all.push((format!("model.layers.{index}.self_attn.{name}"), linear));
            }
            let Mlp { gate_proj, up_proj, down_proj } = &mut layer.mlp;
            for (name, linear) in [("gate_proj", gate_proj), ("up_proj", up_proj), ("down_proj", down_proj)] {
                all.push((format!("model.layers.{index}.mlp.{name}"), linear));
            }
        }
        all.extend(self.lm_head.iter_mut().map(|head| ("lm_head".to_owned(), head)));
        all
    }

    /// The device the weights are on.
    pub fn device(&self) -> Device {
        self.model.embed_tokens.weight.val().device()
    }
}

/// See [`Decoder::for_inference`].
struct Arrange {
    /// Inside the embedding, whose rows are looked up and which is in the right order for a tied head.
    embedding: bool,
}

/// Inputs from which on a matrix is arranged: below, the product over neighbouring outputs is the faster one.
const ARRANGED_INPUTS: usize = 768;

impl ModuleMapper for Arrange {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.embedding |= name == "embed_tokens";
    }

    fn exit_module(&mut self, name: &str, _container_type: &str) {
        self.embedding &= name != "embed_tokens";
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let wide = D == 2 && param.val().dims()[0] >= ARRANGED_INPUTS;
        if self.embedding || !wide {
            return param;
        }
        param.map(host::by_output)
    }
}

impl Layer {
    fn new(config: &ModelConfig, device: &Device) -> Self {
        let hidden = config.hidden_size;
        let linear = |input, output, bias| Linear::new(input, output, bias, device);
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

    fn forward(&self, x: Tensor<2>, config: &ModelConfig, attend: &mut dyn FnMut(Heads) -> Tensor<2>) -> Tensor<2> {
        let x = x.clone() + self.self_attn.forward(self.input_layernorm.forward(x), config, attend);
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
    fn forward(&self, x: Tensor<2>, config: &ModelConfig, attend: &mut dyn FnMut(Heads) -> Tensor<2>) -> Tensor<2> {
        let (heads, kv_heads, dim) = (config.num_attention_heads, config.num_key_value_heads, config.head_dim);
        let [n, _] = x.dims();
        let split = |projected: Tensor<2>, heads: usize, norm: Option<&RmsNorm>| {
            let headed = projected.reshape([n, heads, dim]);
            norm.map_or_else(|| headed.clone(), |norm| norm.forward(headed.clone()))
        };
        let queries = split(self.q_proj.forward(x.clone()), heads, self.q_norm.as_ref());
        let keys = split(self.k_proj.forward(x.clone()), kv_heads, self.k_norm.as_ref());
        let values = split(self.v_proj.forward(x), kv_heads, None);
        self.o_proj.forward(attend(Heads { queries, keys, values }))
    }
}

fn norm(width: usize, config: &ModelConfig, device: &Device) -> RmsNorm {
    RmsNormConfig::new(width).with_epsilon(config.rms_norm_eps).init(device)
}

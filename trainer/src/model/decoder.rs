//! The decoder: field names are those of Hugging Face, so that checkpoints map onto them without a table.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::{Embedding, EmbeddingConfig, RmsNorm, RmsNormConfig};
use burn::tensor::activation::{sigmoid, silu};
use burn::tensor::{DType, Device, Int, Tensor};

use super::attend::{Attend, Heads};
use super::dense::Dense;
use super::host;
use super::linear::{LOW_RANK, Linear, matmul};
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

/// The middle of a layer's second half.
pub(crate) struct Gated {
    /// `[n, hidden]`: what the layer's last product is added to.
    pub(crate) x: Tensor<2>,
    /// `[n, intermediate]`.
    pub(crate) gate: Tensor<2>,
    /// `[n, intermediate]`.
    pub(crate) up: Tensor<2>,
}

/// The last matrix of a decoder.
pub(crate) struct Head {
    /// Path of the parameter.
    pub(crate) name: &'static str,
    /// Whether it is the embedding, which is stored by outputs.
    pub(crate) tied: bool,
    /// `[vocab, hidden]`.
    pub(crate) weight: Tensor<2>,
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
    /// Returns `[tokens, hidden]`, in the order of the batch.
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
        let mut x = self.embed(ids);
        for index in 0..self.depth() {
            let heads = self.project(index, x.clone(), config);
            x = self.merge(index, x, attend.attend(index, heads));
        }
        self.finish(x)
    }

    /// Token ids are below this.
    pub(crate) fn vocab_size(&self) -> usize {
        self.model.embed_tokens.weight.lazy_shape()[0]
    }

    /// Number of layers.
    pub(crate) fn depth(&self) -> usize {
        self.model.layers.len()
    }

    /// What enters the first layer, `[n, hidden]`.
    pub(crate) fn embed(&self, ids: &[i32]) -> Tensor<2> {
        let weight = self.model.embed_tokens.weight.val();
        let ids = Tensor::<1, Int>::from_ints(ids, &weight.device());
        // Embeddings may be kept in half precision beside norms in single precision: those say what is computed in.
        weight.select(0, ids).cast(self.dtype())
    }

    /// The first half of layer `index`: queries, keys and values of `x`, `[n, hidden]`.
    pub(crate) fn project(&self, index: usize, x: Tensor<2>, config: &ModelConfig) -> Heads {
        let layer = &self.model.layers[index];
        layer.self_attn.project(normalise(&layer.input_layernorm, x), config)
    }

    /// The second half: what layer `index` gives, from its input `x`, `[n, hidden]`, and its attention's mixed values,
    /// `[n, heads * head_dim]`.
    pub(crate) fn merge(&self, index: usize, x: Tensor<2>, mixed: Tensor<2>) -> Tensor<2> {
        let Gated { x, gate, up } = self.gate(index, x, mixed);
        x + self.lower(index, swiglu(gate, up))
    }

    /// The second half up to the activation.
    pub(crate) fn gate(&self, index: usize, x: Tensor<2>, mixed: Tensor<2>) -> Gated {
        let layer = &self.model.layers[index];
        let x = x + layer.self_attn.o_proj.forward(mixed);
        let normed = normalise(&layer.post_attention_layernorm, x.clone());
        Gated { x, gate: layer.mlp.gate_proj.forward(normed.clone()), up: layer.mlp.up_proj.forward(normed) }
    }

    /// The second half's last matrix, on the activation.
    pub(crate) fn lower(&self, index: usize, activation: Tensor<2>) -> Tensor<2> {
        self.model.layers[index].mlp.down_proj.forward(activation)
    }

    /// Hidden states of what the last layer gave.
    pub(crate) fn finish(&self, x: Tensor<2>) -> Tensor<2> {
        normalise(&self.model.norm, x)
    }

    /// Logits `[n, vocab]` of hidden states `[n, hidden]`.
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        match &self.lm_head {
            Some(head) => head.forward(hidden),
            None => matmul(hidden, self.model.embed_tokens.weight.val().transpose()),
        }
    }

    /// The matrix of [`Self::logits`]; `None` where an adapter changes it.
    pub(crate) fn head(&self) -> Option<Head> {
        match &self.lm_head {
            None => {
                let weight = self.model.embed_tokens.weight.val();
                Some(Head { name: "model.embed_tokens.weight", tied: true, weight })
            }
            Some(Linear { weight, bias: None, low_rank: None }) => {
                Some(Head { name: "lm_head.weight", tied: false, weight: weight.val().transpose() })
            }
            Some(_) => None,
        }
    }

    /// The same model, arranged for generation. On the processor, matrices with many inputs go row by output, where few tokens
    /// are multiplied twice as fast. Elsewhere, a decoder whose matrices are kept in half precision computes in it.
    #[must_use]
    pub fn for_inference(self) -> Self {
        let embedding = self.model.embed_tokens.weight.val();
        if host::runs_on(&embedding) {
            return self.arranged();
        }
        match embedding.dtype() {
            dtype @ (DType::BF16 | DType::F16) => self.map(&mut Cast(dtype)),
            _ => self,
        }
    }

    /// On the processor, the same model with its wide matrices in the order generation wants; elsewhere the model itself. A
    /// frozen base that is arranged once is shared by training and generation.
    #[must_use]
    pub(crate) fn arranged(self) -> Self {
        if host::runs_on(&self.model.embed_tokens.weight.val()) { self.map(&mut Arrange::default()) } else { self }
    }

    /// What the decoder computes in.
    pub(crate) fn dtype(&self) -> DType {
        self.model.norm.gamma.val().dtype()
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

/// See [`Decoder::arranged`].
#[derive(Default)]
struct Arrange {
    /// Inside the embedding, whose rows are looked up and which is in the right order for a tied head, or inside a low-rank
    /// change, which is narrow.
    left: bool,
}

/// Inputs from which on a matrix is arranged: below, the product over neighbouring outputs is the faster one.
pub(crate) const ARRANGED_INPUTS: usize = 768;

impl ModuleMapper for Arrange {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.left |= name == "embed_tokens" || name == LOW_RANK;
    }

    fn exit_module(&mut self, name: &str, _container_type: &str) {
        self.left &= name != "embed_tokens" && name != LOW_RANK;
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let wide = D == 2 && param.val().dims()[0] >= ARRANGED_INPUTS;
        if self.left || !wide {
            return param;
        }
        param.map(host::by_output)
    }
}

/// See [`Decoder::for_inference`].
struct Cast(DType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|weight| weight.cast(self.0))
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
}

/// `silu(gate) * up` (`SwiGLU`, Shazeer 2020).
pub(crate) fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    if host::runs_on(&gate) { host::swiglu(gate, up) } else { silu(gate) * up }
}

/// Derivatives by `gate` and `up` of a loss whose derivative by [`swiglu`]'s result is `slope`; nothing carries a graph.
pub(crate) fn swiglu_backward(gate: Tensor<2>, up: Tensor<2>, slope: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    if host::runs_on(&gate) {
        return host::swiglu_backward(gate, up, slope);
    }
    let weight = sigmoid(gate.clone());
    let rise = weight.clone() * ((weight.clone().neg() + 1.0) * gate.clone() + 1.0);
    (slope.clone() * up * rise, slope * gate * weight)
}

impl Attention {
    fn project(&self, x: Tensor<2>, config: &ModelConfig) -> Heads {
        let (heads, kv_heads, dim) = (config.num_attention_heads, config.num_key_value_heads, config.head_dim);
        let [n, _] = x.dims();
        let split = |projected: Tensor<2>, heads: usize, norm: Option<&RmsNorm>| {
            let headed = projected.reshape([n, heads, dim]);
            norm.map_or_else(|| headed.clone(), |norm| normalise(norm, headed.clone()))
        };
        let queries = split(self.q_proj.forward(x.clone()), heads, self.q_norm.as_ref());
        let keys = split(self.k_proj.forward(x.clone()), kv_heads, self.k_norm.as_ref());
        let values = split(self.v_proj.forward(x), kv_heads, None);
        Heads { queries, keys, values }
    }
}

fn normalise<const D: usize>(norm: &RmsNorm, x: Tensor<D>) -> Tensor<D> {
    if host::runs_on(&x) { host::rms_norm(x, &norm.gamma.val(), norm.epsilon) } else { norm.forward(x) }
}

fn norm(width: usize, config: &ModelConfig, device: &Device) -> RmsNorm {
    RmsNormConfig::new(width).with_epsilon(config.rms_norm_eps).init(device)
}

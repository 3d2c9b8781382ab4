//! A layer: what it is made of, its forward pass, and how it is joined for the kernels of a device.

mod backward;

use burn::module::Module;
use burn::nn::{RmsNorm, RmsNormConfig};
#[cfg(feature = "gpu")]
use burn::tensor::DType;
use burn::tensor::{Device, Tensor};

use super::attend::Heads;
#[cfg(feature = "gpu")]
use super::cube::{Base, Joined, JoinedLayer, KeptJoined, by_output};
use super::dense::{Dense, Mixed};
use super::families::{NormPlacement, QkNorm};
use super::linear::Linear;
use super::{Kernels, ModelConfig};
pub(crate) use backward::LayerBackward;

/// The matrices around attention, and the norms of queries and keys where the family has them.
#[derive(Module, Debug)]
pub(super) struct Attention {
    pub(super) q_proj: Linear,
    pub(super) k_proj: Linear,
    pub(super) v_proj: Linear,
    pub(super) o_proj: Linear,
    pub(super) q_norm: Option<RmsNorm>,
    pub(super) k_norm: Option<RmsNorm>,
}

/// The gated feed-forward part.
#[derive(Module, Debug)]
#[expect(clippy::struct_field_names, reason = "checkpoint names")]
pub(super) struct Mlp {
    pub(super) gate_proj: Linear,
    pub(super) up_proj: Linear,
    pub(super) down_proj: Linear,
}

/// One layer. Checkpoints call the second of its norms `post_attention_layernorm` wherever it stands: with an
/// `input_layernorm` before it, it is that of the feed-forward part's input, else that of attention's output.
#[derive(Module, Debug)]
pub(crate) struct Layer {
    input_layernorm: Option<RmsNorm>,
    pub(super) self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    pub(super) mlp: Mlp,
    post_feedforward_layernorm: Option<RmsNorm>,
    /// Joined frozen matrices, there on a device beside an adapter that learns in their type: the layer's own are views of them.
    #[cfg(feature = "gpu")]
    #[module(skip)]
    base: Option<Base>,
    /// Joined matrices, there in a layer that generates or learns on a device; those that it joins are gone, or views of a base.
    #[cfg(feature = "gpu")]
    #[module(skip)]
    joined: Option<Joined>,
}

/// A norm of a layer with its name in checkpoints.
type NamedNorm<'a> = (&'static str, &'a RmsNorm);

/// The norms of the input and of the output of a part of a layer.
#[derive(Clone, Copy)]
struct Norms<'a> {
    input: Option<NamedNorm<'a>>,
    output: Option<NamedNorm<'a>>,
}

/// Activations inside a layer's feed-forward part.
#[derive(Clone)]
pub(super) struct Gated {
    /// `[n, hidden]`: the residual stream that the layer's last product is added to.
    x: Tensor<2>,
    /// `[n, intermediate]`.
    gate: Tensor<2>,
    /// `[n, intermediate]`.
    up: Tensor<2>,
}

/// The part of a layer that training keeps between its forward pass and its derivative.
pub(crate) enum Kept {
    Parts(Box<KeptParts>),
    /// Activations of a layer whose matrices are joined.
    #[cfg(feature = "gpu")]
    Joined(Box<KeptJoined>),
}

/// See [`Kept`].
pub(crate) struct KeptParts {
    /// `[n, hidden]`: its input.
    input: Tensor<2>,
    /// The output of its attention.
    mixed: Mixed,
    /// The rest that its derivative needs, computed again where it was not kept.
    activations: Option<(Heads, Gated)>,
}

impl Layer {
    /// A layer with Burn's own initial values.
    pub(super) fn new(config: &ModelConfig, device: &Device) -> Self {
        let hidden = config.hidden_size;
        let [q, k, v, o, gate, up, down] = projections(config);
        let (queries, keys) = (q.outputs, k.outputs);
        let family = config.architecture.family();
        let bias = family.qkv_bias;
        let linear = |map: Projection, bias| Linear::new(map.inputs, map.outputs, bias, device);
        let qk_norm = |width| match family.qk_norm {
            QkNorm::None => None,
            QkNorm::Head => Some(norm(config.head_dim, config, device)),
            QkNorm::Width => Some(norm(width, config, device)),
        };
        let placed = |placement| (family.norms == placement).then(|| norm(hidden, config, device));
        Self {
            input_layernorm: placed(NormPlacement::Before),
            self_attn: Attention {
                q_proj: linear(q, bias),
                k_proj: linear(k, bias),
                v_proj: linear(v, bias),
                o_proj: linear(o, false),
                q_norm: qk_norm(queries),
                k_norm: qk_norm(keys),
            },
            post_attention_layernorm: norm(hidden, config, device),
            mlp: Mlp {
                gate_proj: linear(gate, false),
                up_proj: linear(up, false),
                down_proj: linear(down, false),
            },
            post_feedforward_layernorm: placed(NormPlacement::After),
            #[cfg(feature = "gpu")]
            base: None,
            #[cfg(feature = "gpu")]
            joined: None,
        }
    }

    /// The norms of attention.
    fn attention_norms(&self) -> Norms<'_> {
        let second = ("post_attention_layernorm", &self.post_attention_layernorm);
        let input = self.input_layernorm.as_ref();
        Norms {
            input: input.map(|norm| ("input_layernorm", norm)),
            output: input.is_none().then_some(second),
        }
    }

    /// The norms of the feed-forward part.
    fn feed_forward_norms(&self) -> Norms<'_> {
        let second = ("post_attention_layernorm", &self.post_attention_layernorm);
        let output = self.post_feedforward_layernorm.as_ref();
        Norms {
            input: output.is_none().then_some(second),
            output: output.map(|norm| ("post_feedforward_layernorm", norm)),
        }
    }

    /// Queries, keys and values of the layer's input `x`, `[n, hidden]`, before the norms of the heads.
    pub(super) fn project(&self, kernels: Kernels, x: Tensor<2>, config: &ModelConfig) -> Heads {
        let (heads, kv_heads, dim) = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        );
        let [n, _] = x.dims();
        let x = normed(kernels, self.attention_norms().input, x);
        let Attention {
            q_proj,
            k_proj,
            v_proj,
            ..
        } = &self.self_attn;
        Heads {
            queries: q_proj.forward(kernels, x.clone()).reshape([n, heads, dim]),
            keys: k_proj
                .forward(kernels, x.clone())
                .reshape([n, kv_heads, dim]),
            values: v_proj.forward(kernels, x).reshape([n, kv_heads, dim]),
        }
    }

    /// Normalises queries and keys, where the architecture does so.
    pub(super) fn norm_heads(&self, kernels: Kernels, heads: Heads) -> Heads {
        let normed = |norm: &Option<RmsNorm>, x: Tensor<3>| match norm {
            Some(norm) => {
                let shape = x.shape();
                kernels.normalise(norm, head_rows(norm, x)).reshape(shape)
            }
            None => x,
        };
        let Attention { q_norm, k_norm, .. } = &self.self_attn;
        Heads {
            queries: normed(q_norm, heads.queries),
            keys: normed(k_norm, heads.keys),
            values: heads.values,
        }
    }

    /// The feed-forward part up to its activation, from the layer's input, `[n, hidden]`, and its attention's mixed values,
    /// `[n, heads * head_dim]`.
    pub(super) fn gate(&self, kernels: Kernels, input: Tensor<2>, mixed: Tensor<2>) -> Gated {
        let attended = self.self_attn.o_proj.forward(kernels, mixed);
        let x = input + normed(kernels, self.attention_norms().output, attended);
        let normed = normed(kernels, self.feed_forward_norms().input, x.clone());
        Gated {
            x,
            gate: self.mlp.gate_proj.forward(kernels, normed.clone()),
            up: self.mlp.up_proj.forward(kernels, normed),
        }
    }

    /// The layer's output, `[n, hidden]`.
    pub(super) fn lower(&self, kernels: Kernels, Gated { x, gate, up }: Gated) -> Tensor<2> {
        let y = self
            .mlp
            .down_proj
            .forward(kernels, kernels.swiglu(gate, up));
        x + normed(kernels, self.feed_forward_norms().output, y)
    }

    /// The layer's output, and what its derivative needs: with all activations or without.
    pub(crate) fn keep(
        &self,
        input: Tensor<2>,
        config: &ModelConfig,
        dense: &Dense,
        activations: bool,
    ) -> (Kept, Tensor<2>) {
        #[cfg(feature = "gpu")]
        if let Some(joined) = self.joined_with(config, dense) {
            let (kept, output) = joined.keep(input, activations);
            return (Kept::Joined(Box::new(kept)), output);
        }
        let kernels = dense.kernels;
        let heads = self.project(kernels, input.clone(), config);
        let mixed = dense.mix(&dense.rotate(self.norm_heads(kernels, heads.clone())));
        let gated = self.gate(kernels, input.clone(), mixed.values.clone());
        let kept = KeptParts {
            input,
            mixed,
            activations: activations.then(|| (heads, gated.clone())),
        };
        (Kept::Parts(Box::new(kept)), self.lower(kernels, gated))
    }
}

/// The same layer as the kernels of a device see it.
#[cfg(feature = "gpu")]
impl Layer {
    /// Joins frozen matrices of type `dtype` or of 8 bits that have the same input, and makes the layer's own views of what is joined, so
    /// that nothing takes memory twice.
    pub(super) fn share_base(&mut self, dtype: DType) {
        let fits = |map: &Linear| map.is_quantised() || map.matrix().dtype() == dtype;
        if self.base.is_some() || !self.maps().into_iter().all(fits) {
            return;
        }
        let (attention, mlp) = (&mut self.self_attn, &mut self.mlp);
        self.base = Some(Base {
            qkv: Linear::share([
                &mut attention.q_proj,
                &mut attention.k_proj,
                &mut attention.v_proj,
            ]),
            gate_up: Linear::share([&mut mlp.gate_proj, &mut mlp.up_proj]),
        });
    }

    /// Forgets what [`Self::share_base`] and [`Self::join`] made; maps whose matrices are views keep them.
    pub(super) fn forget_joined(&mut self) {
        (self.base, self.joined) = (None, None);
    }

    /// What [`Self::share_base`] joined.
    pub(super) fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    /// Joins the matrices that have the same input; they are not there one by one afterwards, unless they are views.
    pub(super) fn join(&mut self) {
        if self.joined.is_some() {
            return;
        }
        let joined = Joined::of(self);
        let owns = self.base.is_none();
        let attention = &mut self.self_attn;
        if owns && joined.qkv.is_some() {
            for part in [
                &mut attention.q_proj,
                &mut attention.k_proj,
                &mut attention.v_proj,
            ] {
                part.drop_matrix();
            }
        }
        if owns && joined.gate_up.is_some() {
            self.mlp.gate_proj.drop_matrix();
            self.mlp.up_proj.drop_matrix();
        }
        for part in [&mut attention.o_proj, &mut self.mlp.down_proj] {
            if part.is_plain() {
                part.set_matrix(by_output(part.matrix()));
            }
        }
        self.joined = Some(joined);
    }

    /// Returns true where training runs the layer with joined matrices.
    pub(super) fn is_joined(&self) -> bool {
        self.joined.is_some() && !self.drops()
    }

    /// Returns true where what an adapter reads is masked, which maps do one by one.
    fn drops(&self) -> bool {
        let masks = |map: &Linear| {
            map.low_rank
                .as_ref()
                .is_some_and(|low_rank| low_rank.mask.is_some())
        };
        self.maps().into_iter().any(masks)
    }

    /// Ranks of all low-rank changes together.
    pub(super) fn ranks(&self) -> usize {
        let changes = self
            .maps()
            .into_iter()
            .filter_map(|map| map.low_rank.as_ref());
        changes.map(|low_rank| low_rank.b.val().dims()[0]).sum()
    }

    /// The linear maps, those of attention first.
    fn maps(&self) -> [&Linear; 7] {
        let (attention, mlp) = (&self.self_attn, &self.mlp);
        [
            &attention.q_proj,
            &attention.k_proj,
            &attention.v_proj,
            &attention.o_proj,
            &mlp.gate_proj,
            &mlp.up_proj,
            &mlp.down_proj,
        ]
    }

    /// The joined matrices; made for the moment where [`Self::join`] was not called.
    pub(super) fn joined(&self) -> Joined {
        self.joined.clone().unwrap_or_else(|| Joined::of(self))
    }

    /// Returns true where training can run the layer with joined matrices: norms stand before its parts and within heads.
    pub(super) fn trains_joined(&self) -> bool {
        let attention = &self.self_attn;
        let width = attention.o_proj.shape()[0];
        let whole = |norm: &RmsNorm| norm.gamma.val().dims() == [width];
        self.input_layernorm.is_some()
            && self.post_feedforward_layernorm.is_none()
            && !attention.q_norm.as_ref().is_some_and(whole)
    }

    /// The layer as training runs it where all of it is joined.
    fn joined_with<'a>(
        &'a self,
        config: &'a ModelConfig,
        dense: &'a Dense,
    ) -> Option<JoinedLayer<'a>> {
        let joined = self.joined.as_ref().filter(|_| !self.drops())?;
        JoinedLayer::of(self, joined, dense.packed.as_ref()?, config)
    }

    /// The norm of attention's input.
    pub(super) fn attention_input_norm(&self) -> Option<&RmsNorm> {
        self.attention_norms().input.map(|(_, norm)| norm)
    }

    /// The norms of attention's output and of the feed-forward part's input.
    pub(super) fn norms_between(&self) -> [Option<&RmsNorm>; 2] {
        [
            self.attention_norms().output,
            self.feed_forward_norms().input,
        ]
        .map(|named| named.map(|(_, norm)| norm))
    }

    /// The norm of the feed-forward part's output.
    pub(super) fn output_norm(&self) -> Option<&RmsNorm> {
        self.feed_forward_norms().output.map(|(_, norm)| norm)
    }

    /// The gain of a norm that every family has: its type is the one that the layer computes in.
    pub(super) fn gain(&self) -> Tensor<1> {
        self.post_attention_layernorm.gamma.val()
    }
}

/// Part of a layer and name in it of each linear map, those of attention first.
pub(crate) const PROJECTIONS: [(&str, &str); 7] = [
    ("self_attn", "q_proj"),
    ("self_attn", "k_proj"),
    ("self_attn", "v_proj"),
    ("self_attn", "o_proj"),
    ("mlp", "gate_proj"),
    ("mlp", "up_proj"),
    ("mlp", "down_proj"),
];

/// A linear map of a layer.
#[derive(Clone, Copy)]
pub(crate) struct Projection {
    /// Name in the layer.
    pub(crate) name: (&'static str, &'static str),
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
}

impl Projection {
    /// Numbers of its matrix.
    pub(crate) fn numbers(self) -> usize {
        self.inputs * self.outputs
    }
}

/// The linear maps of a layer, in the order of [`PROJECTIONS`].
pub(crate) fn projections(config: &ModelConfig) -> [Projection; 7] {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let queries = config.num_attention_heads * config.head_dim;
    let keys = config.num_key_value_heads * config.head_dim;
    let sizes = [
        [hidden, queries],
        [hidden, keys],
        [hidden, keys],
        [queries, hidden],
        [hidden, inner],
        [hidden, inner],
        [inner, hidden],
    ];
    std::array::from_fn(|index| {
        let [inputs, outputs] = sizes[index];
        Projection {
            name: PROJECTIONS[index],
            inputs,
            outputs,
        }
    })
}

/// `x`, normalised where there is a norm.
fn normed(kernels: Kernels, norm: Option<NamedNorm<'_>>, x: Tensor<2>) -> Tensor<2> {
    match norm {
        Some((_, norm)) => kernels.normalise(norm, x),
        None => x,
    }
}

pub(super) fn norm(width: usize, config: &ModelConfig, device: &Device) -> RmsNorm {
    RmsNormConfig::new(width)
        .with_epsilon(config.rms_norm_eps)
        .init(device)
}

/// Queries or keys, `[n, heads, head_dim]`, in the rows that `norm` normalises: one for each head, or one for all of them.
fn head_rows(norm: &RmsNorm, x: Tensor<3>) -> Tensor<3> {
    let [n, heads, dim] = x.dims();
    let [width] = norm.gamma.val().dims();
    x.reshape([n, heads * dim / width, width])
}

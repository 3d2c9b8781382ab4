//! A joined layer in training: ten launches forwards and fifteen back, where all activations are kept; beside an adapter 20 and 27.

use std::collections::BTreeMap;

use burn::nn::RmsNorm;
use burn::tensor::Tensor;

use super::super::layer::Layer;
use super::super::linear::LOW_RANK;
use super::super::{Decoder, ModelConfig, ParameterGrads};
use super::joined::{GATE_UP, Joined, QKV};
use super::launch::{Extra, add, add_rms_norm, rms_norm, rotate_to_rows, swiglu_joined};
use super::maps::{Map, separate_changes};
use super::packed::Packed;
use super::training::{Partial, residual_norm_backward, rotate_backward, swiglu_joined_backward};

/// The part of a joined layer that training keeps between its forward pass and its derivative.
pub(crate) struct KeptJoined {
    /// `[n, hidden]`: its input.
    input: Tensor<2>,
    /// `[n, heads, head_dim]`: the output of its attention, and what [`Packed::attend`] says of it.
    mixed: Tensor<3>,
    stats: Tensor<3>,
    /// The rest, made again where it was not kept.
    rotated: Option<Rotated>,
    gated: Option<Gated>,
    /// [`Map::narrow`] of the feed-forward part's last map.
    narrow: Option<Tensor<2>>,
}

/// What attention is made of.
#[derive(Clone)]
struct Rotated {
    /// Rotated queries, keys and values, `[n, heads, head_dim]`.
    heads: [Tensor<3>; 3],
    /// Their product before, where heads are normalised.
    both: Option<Tensor<2>>,
    /// [`Map::narrow`] of their map.
    narrow: Option<Tensor<2>>,
}

/// What the feed-forward part is made of.
#[derive(Clone)]
struct Gated {
    /// `[n, hidden]`: the residual stream.
    stream: Tensor<2>,
    /// `[n, 2 intermediate]`: gate and up.
    both: Tensor<2>,
    /// [`Map::narrow`] of their map.
    narrow: Option<Tensor<2>>,
    /// The same of the map of attention's output.
    attended: Option<Tensor<2>>,
}

/// A layer whose matrices are joined, and the rows it works on.
pub(in super::super) struct JoinedLayer<'a> {
    joined: &'a Joined,
    packed: &'a Packed,
    config: &'a ModelConfig,
    /// Norms of the inputs of attention and of the feed-forward part.
    norms: [&'a RmsNorm; 2],
    qkv: Map<'a>,
    output: Map<'a>,
    gate_up: Map<'a>,
    down: Map<'a>,
}

impl<'a> JoinedLayer<'a> {
    /// `None` where a part of the layer is not joined, or its norms stand behind its parts.
    pub(in super::super) fn of(
        layer: &'a Layer,
        joined: &'a Joined,
        packed: &'a Packed,
        config: &'a ModelConfig,
    ) -> Option<Self> {
        let [None, Some(second)] = layer.norms_between() else {
            return None;
        };
        Some(Self {
            norms: [layer.attention_input_norm()?, second],
            qkv: joined.qkv()?,
            output: Map {
                name: "self_attn.o_proj",
                base: &layer.self_attn.o_proj,
                changes: joined.changes.output.as_ref(),
            },
            gate_up: joined.gate_up()?,
            down: Map {
                name: "mlp.down_proj",
                base: &layer.mlp.down_proj,
                changes: joined.changes.down.as_ref(),
            },
            joined,
            packed,
            config,
        })
    }

    fn extra(&self) -> Extra<'_> {
        Extra {
            numbers: &self.joined.extra,
            normed: self.joined.normed,
            epsilon: self.config.rms_norm_eps,
        }
    }

    fn rotated(&self, input: Tensor<2>) -> Rotated {
        let [norm, _] = self.norms;
        let x = rms_norm(input, norm.gamma.val(), norm.epsilon);
        let (both, narrow) = self.qkv.forward(x);
        let both = both.total();
        let shape = [
            self.config.num_attention_heads,
            self.config.num_key_value_heads,
            self.config.head_dim,
        ];
        let (angles, places) = self.packed.turns();
        let kept = self.joined.normed.then(|| both.clone());
        Rotated {
            heads: rotate_to_rows(both, &self.extra(), angles, places, shape),
            both: kept,
            narrow,
        }
    }

    fn gated(&self, input: Tensor<2>, mixed: Tensor<2>) -> Gated {
        let (added, attended) = self.output.forward(mixed);
        let [_, norm] = self.norms;
        let (stream, x) = add_rms_norm(input, added, norm.gamma.val(), norm.epsilon);
        let (both, narrow) = self.gate_up.forward(x);
        Gated {
            stream,
            both: both.total(),
            narrow,
            attended,
        }
    }

    /// The layer's output, `[n, hidden]`, and what its derivative needs: with all activations or without.
    pub(in super::super) fn keep(
        &self,
        input: Tensor<2>,
        activations: bool,
    ) -> (KeptJoined, Tensor<2>) {
        let rotated = self.rotated(input.clone());
        let [queries, keys, values] = rotated.heads.clone();
        let (mixed, stats) = self.packed.attend(queries, keys, values);
        let gated = self.gated(input.clone(), mixed.clone().flatten(1, 2));
        let activation = swiglu_joined(gated.both.clone());
        let (lowered, narrow) = self.down.forward(activation);
        let output = add(gated.stream.clone(), lowered);
        let kept = KeptJoined {
            input,
            mixed,
            stats,
            rotated: activations.then_some(rotated),
            gated: activations.then_some(gated),
            narrow: narrow.filter(|_| activations),
        };
        (kept, output)
    }

    /// Gradient by the layer's input from `grad`, that by its output; those by its parameters are added up under joined names,
    /// which [`separate`] takes apart.
    pub(in super::super) fn input(
        &self,
        kept: KeptJoined,
        grad: Tensor<2>,
        path: &str,
        parameters: &mut ParameterGrads,
    ) -> Tensor<2> {
        let KeptJoined {
            input,
            mixed,
            stats,
            rotated,
            gated,
            narrow,
        } = kept;
        let flat: Tensor<2> = mixed.clone().flatten(1, 2);
        let gated = gated.unwrap_or_else(|| self.gated(input.clone(), flat.clone()));
        let [first, second] = self.norms.map(|norm| (norm.gamma.val(), norm.epsilon));
        let hidden = self.config.hidden_size;
        let extra = self.extra();
        let partial = Partial::of(&grad, 2 * hidden + self.sums());

        let (by_activation, by_narrow) = self.down.backward(grad.clone());
        let (by_both, activation) = swiglu_joined_backward(gated.both, by_activation);
        let narrow = narrow.or_else(|| self.down.narrow(activation.clone()));
        self.down.learn(
            parameters,
            path,
            [activation, grad.clone()],
            [narrow, by_narrow],
        );
        let (by_x, by_narrow) = self.gate_up.backward(by_both.clone());
        let (grad, x) = residual_norm_backward(gated.stream, second, by_x, grad, &partial, hidden);
        self.gate_up
            .learn(parameters, path, [x, by_both], [gated.narrow, by_narrow]);

        let (by_mixed, by_narrow) = self.output.backward(grad.clone());
        let by_mixed = by_mixed.total();
        self.output.learn(
            parameters,
            path,
            [flat, grad.clone()],
            [gated.attended, by_narrow],
        );
        let Rotated {
            heads,
            both,
            narrow,
        } = rotated.unwrap_or_else(|| self.rotated(input.clone()));
        let shape = mixed.dims();
        let by_heads = self
            .packed
            .attend_backward(heads, mixed, stats, by_mixed.reshape(shape));
        let (angles, places) = self.packed.turns();
        let sums = (&partial, 2 * hidden);
        let by_both = rotate_backward(by_heads, both, &extra, angles, places, sums);
        let (by_x, by_narrow) = self.qkv.backward(by_both.clone());
        let (grad, x) = residual_norm_backward(input, first, by_x, grad, &partial, 0);
        self.qkv
            .learn(parameters, path, [x, by_both], [narrow, by_narrow]);
        if parameters.base_learns() {
            parameters.add(format!("{path}.{SUMS}"), partial.total());
        }
        grad
    }

    /// Sums that [`rotate_backward`] leaves.
    fn sums(&self) -> usize {
        let [_, width] = self.qkv.base.shape();
        if self.joined.normed { 2 * width } else { width }
    }
}

/// Name of the gradients by the norms' gains, by the biases of queries, keys and values and by the gains of the norms of heads.
const SUMS: &str = "sums";

/// Takes joined gradients of `decoder` apart: one flat gradient per parameter.
pub(in super::super) fn separate(
    total: &mut BTreeMap<String, Tensor<1>>,
    decoder: &Decoder,
    config: &ModelConfig,
) {
    let dim = config.head_dim;
    let (queries, keys) = (config.num_attention_heads, config.num_key_value_heads);
    let parts = [("q_proj", queries), ("k_proj", keys), ("v_proj", keys)];
    for index in 0..decoder.depth() {
        let path = format!("model.layers.{index}");
        let mut taken = Vec::new();
        let (attention, mlp) = (&decoder.layer(index).self_attn, &decoder.layer(index).mlp);
        let qkv = [
            ("self_attn.q_proj", &attention.q_proj),
            ("self_attn.k_proj", &attention.k_proj),
            ("self_attn.v_proj", &attention.v_proj),
        ];
        let gate_up = [
            ("mlp.gate_proj", &mlp.gate_proj),
            ("mlp.up_proj", &mlp.up_proj),
        ];
        for (name, maps) in [(QKV, &qkv[..]), (GATE_UP, &gate_up[..])] {
            let [a, b] = ["a", "b"]
                .map(|matrix| total.remove(&format!("{path}.{name}.{LOW_RANK}.{matrix}")));
            if let (Some(a), Some(b)) = (a, b) {
                taken.extend(separate_changes(maps, a, b));
            }
        }
        if let Some(both) = total.remove(&format!("{path}.{GATE_UP}.weight")) {
            let both = both.reshape([config.hidden_size, 2 * config.intermediate_size]);
            for (part, name) in both.chunk(2, 1).into_iter().zip(["gate_proj", "up_proj"]) {
                taken.push((format!("mlp.{name}.weight"), part.flatten(0, 1)));
            }
        }
        if let Some(all) = total.remove(&format!("{path}.{QKV}.weight")) {
            let all = all.reshape([config.hidden_size, (queries + 2 * keys) * dim]);
            let mut start = 0;
            for (name, heads) in parts {
                let part = all.clone().narrow(1, start, heads * dim);
                taken.push((format!("self_attn.{name}.weight"), part.flatten(0, 1)));
                start += heads * dim;
            }
        }
        if let Some(sums) = total.remove(&format!("{path}.{SUMS}")) {
            let mut start = 0;
            let mut next = |count: usize| {
                start += count;
                sums.clone().narrow(0, start - count, count)
            };
            for name in ["input_layernorm", "post_attention_layernorm"] {
                taken.push((format!("{name}.gamma"), next(config.hidden_size)));
            }
            let biased = attention.q_proj.bias.is_some();
            for (name, heads) in parts {
                let part = next(heads * dim);
                if biased {
                    taken.push((format!("self_attn.{name}.bias"), part));
                }
            }
            if attention.q_norm.is_some() {
                for (name, heads) in [("q_norm", queries), ("k_norm", keys)] {
                    let part = next(heads * dim).reshape([heads, dim]).sum_dim(0);
                    taken.push((format!("self_attn.{name}.gamma"), part.reshape([dim])));
                }
            }
        }
        total.extend(
            taken
                .into_iter()
                .map(|(name, gradient)| (format!("{path}.{name}"), gradient)),
        );
    }
}

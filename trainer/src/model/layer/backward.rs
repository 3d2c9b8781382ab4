//! The derivative of a layer.

use burn::nn::RmsNorm;
use burn::tensor::Tensor;

use super::super::attend::Heads;
use super::super::dense::{Dense, Mixed};
use super::super::linear::Linear;
use super::super::{ModelConfig, ParameterGrads};
use super::{Gated, Kept, KeptParts, Layer, NamedNorm, head_rows, normed};

/// The derivative of a layer, with those by its parameters added up on the way.
pub(crate) struct LayerBackward<'a> {
    pub(crate) layer: &'a Layer,
    pub(crate) config: &'a ModelConfig,
    pub(crate) dense: &'a Dense,
    /// The layer's name in parameter paths.
    pub(crate) path: String,
    pub(crate) parameters: &'a mut ParameterGrads,
}

impl LayerBackward<'_> {
    /// Gradient by the layer's input from `grad`, that by its result.
    pub(crate) fn input(self, kept: Kept, grad: Tensor<2>) -> Tensor<2> {
        match kept {
            Kept::Parts(kept) => self.input_of_parts(*kept, grad),
            #[cfg(feature = "gpu")]
            Kept::Joined(kept) => {
                let joined = self.layer.joined_with(self.config, self.dense);
                let joined = joined.expect("the forward pass ran through it");
                joined.input(*kept, grad, &self.path, self.parameters)
            }
        }
    }

    fn input_of_parts(mut self, kept: KeptParts, grad: Tensor<2>) -> Tensor<2> {
        let KeptParts {
            input,
            mixed,
            activations,
        } = kept;
        let (layer, kernels) = (self.layer, self.dense.kernels);
        let (heads, gated) = activations.unzip();
        let gated =
            gated.unwrap_or_else(|| layer.gate(kernels, input.clone(), mixed.values.clone()));
        let grad = self.feed_forward(gated, grad);
        let o_proj = &layer.self_attn.o_proj;
        let attended = || o_proj.forward(kernels, mixed.values.clone());
        let by_attended = self.norm(layer.attention_norms().output, attended, grad.clone());
        let by_mixed = self.linear(
            "self_attn.o_proj",
            o_proj,
            mixed.values.clone(),
            by_attended,
        );
        let heads = heads.unwrap_or_else(|| layer.project(kernels, input.clone(), self.config));
        grad + self.attention(input, heads, &mixed, &by_mixed)
    }

    /// Goes back through the feed-forward part; returns the gradient by its input.
    fn feed_forward(&mut self, Gated { x, gate, up }: Gated, grad: Tensor<2>) -> Tensor<2> {
        let (mlp, norms) = (&self.layer.mlp, self.layer.feed_forward_norms());
        let kernels = self.dense.kernels;
        let activation = kernels.swiglu(gate.clone(), up.clone());
        let output = || mlp.down_proj.forward(kernels, activation.clone());
        let by_output = self.norm(norms.output, output, grad.clone());
        let by_activation = self.linear("mlp.down_proj", &mlp.down_proj, activation, by_output);
        let (by_gate, by_up) = kernels.swiglu_backward(gate, up, by_activation);
        let normed = normed(kernels, norms.input, x.clone());
        let by_normed = self.linear("mlp.gate_proj", &mlp.gate_proj, normed.clone(), by_gate)
            + self.linear("mlp.up_proj", &mlp.up_proj, normed, by_up);
        grad + self.norm(norms.input, || x, by_normed)
    }

    /// Through attention and the projections `plain` of the layer's input: the gradient by that from `grad`, the one by the
    /// mixed values.
    fn attention(
        &mut self,
        input: Tensor<2>,
        plain: Heads,
        mixed: &Mixed,
        grad: &Tensor<2>,
    ) -> Tensor<2> {
        let attention = &self.layer.self_attn;
        let kernels = self.dense.kernels;
        let rotated = self
            .dense
            .rotate(self.layer.norm_heads(kernels, plain.clone()));
        let grads = self
            .dense
            .rotate_backward(self.dense.mix_backward(&rotated, mixed, grad));
        drop(rotated);
        let by_queries = self.head_norm(
            "q_norm",
            attention.q_norm.as_ref(),
            plain.queries,
            grads.queries,
        );
        let by_keys = self.head_norm("k_norm", attention.k_norm.as_ref(), plain.keys, grads.keys);
        let norm = self.layer.attention_norms().input;
        let x = normed(kernels, norm, input.clone());
        let mut through = |name: &str, map: &Linear, grad: Tensor<3>| {
            self.linear(name, map, x.clone(), grad.flatten::<2>(1, 2))
        };
        let by_x = through("self_attn.q_proj", &attention.q_proj, by_queries)
            + through("self_attn.k_proj", &attention.k_proj, by_keys)
            + through("self_attn.v_proj", &attention.v_proj, grads.values);
        self.norm(norm, || input, by_x)
    }

    fn linear(&mut self, name: &str, map: &Linear, x: Tensor<2>, grad: Tensor<2>) -> Tensor<2> {
        let path = format!("{}.{name}", self.path);
        self.parameters.linear(&path, map, x, grad)
    }

    /// Goes back through a norm, where there is one; returns the gradient by what it normalises, `x`.
    fn norm(
        &mut self,
        norm: Option<NamedNorm<'_>>,
        x: impl FnOnce() -> Tensor<2>,
        grad: Tensor<2>,
    ) -> Tensor<2> {
        let Some((name, norm)) = norm else {
            return grad;
        };
        let path = format!("{}.{name}", self.path);
        self.parameters.norm(&path, norm, x(), grad)
    }

    /// Goes back through the norm of queries or keys, where there is one.
    fn head_norm(
        &mut self,
        name: &str,
        norm: Option<&RmsNorm>,
        x: Tensor<3>,
        grad: Tensor<3>,
    ) -> Tensor<3> {
        let Some(norm) = norm else {
            return grad;
        };
        let path = format!("{}.self_attn.{name}", self.path);
        let (shape, x, grad) = (x.shape(), head_rows(norm, x), head_rows(norm, grad));
        self.parameters.norm(&path, norm, x, grad).reshape(shape)
    }
}

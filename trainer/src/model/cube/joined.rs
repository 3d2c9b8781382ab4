//! The matrices of a layer that are multiplied together.

use burn::nn::RmsNorm;
use burn::tensor::Tensor;

use super::launch::{rms_norm, swiglu, swiglu_joined};
use super::maps::{Changes, Map};
use crate::model::Kernels;
use crate::model::layer::Layer;
use crate::model::linear::Linear;

/// The frozen matrices of a layer that are joined, of which the layer's own are views.
#[derive(Clone, Debug)]
pub(in crate::model) struct Base {
    /// Queries, keys and values, `[hidden, (heads + 2 kv_heads) * head_dim]`.
    pub(in crate::model) qkv: Linear,
    /// `[hidden, 2 intermediate]`.
    pub(in crate::model) gate_up: Linear,
}

/// The matrices of a layer that are multiplied together because they have the same input, and what is added to products.
#[derive(Clone, Debug)]
pub(in crate::model) struct Joined {
    /// The map of [`Base`]; `None` where queries, keys and values are normalised over their whole width, or adapted or of 8 bits without
    /// a joined base.
    pub(in crate::model) qkv: Option<Linear>,
    /// The map of [`Base`]; `None` in the same cases.
    pub(in crate::model) gate_up: Option<Linear>,
    /// Low-rank changes beside a joined base.
    pub(super) changes: AllChanges,
    /// See [`Extra::numbers`](super::launch::Extra::numbers).
    pub(super) extra: Tensor<1>,
    pub(super) normed: bool,
}

/// The low-rank changes of the maps of a layer.
#[derive(Clone, Debug, Default)]
pub(super) struct AllChanges {
    qkv: Option<Changes>,
    pub(super) output: Option<Changes>,
    gate_up: Option<Changes>,
    pub(super) down: Option<Changes>,
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
pub(super) const QKV: &str = "self_attn.qkv";
pub(super) const GATE_UP: &str = "mlp.gate_up";

impl Joined {
    /// The joined matrices of `layer`.
    pub(in crate::model) fn of(layer: &Layer) -> Self {
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
    pub(super) fn qkv(&self) -> Option<Map<'_>> {
        Some(Map {
            name: QKV,
            base: self.qkv.as_ref()?,
            changes: self.changes.qkv.as_ref(),
        })
    }

    /// Gate and up as one map.
    pub(super) fn gate_up(&self) -> Option<Map<'_>> {
        Some(Map {
            name: GATE_UP,
            base: self.gate_up.as_ref()?,
            changes: self.changes.gate_up.as_ref(),
        })
    }

    /// The product with queries, keys and values of `x`, `[n, hidden]`.
    pub(super) fn project(&self, layer: &Layer, x: Tensor<2>) -> Tensor<2> {
        if let Some(qkv) = self.qkv() {
            return qkv.forward(x).0.total();
        }
        let attention = &layer.self_attn;
        let [queries, keys, values] = [&attention.q_proj, &attention.k_proj, &attention.v_proj]
            .map(|part| part.forward(Kernels::Cube, x.clone()));
        let whole = |norm: &Option<RmsNorm>, x: Tensor<2>| match norm {
            Some(norm) if !self.normed => rms_norm(x, norm.gamma.val(), norm.epsilon),
            _ => x,
        };
        let queries = whole(&attention.q_norm, queries);
        let keys = whole(&attention.k_norm, keys);
        Tensor::cat(vec![queries, keys, values], 1)
    }

    /// The activation of the feed-forward part on `x`, `[n, hidden]`.
    pub(super) fn activate(&self, layer: &Layer, x: Tensor<2>) -> Tensor<2> {
        if let Some(gate_up) = self.gate_up() {
            return swiglu_joined(gate_up.forward(x).0.total());
        }
        let [gate, up] = [&layer.mlp.gate_proj, &layer.mlp.up_proj]
            .map(|part| part.forward(Kernels::Cube, x.clone()));
        swiglu(gate, up)
    }
}

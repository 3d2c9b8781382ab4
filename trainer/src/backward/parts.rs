//! Derivatives of what a layer is made of, with those by its parameters added up on the way.

use burn::nn::RmsNorm;
use burn::tensor::Tensor;

use crate::grads::NamedGrads;
use crate::model::{Decoder, LOW_RANK, Linear, LowRank, normalise_backward, product};

/// Gradients by the parameters that learn: those of an adapter where there is one, else all.
pub(super) struct Parameters {
    adapted: bool,
    pub(super) total: NamedGrads,
}

impl Parameters {
    pub(super) fn of(decoder: &Decoder) -> Self {
        Self { adapted: decoder.is_adapted(), total: NamedGrads::default() }
    }

    /// Whether a weight of the base learns.
    pub(super) fn base_learns(&self) -> bool {
        !self.adapted
    }

    /// Adds a gradient by the parameter called `name`.
    pub(super) fn add<const D: usize>(&mut self, name: String, gradient: Tensor<D>) {
        let count = gradient.shape().num_elements();
        self.total.add_one(name, gradient.reshape([count]));
    }

    /// Gradient by `x`, `[n, inputs]`, where that by what `map` makes of it is `grad`, `[n, outputs]`.
    pub(super) fn linear(&mut self, path: &str, map: &Linear, x: Tensor<2>, grad: Tensor<2>) -> Tensor<2> {
        let below = product(grad.clone(), map.matrix().cast(grad.dtype()).transpose());
        if self.base_learns() {
            if map.bias.is_some() {
                self.add(format!("{path}.bias"), grad.clone().sum_dim(0));
            }
            self.add(format!("{path}.weight"), product(x.transpose(), grad));
            return below;
        }
        let Some(LowRank { a, b, scale }) = &map.low_rank else { return below };
        let (a, grad) = (a.val(), grad * *scale);
        let narrow = product(grad.clone(), b.val().transpose());
        self.add(format!("{path}.{LOW_RANK}.b"), product(product(x.clone(), a.clone()).transpose(), grad));
        self.add(format!("{path}.{LOW_RANK}.a"), product(x.transpose(), narrow.clone()));
        below + product(narrow, a.transpose())
    }

    /// Gradient by `x`, whose last dimension `norm` normalises.
    pub(super) fn norm<const D: usize>(
        &mut self,
        path: &str,
        norm: &RmsNorm,
        x: Tensor<D>,
        grad: Tensor<D>,
    ) -> Tensor<D> {
        let (by_x, by_gamma) = normalise_backward(norm, x, grad);
        if self.base_learns() {
            self.add(format!("{path}.gamma"), by_gamma);
        }
        by_x
    }
}

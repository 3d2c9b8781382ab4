//! Gradients by parameters, added up on the way back through linear maps and norms.

use std::collections::BTreeMap;

use burn::nn::RmsNorm;
use burn::tensor::{DType, Tensor};

use super::linear::{LOW_RANK, Linear, LowRank, masked};
use super::{Decoder, Kernels};

/// Gradients by the parameters that learn: those of an adapter where there is one, else all.
pub(crate) struct ParameterGrads {
    adapted: bool,
    pub(crate) kernels: Kernels,
    /// One flat gradient per parameter, by its path.
    pub(crate) total: BTreeMap<String, Tensor<1>>,
}

impl ParameterGrads {
    pub(crate) fn of(decoder: &Decoder) -> Self {
        Self {
            adapted: decoder.is_adapted(),
            kernels: decoder.kernels(),
            total: BTreeMap::new(),
        }
    }

    /// The gradients of an adapter's maps.
    #[cfg(test)]
    pub(super) fn of_adapter(kernels: Kernels) -> Self {
        Self {
            adapted: true,
            kernels,
            total: BTreeMap::new(),
        }
    }

    /// Returns true where the weights of the base learn.
    pub(crate) fn base_learns(&self) -> bool {
        !self.adapted
    }

    /// Adds a gradient by the parameter called `name`: in f32, whatever type it was computed in.
    pub(crate) fn add<const D: usize>(&mut self, name: String, gradient: Tensor<D>) {
        let count = gradient.shape().num_elements();
        let mut sum = gradient.reshape([count]).cast(DType::F32);
        if let Some(before) = self.total.remove(&name) {
            sum = before + sum;
        }
        self.total.insert(name, sum);
    }

    /// Gradient by `x`, `[n, inputs]`, where that by what `map` makes of it is `grad`, `[n, outputs]`.
    pub(crate) fn linear(
        &mut self,
        path: &str,
        map: &Linear,
        x: Tensor<2>,
        grad: Tensor<2>,
    ) -> Tensor<2> {
        let kernels = self.kernels;
        let below = kernels.product(grad.clone(), map.matrix_in(grad.dtype()).transpose());
        if self.base_learns() {
            if map.bias.is_some() {
                self.add(format!("{path}.bias"), grad.clone().sum_dim(0));
            }
            self.add(
                format!("{path}.weight"),
                kernels.product(x.transpose(), grad),
            );
            return below;
        }
        let Some(low_rank) = &map.low_rank else {
            return below;
        };
        let LowRank { a, b, .. } = low_rank;
        let mask = low_rank.mask_of(&x);
        let x = masked(x, mask.as_ref());
        let (a, grad) = (a.val(), grad * low_rank.factor());
        let narrow = kernels.product(grad.clone(), b.val().transpose());
        self.add(
            format!("{path}.{LOW_RANK}.b"),
            kernels.product(kernels.product(x.clone(), a.clone()).transpose(), grad),
        );
        self.add(
            format!("{path}.{LOW_RANK}.a"),
            kernels.product(x.transpose(), narrow.clone()),
        );
        below + masked(kernels.product(narrow, a.transpose()), mask.as_ref())
    }

    /// Gradient by `x`, whose last dimension `norm` normalises.
    pub(crate) fn norm<const D: usize>(
        &mut self,
        path: &str,
        norm: &RmsNorm,
        x: Tensor<D>,
        grad: Tensor<D>,
    ) -> Tensor<D> {
        let learns = self.base_learns();
        let (by_x, by_gamma) = self.kernels.normalise_backward(norm, x, grad, learns);
        if let Some(by_gamma) = by_gamma {
            self.add(format!("{path}.gamma"), by_gamma);
        }
        by_x
    }
}

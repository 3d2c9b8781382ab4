//! Linear maps, the only place where weights are multiplied.

use burn::module::{Module, Param};
use burn::nn::LinearConfig;
use burn::tensor::{Device, Tensor};

use super::host;

/// `y = x W + b`, and `+ s (x A) B` where it is adapted. The weight has the logical shape `[inputs, outputs]`, whatever
/// its order in memory.
#[derive(Module, Debug)]
pub struct Linear {
    pub(crate) weight: Param<Tensor<2>>,
    pub(crate) bias: Option<Param<Tensor<1>>>,
    pub(crate) low_rank: Option<LowRank>,
}

/// Name of the field in parameter paths.
pub(crate) const LOW_RANK: &str = "low_rank";

/// A low-rank change of a linear map (`LoRA`, Hu et al. 2021), never multiplied out while it is trained or used.
#[derive(Module, Debug)]
pub struct LowRank {
    /// `[inputs, rank]`
    pub(crate) a: Param<Tensor<2>>,
    /// `[rank, outputs]`
    pub(crate) b: Param<Tensor<2>>,
    pub(crate) scale: f64,
}

impl Linear {
    pub(super) fn new(inputs: usize, outputs: usize, bias: bool, device: &Device) -> Self {
        let burn::nn::Linear { weight, bias } = LinearConfig::new(inputs, outputs).with_bias(bias).init(device);
        Self { weight, bias, low_rank: None }
    }

    /// # Shapes
    /// `x`: `[n, inputs]`; returns `[n, outputs]`.
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let y = matmul(x.clone(), self.weight.val());
        let y = match &self.bias {
            Some(bias) => y + bias.val().unsqueeze(),
            None => y,
        };
        match &self.low_rank {
            Some(LowRank { a, b, scale }) => y + matmul(matmul(x, a.val()), b.val()) * *scale,
            None => y,
        }
    }
}

/// `x W` for a weight of logical shape `[inputs, outputs]`. On the processor, outside training, the kernels of [`host`]
/// compute it, which read weights in either order.
pub(super) fn matmul(x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    if host::runs_on(&x) {
        return host::product(x, &weight);
    }
    // A frozen base may be kept in half precision; Burn multiplies equal types only.
    let weight = if weight.dtype() == x.dtype() { weight } else { weight.cast(x.dtype()) };
    x.matmul(weight)
}

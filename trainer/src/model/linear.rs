//! Linear maps, the only place where weights are multiplied.

use burn::module::{Module, Param};
use burn::nn::LinearConfig;
use burn::tensor::{Device, Tensor};

use super::host;

/// `y = x W + b`. The weight has the logical shape `[inputs, outputs]`, whatever its order in memory.
#[derive(Module, Debug)]
pub struct Linear {
    pub(crate) weight: Param<Tensor<2>>,
    pub(crate) bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    pub(super) fn new(inputs: usize, outputs: usize, bias: bool, device: &Device) -> Self {
        let burn::nn::Linear { weight, bias } = LinearConfig::new(inputs, outputs).with_bias(bias).init(device);
        Self { weight, bias }
    }

    /// # Shapes
    /// `x`: `[n, inputs]`; returns `[n, outputs]`.
    pub(super) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let y = matmul(x, self.weight.val());
        match &self.bias {
            Some(bias) => y + bias.val().unsqueeze(),
            None => y,
        }
    }
}

/// `x W` for a weight of logical shape `[inputs, outputs]`.
///
/// On the processor, outside training, a row of the result has the same bits whatever other rows there are: weights in
/// the order of checkpoint files go through the kernel of [`host`]; for the others Burn's product is used, on at least
/// two rows, because a single one takes another path with other bits.
pub(super) fn matmul(x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    if !host::runs_on(&x) {
        return x.matmul(weight);
    }
    match host::product(&x, &weight) {
        Some(y) => y,
        None if x.dims()[0] == 1 => Tensor::cat(vec![x.clone(), x], 0).matmul(weight).narrow(0, 0, 1),
        None => x.matmul(weight),
    }
}

//! Linear maps, the only place where weights are multiplied.

use burn::module::{Module, Param, ParamId};
use burn::nn::LinearConfig;
use burn::tensor::{Device, Tensor};

use super::host;
use super::quantised::{BLOCK_INPUTS, Quantised};

/// `y = x W + b`, and `+ s (x A) B` where it is adapted. The weight has the logical shape `[inputs, outputs]`, whatever
/// its order in memory.
#[derive(Module, Debug)]
pub struct Linear {
    /// None where [`Self::quantised`] stands for it.
    weight: Option<Param<Tensor<2>>>,
    /// A frozen weight of 8 bits.
    quantised: Option<Quantised>,
    pub(crate) bias: Option<Param<Tensor<1>>>,
    pub(crate) low_rank: Option<LowRank>,
}

/// Name of the field in parameter paths.
pub(crate) const LOW_RANK: &str = "low_rank";

/// A map has a weight in one of two forms.
const ONE_OF_BOTH: &str = "a weight that is not kept as floats is quantised";

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
        Self { weight: Some(weight), quantised: None, bias, low_rank: None }
    }

    /// `[inputs, outputs]`. Asking for the weight itself would draw random numbers where none were read yet.
    pub(crate) fn shape(&self) -> [usize; 2] {
        match (&self.weight, &self.quantised) {
            (Some(weight), _) => weight.lazy_shape().dims(),
            (None, quantised) => quantised.as_ref().expect(ONE_OF_BOTH).shape(),
        }
    }

    /// The weight, `[inputs, outputs]`, in the type it is kept in; one of 8 bits is widened to f32.
    pub(crate) fn matrix(&self) -> Tensor<2> {
        match (&self.weight, &self.quantised) {
            (Some(weight), _) => weight.val(),
            (None, quantised) => quantised.as_ref().expect(ONE_OF_BOTH).widened(),
        }
    }

    /// Exchanges the weight.
    pub(crate) fn set_matrix(&mut self, matrix: Tensor<2>) {
        let id = self.weight.as_ref().map_or_else(ParamId::new, |weight| weight.id);
        (self.weight, self.quantised) = (Some(Param::initialized(id, matrix)), None);
    }

    /// Keeps the weight in 8 bits from now on.
    ///
    /// # Errors
    /// The number of inputs, when it is no multiple of [`BLOCK_INPUTS`].
    pub(crate) fn quantise(&mut self) -> Result<(), usize> {
        let Some(weight) = &self.weight else { return Ok(()) };
        let [inputs, _] = self.shape();
        if !inputs.is_multiple_of(BLOCK_INPUTS) {
            return Err(inputs);
        }
        (self.quantised, self.weight) = (Some(Quantised::nearest(weight.val())), None);
        Ok(())
    }

    /// # Shapes
    /// `x`: `[n, inputs]`; returns `[n, outputs]`.
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let y = match &self.quantised {
            Some(quantised) => quantised.product(x.clone()),
            None => matmul(x.clone(), self.matrix()),
        };
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

/// `a b`, `[rows, inner]` and `[inner, columns]` or stacks of as many: attention and derivatives, in which a row's bits may depend on
/// what other rows there are.
pub(crate) fn product<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    if host::runs_on(&a) { host::matmul(a, b) } else { a.matmul(b) }
}

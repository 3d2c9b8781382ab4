//! Linear maps.

use burn::module::{Module, Param, ParamId};
use burn::nn::LinearConfig;
use burn::tensor::{DType, Device, Tensor};

use super::Kernels;
use super::dropout::Mask;
use super::quantised::{BLOCK_INPUTS, Quantised};

/// `y = x W + b`, and `+ s (x A) B` where it is adapted, of `x` without what a mask drops. The weight has the logical shape `[inputs, outputs]`, whatever
/// its order in memory.
#[derive(Module, Debug)]
pub(crate) struct Linear {
    /// None where [`Self::quantised`] replaces it.
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
pub(crate) struct LowRank {
    /// `[inputs, rank]`
    pub(crate) a: Param<Tensor<2>>,
    /// `[rank, outputs]`
    pub(crate) b: Param<Tensor<2>>,
    pub(crate) scale: f64,
    /// There in the copy of a decoder that learns from one batch with dropout.
    #[module(skip)]
    pub(crate) mask: Option<Mask>,
}

impl LowRank {
    /// The factor of `(x A) B`, with the gain of what is not dropped.
    pub(super) fn factor(&self) -> f64 {
        self.scale * self.mask.as_ref().map_or(1.0, Mask::gain)
    }

    /// The mask of `x`, `[n, inputs]`, where some of it is dropped.
    pub(super) fn mask_of(&self, x: &Tensor<2>) -> Option<Tensor<2>> {
        self.mask.as_ref().map(|mask| mask.of(x))
    }
}

/// `x` without what a mask drops.
pub(super) fn masked(x: Tensor<2>, mask: Option<&Tensor<2>>) -> Tensor<2> {
    match mask {
        Some(mask) => x * mask.clone(),
        None => x,
    }
}

impl Linear {
    pub(super) fn new(inputs: usize, outputs: usize, bias: bool, device: &Device) -> Self {
        let burn::nn::Linear { weight, bias } = LinearConfig::new(inputs, outputs)
            .with_bias(bias)
            .init(device);
        Self {
            weight: Some(weight),
            quantised: None,
            bias,
            low_rank: None,
        }
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

    /// The weight in floats of type `dtype`.
    pub(super) fn matrix_in(&self, dtype: DType) -> Tensor<2> {
        match (&self.weight, &self.quantised) {
            (Some(weight), _) => weight.val().cast(dtype),
            (None, quantised) => quantised.as_ref().expect(ONE_OF_BOTH).widened_to(dtype),
        }
    }

    /// Returns true where the weight is kept in 8 bits.
    pub(crate) fn is_quantised(&self) -> bool {
        self.quantised.is_some()
    }

    /// Returns true for a map that is its weight and bias alone.
    #[cfg(feature = "gpu")]
    pub(super) fn is_plain(&self) -> bool {
        self.quantised.is_none() && self.low_rank.is_none()
    }

    /// The matrices of maps with the same input side by side, without what is added to their products.
    #[cfg(feature = "gpu")]
    pub(super) fn joined(parts: &[&Self]) -> Self {
        let quantised: Option<Vec<&Quantised>> =
            parts.iter().map(|part| part.quantised.as_ref()).collect();
        let quantised = quantised.map(|parts| Quantised::joined(&parts));
        let weight = quantised.is_none().then(|| {
            let by_output = |part: &&Self| part.matrix().swap_dims(0, 1);
            let matrix = Tensor::cat(parts.iter().map(by_output).collect(), 0);
            Param::initialized(ParamId::new(), matrix.swap_dims(0, 1))
        });
        Self {
            weight,
            quantised,
            bias: None,
            low_rank: None,
        }
    }

    /// [`Self::joined`], whose memory the matrices of the maps share from now on: views of it begin where the device's alignment
    /// allows, which is wherever the widths are those of published models.
    #[cfg(feature = "gpu")]
    pub(super) fn share<const N: usize>(parts: [&mut Self; N]) -> Self {
        let joined = Self::joined(&parts.each_ref().map(|part| &**part));
        let mut first = 0;
        for part in parts {
            let [_, outputs] = part.shape();
            match &joined.quantised {
                Some(quantised) => part.quantised = Some(quantised.outputs(first, outputs)),
                None => part.set_matrix(joined.matrix().narrow(1, first, outputs)),
            }
            first += outputs;
        }
        joined
    }

    /// Lets go of the weight, of which there is a copy elsewhere.
    #[cfg(feature = "gpu")]
    pub(super) fn drop_matrix(&mut self) {
        self.weight = None;
    }

    /// Exchanges the weight.
    pub(crate) fn set_matrix(&mut self, matrix: Tensor<2>) {
        let id = self
            .weight
            .as_ref()
            .map_or_else(ParamId::new, |weight| weight.id);
        (self.weight, self.quantised) = (Some(Param::initialized(id, matrix)), None);
    }

    /// Keeps the weight in 8 bits from now on.
    ///
    /// # Errors
    /// The number of inputs, when it is not a multiple of [`BLOCK_INPUTS`].
    pub(crate) fn quantise(&mut self) -> Result<(), usize> {
        let Some(weight) = &self.weight else {
            return Ok(());
        };
        let [inputs, _] = self.shape();
        if !inputs.is_multiple_of(BLOCK_INPUTS) {
            return Err(inputs);
        }
        (self.quantised, self.weight) = (Some(Quantised::nearest(weight.val())), None);
        Ok(())
    }

    /// `x W`, without what is added to it.
    pub(super) fn product(&self, kernels: Kernels, x: Tensor<2>) -> Tensor<2> {
        match &self.quantised {
            Some(quantised) => quantised.product(kernels, x),
            None => kernels.matmul(x, self.matrix()),
        }
    }

    /// # Shapes
    /// `x`: `[n, inputs]`; returns `[n, outputs]`.
    pub(crate) fn forward(&self, kernels: Kernels, x: Tensor<2>) -> Tensor<2> {
        let y = self.product(kernels, x.clone());
        let y = match &self.bias {
            Some(bias) => y + bias.val().unsqueeze(),
            None => y,
        };
        match &self.low_rank {
            Some(low_rank) => {
                let LowRank { a, b, .. } = low_rank;
                let mask = low_rank.mask_of(&x);
                let x = masked(x, mask.as_ref());
                y + kernels.matmul(kernels.matmul(x, a.val()), b.val()) * low_rank.factor()
            }
            None => y,
        }
    }
}

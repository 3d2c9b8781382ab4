//! A decoder arranged for what it does next: the type of its matrices, those that are joined, and their order in memory.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Tensor};

#[cfg(feature = "gpu")]
use super::super::Kernels;
#[cfg(feature = "gpu")]
use super::super::layer::Layer;
use super::super::layer::{Projection, projections};
use super::super::linear::LOW_RANK;
use super::super::{ModelConfig, host};
use super::Decoder;
use crate::device::is_processor;

impl Decoder {
    /// A copy of all weights for training to compute with, of type `dtype`. Matrices with the same input are joined where the
    /// device has kernels for it, so that gradients have to be [`Self::separate`]d.
    #[must_use]
    pub(crate) fn copy_to_train(&self, dtype: DType) -> Self {
        let copy = self.clone().map(&mut Cast(dtype));
        #[cfg(feature = "gpu")]
        if copy.model.layers.iter().all(Layer::trains_joined) {
            return copy.sharing_base(dtype).joined();
        }
        copy
    }

    /// The same model, where it is adapted with the frozen matrices joined that have the same input, if the device has kernels for it and
    /// they are of type `dtype` or of 8 bits: [`Self::copy_to_train`] and generation take them as they are then. Nothing is held
    /// twice; copies that were made before keep what they have.
    #[must_use]
    pub(crate) fn sharing_base(self, dtype: DType) -> Self {
        #[cfg(feature = "gpu")]
        if self.kernels() == Kernels::Cube && self.is_adapted() {
            let mut sharing = self;
            let layers = &mut sharing.model.layers;
            for layer in layers.iter_mut().filter(|layer| layer.trains_joined()) {
                layer.share_base(dtype);
            }
            return sharing;
        }
        let _ = dtype;
        self
    }

    /// Lets go of joined matrices, before those of the maps change.
    pub(crate) fn forget_joined(&mut self) {
        #[cfg(feature = "gpu")]
        self.model.layers.iter_mut().for_each(Layer::forget_joined);
        #[cfg(not(feature = "gpu"))]
        let _ = self;
    }

    /// One flat gradient per parameter from the gradients of a decoder that may be joined.
    pub(crate) fn separate(
        &self,
        gradients: &mut BTreeMap<String, Tensor<1>>,
        config: &ModelConfig,
    ) {
        #[cfg(feature = "gpu")]
        super::super::cube::separate(gradients, self, config);
        let _ = (gradients, config);
    }

    /// The same model, arranged for generation. On the processor, matrices with many inputs go row by output, where few tokens
    /// are multiplied twice as fast. Elsewhere, a decoder whose matrices are kept in half precision computes in it, and with `bf16`
    /// one whose matrices are kept in f32 gets a copy of them in bf16.
    #[must_use]
    pub(crate) fn for_inference(self, bf16: bool) -> Self {
        let embedding = self.model.embed_tokens.weight.val();
        if is_processor(&self.device()) {
            return self.arranged();
        }
        let cast = match embedding.dtype() {
            dtype @ (DType::BF16 | DType::F16) => self.map(&mut Cast(dtype)),
            _ if bf16 => self.map(&mut Cast(DType::BF16)),
            _ => self,
        };
        cast.joined()
    }

    /// The model with matrices of the same input joined, where the device has kernels for it.
    fn joined(self) -> Self {
        #[cfg(feature = "gpu")]
        if self.kernels() == Kernels::Cube {
            let mut joined = self;
            joined.model.layers.iter_mut().for_each(Layer::join);
            return joined;
        }
        self
    }

    /// The model arranged for generation: on the processor, with its wide matrices in the order that generation wants; elsewhere
    /// unchanged. A frozen base that is arranged once is shared by training and generation.
    #[must_use]
    pub(crate) fn arranged(self) -> Self {
        if is_processor(&self.device()) {
            self.map(&mut Arrange::default())
        } else {
            self
        }
    }

    /// Numbers of the matrices that [`Self::arranged`] copies.
    pub(crate) fn arranged_numbers(config: &ModelConfig) -> usize {
        let wide = |inputs: usize| inputs >= ARRANGED_INPUTS;
        let maps = projections(config)
            .into_iter()
            .filter(|map| wide(map.inputs));
        let layer: usize = maps.map(Projection::numbers).sum();
        let head = !config.tie_word_embeddings && wide(config.hidden_size);
        let head = usize::from(head) * config.vocab_size * config.hidden_size;
        config.num_hidden_layers * layer + head
    }
}

/// See [`Decoder::arranged`].
#[derive(Default)]
struct Arrange {
    /// Inside the embedding, whose rows are looked up and which is in the right order for a tied head, or inside a low-rank
    /// change, which is narrow.
    left: bool,
}

/// Inputs from which on a matrix is arranged: below, the product over neighbouring outputs is the faster one.
const ARRANGED_INPUTS: usize = 768;

impl ModuleMapper for Arrange {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.left |= name == "embed_tokens" || name == LOW_RANK;
    }

    fn exit_module(&mut self, name: &str, _container_type: &str) {
        self.left &= name != "embed_tokens" && name != LOW_RANK;
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let wide = D == 2 && param.val().dims()[0] >= ARRANGED_INPUTS;
        if self.left || !wide {
            return param;
        }
        param.map(host::by_output)
    }
}

/// See [`Decoder::for_inference`].
struct Cast(DType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|weight| weight.cast(self.0))
    }
}

//! The decoder: field names are those of Hugging Face, so that checkpoints map onto them without a table.

mod arranged;

use std::sync::Arc;

use burn::module::{Module, Param, ParamId};
use burn::nn::{Embedding, EmbeddingConfig, RmsNorm};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use super::attend::Heads;
use super::dense::Dense;
use super::dropout::{Dropout, Mask};
use super::layer::{Attention, Layer, Mlp, norm};
use super::linear::Linear;
use super::quantised::BLOCK_INPUTS;
use super::{Batch, Kernels, KvCache, LayerSizes, ModelConfig, Pass, RopeTables};
use crate::device::DeviceError;

/// The name of the head in checkpoints.
pub(crate) const HEAD: &str = "lm_head";

#[derive(Module, Debug)]
struct Backbone {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
}

/// A matrix that cannot be cut into blocks of 8 bits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} has {inputs} inputs, and 8 bits take multiples of {BLOCK_INPUTS}; choose bf16")]
pub(crate) struct QuantiseError {
    name: String,
    inputs: usize,
}

/// A dense decoder.
#[derive(Module, Debug)]
pub struct Decoder {
    model: Backbone,
    lm_head: Option<Linear>,
}

impl Decoder {
    /// Waits until the device of the weights has done what it was asked to.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] with the words of the runtime.
    pub fn wait(&self) -> Result<(), DeviceError> {
        let done = self.device().sync();
        done.map_err(|error| DeviceError::Lost(error.to_string()))
    }

    /// Returns whether the device of the weights computes with tensors of bf16.
    pub fn has_bf16(&self) -> bool {
        self.device().supports_dtype(DType::BF16)
    }

    /// A decoder of the given shape with Burn's own initial values; see [`Decoder::random`] for seeded ones.
    pub(crate) fn new(config: &ModelConfig, device: &Device) -> Self {
        let hidden = config.hidden_size;
        let embed_tokens = EmbeddingConfig::new(config.vocab_size, hidden).init(device);
        let layers = (0..config.num_hidden_layers)
            .map(|_| Layer::new(config, device))
            .collect();
        let norm = norm(hidden, config, device);
        let head = || Linear::new(hidden, config.vocab_size, false, device);
        let lm_head = (!config.tie_word_embeddings).then(head);
        Self {
            model: Backbone {
                embed_tokens,
                layers,
                norm,
            },
            lm_head,
        }
    }

    /// Final hidden states of whole sequences, each attending to itself causally.
    ///
    /// # Shapes
    /// Returns `[tokens, hidden]`, in the order of the batch.
    pub(crate) fn hidden(
        &self,
        config: &ModelConfig,
        rope: &RopeTables,
        batch: &Batch,
    ) -> Tensor<2> {
        let dense = Dense::new(config, rope, batch, self);
        let layers = (0..self.depth()).map(|index| self.layer(index));
        let x = layers.fold(self.embed(batch.ids()), |x, layer| {
            layer.keep(x, config, &dense, false).1
        });
        self.finish(x)
    }

    /// Hidden states of whole sequences after each layer, the final norm aside: `[layer]` of `[tokens, hidden]`, in the order of the batch.
    pub(crate) fn states(
        &self,
        config: &ModelConfig,
        rope: &RopeTables,
        batch: &Batch,
    ) -> Vec<Tensor<2>> {
        let dense = Dense::new(config, rope, batch, self);
        let layers = (0..self.depth()).map(|index| self.layer(index));
        let after = layers.scan(self.embed(batch.ids()), |x, layer| {
            *x = layer.keep(x.clone(), config, &dense, false).1;
            Some(x.clone())
        });
        after.collect()
    }

    /// Final hidden states of new tokens that continue sequences in `cache`.
    ///
    /// # Shapes
    /// Returns `[tokens of the pass, hidden]`, in the order of the pass.
    pub(crate) fn hidden_cached(
        &self,
        config: &ModelConfig,
        rope: &RopeTables,
        pass: &Pass<'_>,
        cache: &mut KvCache,
    ) -> Tensor<2> {
        let mut pass = pass.clone();
        cache.pad(&mut pass);
        cache
            .hidden(self, config, rope, &pass)
            .narrow(0, 0, pass.tokens())
    }

    /// Final hidden states of tokens, `[n, hidden]`, on the processor; `attend` makes the mixed values of a layer of its heads.
    pub(super) fn run(
        &self,
        config: &ModelConfig,
        ids: &[i32],
        mut attend: impl FnMut(usize, Heads) -> Tensor<2>,
    ) -> Tensor<2> {
        let kernels = self.kernels();
        let mut x = self.embed(ids);
        for index in 0..self.depth() {
            let layer = self.layer(index);
            let heads = layer.norm_heads(kernels, layer.project(kernels, x.clone(), config));
            x = layer.lower(kernels, layer.gate(kernels, x, attend(index, heads)));
        }
        self.finish(x)
    }

    /// Token ids are below this.
    pub(crate) fn vocab_size(&self) -> usize {
        self.model.embed_tokens.weight.lazy_shape()[0]
    }

    /// Number of layers.
    pub(crate) fn depth(&self) -> usize {
        self.model.layers.len()
    }

    /// Input of the first layer, `[n, hidden]`.
    pub(crate) fn embed(&self, ids: &[i32]) -> Tensor<2> {
        let weight = self.model.embed_tokens.weight.val();
        let ids = Tensor::<1, Int>::from_ints(ids, &weight.device());
        // Embeddings may be kept in half precision beside norms in single precision: those say what is computed in.
        weight.select(0, ids).cast(self.dtype())
    }

    /// `[vocab, hidden]`.
    pub(crate) fn embedding(&self) -> Tensor<2> {
        self.model.embed_tokens.weight.val()
    }

    /// Layer `index`.
    pub(crate) fn layer(&self, index: usize) -> &Layer {
        &self.model.layers[index]
    }

    /// The norm after the last layer.
    pub(crate) fn norm(&self) -> &RmsNorm {
        &self.model.norm
    }

    /// The matrix of [`Self::logits`], unless it is the embedding.
    pub(crate) fn lm_head(&self) -> Option<&Linear> {
        self.lm_head.as_ref()
    }

    /// The model with an output head of its own: a tied embedding also gets the head's name. Nothing is copied.
    #[must_use]
    pub(crate) fn untied(mut self) -> Self {
        if self.lm_head.is_none() {
            let mut head = Linear::new(1, 1, false, &self.device());
            head.set_matrix(self.embedding().transpose());
            self.lm_head = Some(head);
        }
        self
    }

    /// The model with other logits: its last norm and the matrix of its logits times `factor`.
    #[must_use]
    pub(crate) fn scaled(mut self, factor: f64) -> Self {
        self.model.norm.gamma = self.model.norm.gamma.map(|gamma| gamma * factor);
        if let Some(head) = &mut self.lm_head {
            head.set_matrix(head.matrix() * factor);
        } else {
            let embedding = self.model.embed_tokens.weight;
            self.model.embed_tokens.weight = embedding.map(|matrix| matrix * factor);
        }
        self
    }

    /// The model with a value head in place of its output head: a linear map to one number, in f32. `weight`: `[hidden]`.
    #[must_use]
    pub(crate) fn with_value_head(mut self, weight: Vec<f32>, bias: f32) -> Self {
        let (device, inputs) = (self.device(), weight.len());
        let mut head = Linear::new(inputs, 1, true, &device);
        let weight = TensorData::new(weight, [inputs, 1]);
        head.set_matrix(Tensor::from_data(weight, (&device, DType::F32)));
        let bias = Tensor::from_data(TensorData::new(vec![bias], [1]), (&device, DType::F32));
        head.bias = Some(Param::initialized(ParamId::new(), bias));
        self.lm_head = Some(head);
        self
    }

    /// The model without an output head of its own.
    #[must_use]
    pub(crate) fn without_head(mut self) -> Self {
        self.lm_head = None;
        self
    }

    /// Hidden states of the last layer's output.
    pub(crate) fn finish(&self, x: Tensor<2>) -> Tensor<2> {
        self.kernels().normalise(&self.model.norm, x)
    }

    /// Logits `[n, vocab]` of hidden states `[n, hidden]`.
    pub(crate) fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        match &self.lm_head {
            Some(head) => head.forward(self.kernels(), hidden),
            None => self.kernels().matmul(hidden, self.embedding().transpose()),
        }
    }

    /// The logits in f32, whatever the type of the hidden states, for losses and sampling.
    pub(crate) fn precise_logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        if hidden.dtype() == DType::F32 {
            return self.logits(hidden);
        }
        #[cfg(feature = "gpu")]
        if self.kernels() == Kernels::Cube {
            let (matrix, low_rank) = match &self.lm_head {
                Some(head) => (head.matrix(), head.low_rank.as_ref()),
                None => (self.embedding().transpose(), None),
            };
            let logits = super::cube::product_in_f32(hidden.clone(), matrix);
            let Some(change) = low_rank else {
                return logits;
            };
            // The change alone is computed in f32: a head is too large to be widened for each pass.
            let inner = Kernels::Cube.matmul(hidden.cast(DType::F32), change.a.val());
            return logits + Kernels::Cube.matmul(inner, change.b.val()) * change.factor();
        }
        self.logits(hidden.cast(DType::F32)).cast(DType::F32)
    }

    /// The type that the decoder computes in.
    pub(crate) fn dtype(&self) -> DType {
        self.model.norm.gamma.val().dtype()
    }

    /// Returns true where any linear map has a low-rank change.
    pub(crate) fn is_adapted(&self) -> bool {
        self.clone()
            .linears()
            .iter()
            .any(|(_, linear)| linear.low_rank.is_some())
    }

    /// Returns true where any matrix is kept in 8 bits.
    pub(crate) fn is_quantised(&self) -> bool {
        self.clone()
            .linears()
            .iter()
            .any(|(_, linear)| linear.is_quantised())
    }

    /// The base without its adapter: the reference policy of a run that trains one, without a second copy.
    #[must_use]
    pub(crate) fn without_adapter(mut self) -> Self {
        for (_, linear) in self.linears() {
            linear.low_rank = None;
        }
        self
    }

    /// A copy that learns from the rows of one batch with dropout; its adapted head, if it has one, drops nothing. `rows`: the keys of
    /// the rows ([`Batch::keys`]).
    #[must_use]
    pub(crate) fn dropping(&self, dropout: Dropout, rows: Vec<u64>) -> Self {
        let (mut copy, rows): (Self, Arc<[u64]>) = (self.clone(), rows.into());
        for (name, linear) in copy.linears() {
            if let Some(low_rank) = linear.low_rank.as_mut().filter(|_| name != HEAD) {
                low_rank.mask = Some(Mask::new(dropout, &name, &rows));
            }
        }
        copy
    }

    /// Every linear map by its name in checkpoints; the head has one where it is not tied.
    pub(crate) fn linears(&mut self) -> Vec<(String, &mut Linear)> {
        let mut all = Vec::new();
        for (index, layer) in self.model.layers.iter_mut().enumerate() {
            let Attention {
                q_proj,
                k_proj,
                v_proj,
                o_proj,
                ..
            } = &mut layer.self_attn;
            for (name, linear) in [
                ("q_proj", q_proj),
                ("k_proj", k_proj),
                ("v_proj", v_proj),
                ("o_proj", o_proj),
            ] {
                all.push((format!("model.layers.{index}.self_attn.{name}"), linear));
            }
            let Mlp {
                gate_proj,
                up_proj,
                down_proj,
            } = &mut layer.mlp;
            for (name, linear) in [
                ("gate_proj", gate_proj),
                ("up_proj", up_proj),
                ("down_proj", down_proj),
            ] {
                all.push((format!("model.layers.{index}.mlp.{name}"), linear));
            }
        }
        all.extend(self.lm_head.iter_mut().map(|head| (HEAD.to_owned(), head)));
        all
    }

    /// Keeps the matrices of the layers in 8 bits, each as soon as `fill` has given it its numbers: they are never all there in
    /// full.
    ///
    /// # Errors
    /// [`QuantiseError`], which names the matrix.
    pub(crate) fn quantise_layers(
        &mut self,
        mut fill: impl FnMut(&str, Linear) -> Linear,
    ) -> Result<(), QuantiseError> {
        // Asking for the embedding itself would draw random numbers.
        let device = self.model.embed_tokens.weight.lazy_device();
        for (name, linear) in self.linears().into_iter().filter(|(name, _)| name != HEAD) {
            let taken = std::mem::replace(linear, Linear::new(1, 1, false, &device));
            *linear = fill(&name, taken);
            linear
                .quantise()
                .map_err(|inputs| QuantiseError { name, inputs })?;
        }
        Ok(())
    }

    /// The kernels of the decoder's device and type.
    pub(crate) fn kernels(&self) -> Kernels {
        Kernels::of_type(&self.device(), self.dtype())
    }

    /// Numbers that training holds of a layer.
    pub(crate) fn layer_sizes(&self, config: &ModelConfig) -> LayerSizes {
        #[cfg(feature = "gpu")]
        if self.kernels() == Kernels::Cube {
            let layers = &self.model.layers;
            let joined = layers.iter().all(Layer::is_joined);
            let ranks = layers.iter().map(Layer::ranks).max().unwrap_or(0);
            return LayerSizes::on_card(config, joined.then_some(ranks));
        }
        LayerSizes::of(config)
    }

    /// The device the weights are on.
    pub fn device(&self) -> Device {
        self.model.embed_tokens.weight.val().device()
    }
}

//! Gradients layer by layer, so that memory holds one layer's middle whatever the depth.
//!
//! A forward pass keeps what enters each layer and what its attention gives. Log-probabilities come from it in chunks of
//! tokens, and the derivative of the loss by them goes back through the softmax. Then, from the last layer down, one layer
//! at a time is computed again and the gradient goes back through it (activation checkpointing, Chen et al. 2016, with every
//! layer a segment). Every derivative is written out, for no graph has to be built and walked then; tests hold them equal to
//! one graph of Burn's autodiff through the whole decoder, and to PyTorch.

mod parts;

use burn::nn::RmsNorm;
use burn::tensor::{IndexingUpdateOp, Int, Tensor};

use crate::grads::NamedGrads;
use crate::logprobs::{Scores, Slopes, Targets};
use crate::model::{
    Batch, Decoder, Dense, Heads, Linear, ModelConfig, RopeTables, normalise, split, swiglu, swiglu_backward,
};
use crate::sequence::Sequence;
use parts::Parameters;

/// Gradient of a loss of the log-probabilities of `sequences`, and what else `loss` returned; `None` when no sequence has
/// a target.
///
/// `decoder` is on a plain device; beside an adapter its base gets no gradients. `loss` is given log-probabilities and entropies of
/// all targets, in order, and returns the derivative of the loss by each.
pub fn gradients<T>(
    decoder: &Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    sequences: &[&Sequence],
    temperature: f32,
    loss: impl FnOnce(&Scores) -> (Slopes, T),
) -> Option<(NamedGrads, T)> {
    let rows: Vec<&[u32]> = sequences.iter().map(|sequence| sequence.ids.as_slice()).collect();
    let targets = Targets::of(sequences)?;
    let batch = Batch::new(&rows);
    let device = decoder.device();
    let dense = Dense::new(config, rope, &batch, &device);
    let (mut kept, last) = forward(decoder, config, &batch, &dense);
    // Only rows that predict a target reach the head.
    let all = last.zeros_like();
    let last = last.select(0, targets.rows(&device));
    let picked = decoder.finish(last.clone());
    let (slopes, rest) = loss(&targets.logprobs(decoder, &picked, temperature).scores());

    let mut backward = Backward { decoder, config, dense: &dense, parameters: Parameters::of(decoder) };
    let slope = backward.head(&targets, &picked, &slopes, temperature);
    let slope = backward.parameters.norm("model.norm", decoder.norm(), last, slope);
    let mut slope = all.select_assign(0, targets.rows(&device), slope, IndexingUpdateOp::Add);
    while let Some(layer) = kept.pop() {
        slope = backward.layer(kept.len(), layer, slope);
    }
    backward.embed(&batch, slope);
    Some((backward.parameters.total, rest))
}

/// What the forward pass keeps of a layer.
struct Kept {
    /// `[n, hidden]`: what enters it.
    input: Tensor<2>,
    /// `[n, heads * head_dim]`: what its attention gives.
    mixed: Tensor<2>,
}

/// One for each layer, and what the last one gives.
fn forward(decoder: &Decoder, config: &ModelConfig, batch: &Batch, dense: &Dense) -> (Vec<Kept>, Tensor<2>) {
    let mut input = decoder.embed(batch.ids());
    let mut kept = Vec::new();
    for index in 0..decoder.depth() {
        let layer = decoder.layer(index);
        let mixed = dense.mix(&dense.rotate(layer.project(input.clone(), config)));
        let output = layer.merge(input.clone(), mixed.clone());
        kept.push(Kept { input, mixed });
        input = output;
    }
    (kept, input)
}

/// Name of the embedding, which is the head as well where that is tied.
const EMBEDDING: &str = "model.embed_tokens.weight";

struct Backward<'a> {
    decoder: &'a Decoder,
    config: &'a ModelConfig,
    dense: &'a Dense,
    parameters: Parameters,
}

impl Backward<'_> {
    /// Pushes `slopes` back through softmax and head: the gradient by the hidden states `picked`, `[targets, hidden]`.
    fn head(&mut self, targets: &Targets, picked: &Tensor<2>, slopes: &Slopes, temperature: f32) -> Tensor<2> {
        let mut parts = Vec::new();
        for chunk in targets.chunks(self.decoder.vocab_size()) {
            let hidden = picked.clone().narrow(0, chunk.start, chunk.len());
            let slope = targets.slope(&chunk, self.decoder.logits(hidden.clone()), slopes, temperature);
            parts.push(match self.decoder.lm_head() {
                Some(head) => self.parameters.linear("lm_head", head, hidden, slope),
                None => self.tied(hidden, slope),
            });
        }
        Tensor::cat(parts, 0)
    }

    /// Through the embedding as the head.
    fn tied(&mut self, hidden: Tensor<2>, slope: Tensor<2>) -> Tensor<2> {
        let weight = self.decoder.embedding();
        if self.parameters.base_learns() {
            self.parameters.add(EMBEDDING.to_owned(), slope.clone().transpose().matmul(hidden));
        }
        slope.clone().matmul(weight.cast(slope.dtype()))
    }

    /// Through layer `index`, whose result has gradient `slope`: the gradient by its input.
    fn layer(&mut self, index: usize, Kept { input, mixed }: Kept, slope: Tensor<2>) -> Tensor<2> {
        let slope = self.feed_forward(
            index,
            input.clone() + self.decoder.layer(index).self_attn.o_proj.forward(mixed.clone()),
            slope,
        );
        let path = format!("model.layers.{index}.self_attn.o_proj");
        let by_mixed =
            self.parameters.linear(&path, &self.decoder.layer(index).self_attn.o_proj, mixed.clone(), slope.clone());
        slope + self.attention(index, input, &mixed, &by_mixed)
    }

    /// Through the gated half, whose input is `x`.
    fn feed_forward(&mut self, index: usize, x: Tensor<2>, slope: Tensor<2>) -> Tensor<2> {
        let (layer, path) = (self.decoder.layer(index), format!("model.layers.{index}"));
        let mlp = |name: &str| format!("{path}.mlp.{name}_proj");
        let normed = normalise(&layer.post_attention_layernorm, x.clone());
        let (gate, up) = (layer.mlp.gate_proj.forward(normed.clone()), layer.mlp.up_proj.forward(normed.clone()));
        let activation = swiglu(gate.clone(), up.clone());
        let by_activation = self.parameters.linear(&mlp("down"), &layer.mlp.down_proj, activation, slope.clone());
        let (by_gate, by_up) = swiglu_backward(gate, up, by_activation);
        let by_normed = self.parameters.linear(&mlp("gate"), &layer.mlp.gate_proj, normed.clone(), by_gate)
            + self.parameters.linear(&mlp("up"), &layer.mlp.up_proj, normed, by_up);
        let path = format!("{path}.post_attention_layernorm");
        slope + self.parameters.norm(&path, &layer.post_attention_layernorm, x, by_normed)
    }

    /// Through attention and its projections of the layer's input: the gradient by that from `slope`, the one by the mixed
    /// values.
    fn attention(&mut self, index: usize, input: Tensor<2>, mixed: &Tensor<2>, slope: &Tensor<2>) -> Tensor<2> {
        let (layer, path) = (self.decoder.layer(index), format!("model.layers.{index}"));
        let (attention, at) = (&layer.self_attn, |name: &str| format!("{path}.self_attn.{name}"));
        let x = normalise(&layer.input_layernorm, input.clone());
        let project = |map: &Linear| map.forward(x.clone());
        let plain =
            split(self.config, project(&attention.q_proj), project(&attention.k_proj), project(&attention.v_proj));
        let normed = |norm: &Option<RmsNorm>, x: &Tensor<3>| match norm {
            Some(norm) => normalise(norm, x.clone()),
            None => x.clone(),
        };
        let rotated = self.dense.rotate(Heads {
            queries: normed(&attention.q_norm, &plain.queries),
            keys: normed(&attention.k_norm, &plain.keys),
            values: plain.values,
        });
        let slopes = self.dense.rotate_backward(self.dense.mix_backward(&rotated, mixed, slope));
        drop(rotated);
        let mut through = |name: &str, norm: &Option<RmsNorm>, x: Tensor<3>, slope| match norm {
            Some(norm) => self.parameters.norm(&at(name), norm, x, slope),
            None => slope,
        };
        let by_queries = through("q_norm", &attention.q_norm, plain.queries, slopes.queries);
        let by_keys = through("k_norm", &attention.k_norm, plain.keys, slopes.keys);
        let mut through = |name: &str, map: &Linear, slope: Tensor<3>| {
            self.parameters.linear(&at(name), map, x.clone(), slope.flatten::<2>(1, 2))
        };
        let by_x = through("q_proj", &attention.q_proj, by_queries)
            + through("k_proj", &attention.k_proj, by_keys)
            + through("v_proj", &attention.v_proj, slopes.values);
        self.parameters.norm(&format!("{path}.input_layernorm"), &layer.input_layernorm, input, by_x)
    }

    /// Into the rows of the embedding, unless it is frozen.
    fn embed(&mut self, batch: &Batch, slope: Tensor<2>) {
        if self.parameters.base_learns() {
            let shape = self.decoder.embedding().shape();
            let ids = Tensor::<1, Int>::from_ints(batch.ids(), &slope.device());
            let before = match self.parameters.total.0.remove(EMBEDDING) {
                Some(head) => head.reshape(shape),
                None => Tensor::zeros(shape, (&slope.device(), slope.dtype())),
            };
            self.parameters.add(EMBEDDING.to_owned(), before.select_assign(0, ids, slope, IndexingUpdateOp::Add));
        }
    }
}

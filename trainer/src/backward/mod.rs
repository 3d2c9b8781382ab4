//! Gradients layer by layer, so that memory holds one layer's activations whatever the depth.
//!
//! A forward pass keeps what enters each layer and what its attention gives, and the activations of as many layers as fit a fixed
//! room. Log-probabilities come from it in chunks of tokens, and the derivative of the loss by them goes back through the
//! softmax. Then, from the last layer down, the activations of one layer at a time is computed again where it was not kept, and the
//! gradient goes back through it (activation checkpointing, Chen et al. 2016, with every layer a segment). Every derivative is written out, for no graph has to be built and walked then; tests hold them equal to
//! one graph of Burn's autodiff through the whole decoder, and to `PyTorch`.

mod parts;

use burn::nn::RmsNorm;
use burn::tensor::{IndexingUpdateOp, Int, Tensor};

use crate::device::Workspace;
use crate::grads::NamedGrads;
use crate::logprobs::{Logits, ScoreGrads, Scores, Targets};
use crate::model::{
    Batch, Decoder, Dense, Gated, Heads, Linear, ModelConfig, RopeTables, normalise, product, swiglu, swiglu_backward,
};
use crate::sequence::{Sequence, ids};
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
    loss: impl FnOnce(&Scores) -> (ScoreGrads, T),
) -> Option<(NamedGrads, T)> {
    within(Workspace::of(&decoder.device()).kept_bytes, decoder, config, rope, sequences, temperature, loss)
}

/// [`gradients`] with `room` bytes for activations.
fn within<T>(
    room: usize,
    decoder: &Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    sequences: &[&Sequence],
    temperature: f32,
    loss: impl FnOnce(&Scores) -> (ScoreGrads, T),
) -> Option<(NamedGrads, T)> {
    let batch = Batch::new(&ids(sequences.iter().copied()));
    let device = decoder.device();
    let targets = Targets::of(sequences, &batch, &device)?;
    let dense = Dense::new(config, rope, &batch, &device);
    let (mut kept, last) = forward(decoder, config, &batch, &dense, room);
    // Only rows that predict a target reach the head.
    let all = last.zeros_like();
    let last = last.select(0, targets.rows(&device));
    let picked = decoder.finish(last.clone());
    let mut logits = Logits::new(&targets, decoder, &picked);
    let (grads, rest) = loss(&targets.logprobs(&logits, temperature).scores());

    let mut backward = Backward { decoder, config, dense: &dense, parameters: Parameters::of(decoder) };
    let grad = backward.head(&targets, &mut logits, &grads, temperature);
    let grad = backward.parameters.norm("model.norm", decoder.norm(), last, grad);
    let mut grad = all.select_assign(0, targets.rows(&device), grad, IndexingUpdateOp::Add);
    while let Some(layer) = kept.pop() {
        grad = backward.layer(kept.len(), layer, grad);
    }
    backward.embed(&batch, grad);
    Some((backward.parameters.total, rest))
}

/// What the forward pass keeps of a layer.
struct Kept {
    /// `[n, hidden]`: what enters it.
    input: Tensor<2>,
    /// `[n, heads * head_dim]`: what its attention gives.
    mixed: Tensor<2>,
    /// What else its derivative needs, where there is room for it.
    activations: Option<(Heads, Gated)>,
}

/// Bytes of a layer's activations.
pub(crate) fn activation_bytes(config: &ModelConfig, tokens: usize) -> usize {
    let heads = (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim;
    tokens * (heads + config.hidden_size + 2 * config.intermediate_size) * size_of::<f32>()
}

/// One for each layer, and what the last one gives.
fn forward(
    decoder: &Decoder,
    config: &ModelConfig,
    batch: &Batch,
    dense: &Dense,
    room: usize,
) -> (Vec<Kept>, Tensor<2>) {
    let mut input = decoder.embed(batch.ids());
    let mut kept = Vec::new();
    // The last ones: what is kept of them is gone before the others are computed again.
    let first = decoder.depth().saturating_sub(room / activation_bytes(config, batch.ids().len()));
    for index in 0..decoder.depth() {
        let layer = decoder.layer(index);
        let heads = layer.project(input.clone(), config);
        let mixed = dense.mix(&dense.rotate(layer.normed(heads.clone())));
        let gated = layer.gate(input.clone(), mixed.clone());
        let activations = (index >= first).then(|| (heads, gated.clone()));
        kept.push(Kept { input, mixed, activations });
        input = layer.lower(gated);
    }
    (kept, input)
}

/// Name of the embedding, which is the head as well where that is tied.
const EMBEDDING: &str = "model.embed_tokens.weight";

/// The last matrix of a decoder.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on the stack")]
enum Head<'a> {
    Own(&'a Linear),
    /// The embedding, `[vocab, hidden]`, in the precision of what is computed.
    Tied(Tensor<2>),
}

struct Backward<'a> {
    decoder: &'a Decoder,
    config: &'a ModelConfig,
    dense: &'a Dense,
    parameters: Parameters,
}

impl Backward<'_> {
    /// Pushes `grads` back through softmax and head: the gradient by the hidden states under it, `[targets, hidden]`.
    fn head(&mut self, targets: &Targets, logits: &mut Logits, grads: &ScoreGrads, temperature: f32) -> Tensor<2> {
        // A matrix kept in half precision is widened once.
        let tied = || Head::Tied(self.decoder.embedding().cast(logits.hidden.dtype()));
        let head = self.decoder.lm_head().map_or_else(tied, Head::Own);
        let mut parts = Vec::new();
        for chunk in targets.chunks(self.decoder.vocab_size()) {
            let hidden = logits.hidden.clone().narrow(0, chunk.start, chunk.len());
            let grad = targets.grad(&chunk, logits.take(&chunk), grads, temperature);
            parts.push(match &head {
                Head::Own(map) => self.parameters.linear("lm_head", map, hidden, grad),
                Head::Tied(weight) => self.tied(weight, hidden, grad),
            });
        }
        Tensor::cat(parts, 0)
    }

    /// Through the embedding as the head.
    fn tied(&mut self, weight: &Tensor<2>, hidden: Tensor<2>, grad: Tensor<2>) -> Tensor<2> {
        if self.parameters.base_learns() {
            self.parameters.add(EMBEDDING.to_owned(), product(grad.clone().transpose(), hidden));
        }
        product(grad, weight.clone())
    }

    /// Through layer `index`, whose result has gradient `grad`: the gradient by its input.
    fn layer(&mut self, index: usize, Kept { input, mixed, activations }: Kept, grad: Tensor<2>) -> Tensor<2> {
        let layer = self.decoder.layer(index);
        let (heads, gated) = activations.unzip();
        let gated = gated.unwrap_or_else(|| layer.gate(input.clone(), mixed.clone()));
        let grad = self.feed_forward(index, gated, grad);
        let path = format!("model.layers.{index}.self_attn.o_proj");
        let by_mixed = self.parameters.linear(&path, &layer.self_attn.o_proj, mixed.clone(), grad.clone());
        let heads = heads.unwrap_or_else(|| layer.project(input.clone(), self.config));
        grad + self.attention(index, input, heads, &mixed, &by_mixed)
    }

    /// Through the feed-forward part, whose input is `x`: the gradient by that.
    fn feed_forward(&mut self, index: usize, Gated { x, gate, up }: Gated, grad: Tensor<2>) -> Tensor<2> {
        let (layer, path) = (self.decoder.layer(index), format!("model.layers.{index}"));
        let mut through = |name: &str, map: &Linear, x: Tensor<2>, grad: Tensor<2>| {
            self.parameters.linear(&format!("{path}.mlp.{name}_proj"), map, x, grad)
        };
        let activation = swiglu(gate.clone(), up.clone());
        let by_activation = through("down", &layer.mlp.down_proj, activation, grad.clone());
        let (by_gate, by_up) = swiglu_backward(gate, up, by_activation);
        let normed = normalise(&layer.post_attention_layernorm, x.clone());
        let by_normed = through("gate", &layer.mlp.gate_proj, normed.clone(), by_gate)
            + through("up", &layer.mlp.up_proj, normed, by_up);
        let path = format!("{path}.post_attention_layernorm");
        grad + self.parameters.norm(&path, &layer.post_attention_layernorm, x, by_normed)
    }

    /// Through attention and the projections `plain` of the layer's input: the gradient by that from `grad`, the one by the
    /// mixed values.
    fn attention(
        &mut self,
        index: usize,
        input: Tensor<2>,
        plain: Heads,
        mixed: &Tensor<2>,
        grad: &Tensor<2>,
    ) -> Tensor<2> {
        let (layer, path) = (self.decoder.layer(index), format!("model.layers.{index}"));
        let (attention, at) = (&layer.self_attn, |name: &str| format!("{path}.self_attn.{name}"));
        let rotated = self.dense.rotate(layer.normed(plain.clone()));
        let grads = self.dense.rotate_backward(self.dense.mix_backward(&rotated, mixed, grad));
        drop(rotated);
        let mut through = |name: &str, norm: &Option<RmsNorm>, x: Tensor<3>, grad| match norm {
            Some(norm) => self.parameters.norm(&at(name), norm, x, grad),
            None => grad,
        };
        let by_queries = through("q_norm", &attention.q_norm, plain.queries, grads.queries);
        let by_keys = through("k_norm", &attention.k_norm, plain.keys, grads.keys);
        let x = normalise(&layer.input_layernorm, input.clone());
        let mut through = |name: &str, map: &Linear, grad: Tensor<3>| {
            self.parameters.linear(&at(name), map, x.clone(), grad.flatten::<2>(1, 2))
        };
        let by_x = through("q_proj", &attention.q_proj, by_queries)
            + through("k_proj", &attention.k_proj, by_keys)
            + through("v_proj", &attention.v_proj, grads.values);
        self.parameters.norm(&format!("{path}.input_layernorm"), &layer.input_layernorm, input, by_x)
    }

    /// Into the rows of the embedding, unless it is frozen.
    fn embed(&mut self, batch: &Batch, grad: Tensor<2>) {
        if self.parameters.base_learns() {
            let shape = self.decoder.embedding().shape();
            let ids = Tensor::<1, Int>::from_ints(batch.ids(), &grad.device());
            let before = match self.parameters.total.0.remove(EMBEDDING) {
                Some(head) => head.reshape(shape),
                None => Tensor::zeros(shape, (&grad.device(), grad.dtype())),
            };
            self.parameters.add(EMBEDDING.to_owned(), before.select_assign(0, ids, grad, IndexingUpdateOp::Add));
        }
    }
}

#[cfg(test)]
mod tests {
    use forage_env::seed::Seed;

    use super::*;
    use crate::model::{Architecture, init_random};

    fn config() -> ModelConfig {
        ModelConfig {
            architecture: Architecture::Qwen3,
            vocab_size: 50,
            hidden_size: 24,
            intermediate_size: 40,
            num_hidden_layers: 3,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 8,
            max_position_embeddings: 32,
            rope_theta: 100.0,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
        }
    }

    /// Gradients of the sum of all log-probabilities, weighed by their place in their sequence.
    fn found(room: usize, sequences: &[&Sequence]) -> Vec<f32> {
        let (config, device) = (config(), burn::tensor::Device::flex());
        let decoder = init_random(&config, Seed::root(3), &device);
        let rope = RopeTables::new(&config, 32, &device);
        let weights = sequences.iter().flat_map(|sequence| (0..sequence.targets.len()).map(|place| 1.0 + place as f32));
        let grads = ScoreGrads { logprobs: weights.collect(), entropies: Vec::new() };
        let found = within(room, &decoder, &config, &rope, sequences, 1.0, |_| (grads, ()));
        let numbers = |tensor: Tensor<1>| tensor.into_data().try_into_vec::<f32>().unwrap();
        found.unwrap().0.0.into_values().flat_map(numbers).collect()
    }

    /// What is kept changes memory and time, and no bit of a gradient.
    #[test]
    fn layers_computed_again_are_those_of_before() {
        let sequence = Sequence { ids: (0..20).map(|id| id * 7 % 50).collect(), targets: (3..20).collect() };
        let bits = |room: usize| found(room, &[&sequence]).into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let none = bits(0);
        let one = activation_bytes(&config(), 20);
        assert!(none == bits(one) && none == bits(one * 3));
    }

    /// Sequences that begin alike give together what each gives alone: a prompt, turns in common after it, all in common, and
    /// targets within what is shared.
    #[test]
    fn what_sequences_share_has_the_gradients_of_all_of_them() {
        let prompt: Vec<u32> = (0..9).map(|id| id * 7 % 50).collect();
        let rests: [&[u32]; 6] =
            [&[1, 2, 3, 4, 5], &[1, 2, 3, 40], &[1, 2, 3, 40], &[1, 41, 42, 43], &[], &[44, 45, 46, 47, 48]];
        let sequences = rests.map(|rest| {
            let ids = [&prompt, rest].concat();
            Sequence { targets: (7..ids.len()).collect(), ids }
        });
        let mut expected = vec![0.0; 0];
        for sequence in &sequences {
            let alone = found(0, &[sequence]);
            expected.resize(alone.len(), 0.0);
            expected.iter_mut().zip(alone).for_each(|(sum, alone)| *sum += alone);
        }
        let all = found(Workspace::PROCESSOR.kept_bytes, &sequences.each_ref());
        let largest = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        for (found, expected) in all.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5 * largest, "{found} {expected}");
        }
    }
}

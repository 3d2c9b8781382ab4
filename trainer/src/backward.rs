//! Gradients layer by layer, so that memory holds the activations of one layer, or of as many as there is room for.
//!
//! A forward pass keeps the input of each layer and the output of its attention, and all activations of as many layers as fit the given
//! bytes (`Workers::kept_bytes`). Log-probabilities are computed from it in chunks of tokens, and the derivative of the loss goes back
//! through the softmax. Then, from the last layer down, the activations of one layer at a time are computed again where they were not
//! kept, and the gradient goes back through it (activation checkpointing, Chen et al. 2016, with every layer a segment). The gradients of
//! a layer's parameters are then added to the sum over micro-batches. Every derivative is written out (`LayerBackward`), so that no graph
//! is built; tests hold them equal to one graph of Burn's autodiff through the whole decoder, and to `PyTorch`.

use burn::tensor::{DType, IndexingUpdateOp, Int, Tensor, TensorData};

use crate::device::Workspace;
use crate::grads::NamedGrads;
use crate::logprobs::{Logits, ScoreGrads, Scores, Targets};
use crate::model::{
    Batch, Decoder, Dense, HEAD, Kept, Kernels, LayerBackward, LayerSizes, Linear, ModelConfig,
    ParameterGrads, RopeTables, attention_numbers,
};
use crate::sequence::{BatchSize, Sequence, ids};

/// Gradient of a loss of the log-probabilities of `sequences`, as [`add_gradients`] computes it.
pub(crate) fn gradients<T>(
    decoder: &Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    sequences: &[&Sequence],
    kept_bytes: usize,
    loss: impl FnOnce(&Scores) -> (ScoreGrads, T),
) -> Option<(NamedGrads, T)> {
    let mut sum = NamedGrads::default();
    let rest = add_gradients(&mut sum, decoder, config, rope, sequences, kept_bytes, loss)?;
    Some((sum, rest))
}

/// Adds the gradient of a loss of the log-probabilities of `sequences` to a sum and returns the loss's other result; `None`, with nothing
/// added, when no sequence has a target.
///
/// Gradients of a layer are added as soon as they are complete, so that memory holds, beside the sum, those of one layer at a time, and
/// of the embedding where it is tied to the head.
///
/// `decoder` is on a device without autodiff; beside an adapter its base gets no gradients. `loss` is given log-probabilities and
/// entropies of all targets, in order, and returns the derivative of the loss by each. At most `kept_bytes` of activations are kept
/// instead of being computed again, which changes no number.
pub(crate) fn add_gradients<T>(
    sum: &mut NamedGrads,
    decoder: &Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    sequences: &[&Sequence],
    kept_bytes: usize,
    loss: impl FnOnce(&Scores) -> (ScoreGrads, T),
) -> Option<T> {
    within(
        sum,
        kept_bytes,
        decoder,
        config,
        rope,
        sequences,
        |backward, targets, hidden| backward.logprobs(targets, hidden, loss),
    )
}

/// As [`add_gradients`], for a loss of the value head's outputs before each target.
pub(crate) fn add_value_gradients<T>(
    sum: &mut NamedGrads,
    (decoder, head): (&Decoder, &Linear),
    config: &ModelConfig,
    rope: &RopeTables,
    sequences: &[&Sequence],
    kept_bytes: usize,
    loss: impl FnOnce(&[f32]) -> (Vec<f32>, T),
) -> Option<T> {
    within(
        sum,
        kept_bytes,
        decoder,
        config,
        rope,
        sequences,
        |backward, _, hidden| backward.values(head, hidden, loss),
    )
}

/// Adds gradients to a sum, with at most `limit` bytes of activations kept. `head` makes the loss of the hidden states of the targets,
/// `[targets, hidden]`, and returns its derivative by them and the rest.
fn within<T>(
    sum: &mut NamedGrads,
    limit: usize,
    decoder: &Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    sequences: &[&Sequence],
    head: impl FnOnce(&mut Backward<'_>, &Targets, &Tensor<2>) -> (Tensor<2>, T),
) -> Option<T> {
    let batch = Batch::new(&ids(sequences.iter().copied()));
    let device = decoder.device();
    let targets = Targets::of(sequences, &batch, decoder)?;
    let dense = Dense::new(config, rope, &batch, decoder);
    let (mut kept, last) = forward(decoder, config, &batch, &dense, limit);
    // Only rows that predict a target reach the head.
    let all = last.zeros_like();
    let last = last.select(0, targets.rows(&device));
    let mut backward = Backward {
        decoder,
        parameters: ParameterGrads::of(decoder),
    };
    let picked = decoder.finish(last.clone());
    let (grad, rest) = head(&mut backward, &targets, &picked);
    let grad = backward
        .parameters
        .norm("model.norm", decoder.norm(), last, grad);
    let mut grad = all.select_assign(0, targets.rows(&device), grad, IndexingUpdateOp::Add);
    backward.settle(sum);
    while let Some(layer) = kept.pop() {
        let index = kept.len();
        let derivative = LayerBackward {
            layer: decoder.layer(index),
            config,
            dense: &dense,
            path: format!("model.layers.{index}"),
            parameters: &mut backward.parameters,
        };
        grad = derivative.input(layer, grad);
        backward.settle(sum);
    }
    backward.embed(&batch, grad);
    sum.add(NamedGrads(backward.parameters.total));
    Some(rest)
}

/// The kept part of each layer, and the output of the last.
fn forward(
    decoder: &Decoder,
    config: &ModelConfig,
    batch: &Batch,
    dense: &Dense,
    limit: usize,
) -> (Vec<Kept>, Tensor<2>) {
    let mut input = decoder.embed(batch.ids());
    let mut kept = Vec::new();
    // The last layers, whose activations are freed before those of the others are computed again.
    let numbers = limit / input.dtype().size();
    let sizes = decoder.layer_sizes(config);
    let depth = decoder.depth();
    let first = depth - kept_layers(&sizes, depth, batch.ids().len(), numbers);
    for index in 0..depth {
        let layer = decoder.layer(index);
        let (of_layer, output) = layer.keep(input, config, dense, index >= first);
        kept.push(of_layer);
        input = output;
    }
    (kept, input)
}

/// The number of layers, of `depth`, whose activations are at most so many `numbers`.
pub(crate) fn kept_layers(
    sizes: &LayerSizes,
    depth: usize,
    tokens: usize,
    numbers: usize,
) -> usize {
    // The batch may be empty.
    (numbers / (sizes.activations * tokens).max(1)).min(depth)
}

/// Bytes that [`gradients`] holds of one micro-batch on the processor, beside weights.
pub(crate) struct Held {
    /// Bytes of the layers, from the forward pass on.
    pub(crate) kept: usize,
    /// While the gradient goes through the feed-forward part of a layer.
    pub(crate) layer: usize,
    /// While it goes through the attention's projections.
    pub(crate) projections: usize,
    /// While it goes through the attention weights of blocks of queries.
    pub(crate) attention: usize,
    /// The logits of a chunk.
    pub(crate) logits: usize,
    /// Hidden states of the targets: out of the last layer, out of the last norm, and the gradient.
    pub(crate) picked: usize,
    /// A matrix of a layer, where it is kept in less than f32: one at a time is widened.
    pub(crate) layer_weights: usize,
    /// The head, where it is kept in less than f32.
    pub(crate) head_weights: usize,
    /// The gradient of the head: that of a chunk and the sum of those before.
    pub(crate) head_gradients: usize,
    /// The gradient of the embedding, which is the first that exists; where it is tied, the head's.
    pub(crate) embedding_gradient: usize,
}

impl Held {
    /// For a base in f32 or in less, all of which learns or none, with the activations of so many layers kept.
    pub(crate) fn of(
        config: &ModelConfig,
        size: BatchSize,
        with_activations: usize,
        in_f32: bool,
        learns: bool,
    ) -> Self {
        let bytes = |numbers: usize| numbers * size_of::<f32>();
        let BatchSize {
            tokens,
            longest,
            targets,
        } = size;
        let space = Workspace::PROCESSOR;
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let embedding = config.vocab_size * hidden;
        let layer = LayerSizes::of(config);
        let depth = config.num_hidden_layers;
        let inputs = depth * layer.kept + hidden;
        let shared = if with_activations > 0 {
            layer.shared
        } else {
            0
        };
        let (logits, chunks) = Logits::chunks(targets, config.vocab_size, space.logits);
        let widened = |numbers| if in_f32 { 0 } else { bytes(numbers) };
        let gradients = |count| if learns { bytes(count * embedding) } else { 0 };
        Self {
            kept: bytes(tokens * (inputs + with_activations * layer.activations)),
            layer: bytes(tokens * (layer.feed_forward - shared)),
            projections: bytes(tokens * layer.attention),
            attention: bytes(attention_numbers(config, longest, space.attention_scores)),
            logits: bytes(logits),
            picked: bytes(3 * targets * hidden),
            layer_weights: widened(hidden * inner),
            head_weights: widened(embedding),
            head_gradients: gradients(if chunks > 1 { 2 } else { 1 }),
            embedding_gradient: gradients(1),
        }
    }
}

/// Name of the embedding, which is the head as well where that is tied.
const EMBEDDING: &str = "model.embed_tokens.weight";

/// `[n]`: what a value head makes of hidden states, `[n, hidden]`, in f32.
///
/// # Panics
/// When the device is lost.
pub(crate) fn values(head: &Linear, hidden: Tensor<2>) -> Vec<f32> {
    let kernels = Kernels::of(&hidden.device());
    let found = head.forward(kernels, hidden.cast(DType::F32));
    let found = found.into_data().convert::<f32>();
    found.try_into_vec().expect("converted just before")
}

/// The last matrix of a decoder.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, on the stack"
)]
enum Head<'a> {
    Own(&'a Linear),
    /// The embedding, `[vocab, hidden]`, in the precision of what is computed.
    Tied(Tensor<2>),
}

/// The derivatives of the embedding and the head.
struct Backward<'a> {
    decoder: &'a Decoder,
    parameters: ParameterGrads,
}

impl Backward<'_> {
    /// Adds all complete gradients to a sum: all but that of the embedding, which is complete last.
    fn settle(&mut self, sum: &mut NamedGrads) {
        let total = &mut self.parameters.total;
        let embedding = total.remove_entry(EMBEDDING);
        sum.add(NamedGrads(std::mem::take(total)));
        total.extend(embedding);
    }

    /// Goes back through a loss of log-probabilities: returns its derivative by the hidden states of the targets, and the loss's other
    /// result.
    fn logprobs<T>(
        &mut self,
        targets: &Targets,
        hidden: &Tensor<2>,
        loss: impl FnOnce(&Scores) -> (ScoreGrads, T),
    ) -> (Tensor<2>, T) {
        let mut logits = Logits::new(targets, self.decoder, hidden);
        let (grads, rest) = loss(&targets.logprobs(&logits).scores());
        (self.head(targets, &mut logits, &grads), rest)
    }

    /// Goes back through a loss of values, in f32 whatever the decoder computes in. The head learns beside an adapter too.
    fn values<T>(
        &mut self,
        head: &Linear,
        hidden: &Tensor<2>,
        loss: impl FnOnce(&[f32]) -> (Vec<f32>, T),
    ) -> (Tensor<2>, T) {
        let device = hidden.device();
        let (kernels, x) = (Kernels::of(&device), hidden.clone().cast(DType::F32));
        let (grads, rest) = loss(&values(head, x.clone()));
        let count = grads.len();
        let grad = TensorData::new(grads, [count, 1]);
        let grad = Tensor::<2>::from_data(grad, (&device, DType::F32));
        let parameters = &mut self.parameters;
        parameters.add(format!("{HEAD}.bias"), grad.clone().sum_dim(0));
        let by_weight = kernels.product(x.transpose(), grad.clone());
        parameters.add(format!("{HEAD}.weight"), by_weight);
        let below = kernels.product(grad, head.matrix().transpose());
        (below.cast(hidden.dtype()), rest)
    }

    /// Pushes `grads` back through softmax and head: the gradient by the hidden states under it, `[targets, hidden]`.
    fn head(&mut self, targets: &Targets, logits: &mut Logits, grads: &ScoreGrads) -> Tensor<2> {
        // A matrix kept in half precision is widened once.
        let tied = || Head::Tied(self.decoder.embedding().cast(logits.hidden.dtype()));
        let head = self.decoder.lm_head().map_or_else(tied, Head::Own);
        let mut parts = Vec::new();
        for chunk in targets.chunks(self.decoder.vocab_size()) {
            let hidden = logits.hidden.clone().narrow(0, chunk.start, chunk.len());
            let grad = targets.grad(&chunk, logits.take(&chunk), grads);
            let grad = grad.cast(hidden.dtype());
            parts.push(match &head {
                Head::Own(map) => self.parameters.linear(HEAD, map, hidden, grad),
                Head::Tied(weight) => self.tied(weight, hidden, grad),
            });
        }
        Tensor::cat(parts, 0)
    }

    /// Goes back through the embedding as the head.
    fn tied(&mut self, weight: &Tensor<2>, hidden: Tensor<2>, grad: Tensor<2>) -> Tensor<2> {
        if self.parameters.base_learns() {
            self.parameters.add(
                EMBEDDING.to_owned(),
                self.parameters
                    .kernels
                    .product(grad.clone().transpose(), hidden),
            );
        }
        self.parameters.kernels.product(grad, weight.clone())
    }

    /// Adds the gradient of the rows of the embedding, unless it is frozen.
    fn embed(&mut self, batch: &Batch, grad: Tensor<2>) {
        if self.parameters.base_learns() {
            let shape = self.decoder.embedding().shape();
            let ids = Tensor::<1, Int>::from_ints(batch.ids(), &grad.device());
            let before = match self.parameters.total.remove(EMBEDDING) {
                Some(head) => head.reshape(shape),
                None => Tensor::zeros(shape, (&grad.device(), DType::F32)),
            };
            let grad = grad.cast(DType::F32);
            self.parameters.add(
                EMBEDDING.to_owned(),
                before.select_assign(0, ids, grad, IndexingUpdateOp::Add),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use forage_contracts::seed::Seed;

    use super::*;
    use crate::model::{Architecture, Decoder};
    use crate::workers::KEPT_BYTES;

    fn config() -> ModelConfig {
        ModelConfig {
            architecture: Architecture::named("qwen3").unwrap(),
            vocab_size: 50,
            hidden_size: 24,
            intermediate_size: 40,
            num_hidden_layers: 3,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 8,
            max_position_embeddings: 32,
            rope_theta: 100.0,
            rope_scaling: None,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
        }
    }

    /// Gradients of the sum of all log-probabilities, weighed by their place in their sequence.
    fn found(limit: usize, sequences: &[&Sequence]) -> Vec<f32> {
        let (config, device) = (config(), burn::tensor::Device::flex());
        let decoder = Decoder::random(&config, Seed::root(3), &device);
        let rope = RopeTables::new(&config, 32, &device);
        let weights = sequences
            .iter()
            .flat_map(|sequence| (0..sequence.targets.len()).map(|place| 1.0 + place as f32));
        let grads = ScoreGrads {
            logprobs: weights.collect(),
            entropies: Vec::new(),
        };
        let mut found = NamedGrads::default();
        let rest = within(
            &mut found,
            limit,
            &decoder,
            &config,
            &rope,
            sequences,
            |b, targets, hidden| b.logprobs(targets, hidden, |_| (grads, ())),
        );
        let numbers = |tensor: Tensor<1>| tensor.into_data().try_into_vec::<f32>().unwrap();
        rest.unwrap();
        found.0.into_values().flat_map(numbers).collect()
    }

    /// Keeping more changes memory and time, and no bit of a gradient.
    #[test]
    fn layers_computed_again_are_those_of_before() {
        let sequence = Sequence {
            ids: (0..20).map(|id| id * 7 % 50).collect(),
            targets: (3..20).collect(),
            ..Sequence::default()
        };
        let bits = |limit: usize| {
            found(limit, &[&sequence])
                .into_iter()
                .map(f32::to_bits)
                .collect::<Vec<_>>()
        };
        let none = bits(0);
        let one = LayerSizes::of(&config()).activations * 20 * size_of::<f32>();
        assert!(none == bits(one) && none == bits(one * 3));
    }

    /// Sequences that begin alike give together what each gives alone: a prompt, turns in common after it, all in common, and
    /// targets within what is shared.
    #[test]
    fn what_sequences_share_has_the_gradients_of_all_of_them() {
        let prompt: Vec<u32> = (0..9).map(|id| id * 7 % 50).collect();
        let rests: [&[u32]; 6] = [
            &[1, 2, 3, 4, 5],
            &[1, 2, 3, 40],
            &[1, 2, 3, 40],
            &[1, 41, 42, 43],
            &[],
            &[44, 45, 46, 47, 48],
        ];
        let sequences = rests.map(|rest| {
            let ids = [&prompt, rest].concat();
            Sequence {
                targets: (7..ids.len()).collect(),
                ids,
                ..Sequence::default()
            }
        });
        let mut expected = vec![0.0; 0];
        for sequence in &sequences {
            let alone = found(0, &[sequence]);
            expected.resize(alone.len(), 0.0);
            expected
                .iter_mut()
                .zip(alone)
                .for_each(|(sum, alone)| *sum += alone);
        }
        let all = found(KEPT_BYTES, &sequences.each_ref());
        let largest = expected
            .iter()
            .fold(0.0_f32, |most, value| most.max(value.abs()));
        for (found, expected) in all.iter().zip(&expected) {
            assert!(
                (found - expected).abs() < 1e-5 * largest,
                "{found} {expected}"
            );
        }
    }
}

//! Gradients layer by layer, so that memory holds one layer's graph whatever the depth.
//!
//! A forward pass without a graph keeps what enters each layer and what its attention gives. Log-probabilities come from it
//! in chunks of tokens, and the derivative of the loss by them goes back through the softmax by hand. Then, from the last
//! layer down, the matrices and norms of one layer at a time are run again with a graph and the gradient pushed through
//! them (activation checkpointing, Chen et al. 2016, with every layer a segment); attention and activation, between them, have
//! derivatives written out, and no matrix of weights is kept.

use burn::module::Module;
use burn::tensor::{Gradients, IndexingUpdateOp, Tensor};

use crate::grads::NamedGrads;
use crate::logprobs::{Scores, Slopes, Targets};
use crate::model::{Batch, Decoder, Dense, Gated, Head, Heads, ModelConfig, RopeTables, swiglu, swiglu_backward};
use crate::sequence::Sequence;

/// Gradient of a loss of the log-probabilities of `sequences`, and what else `loss` returned; `None` when no sequence has
/// a target.
///
/// `decoder` has leaves of this thread (see [`crate::grads::track`]). `loss` is given log-probabilities and entropies of
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
    let plain = decoder.valid();
    let dense = Dense::new(config, rope, &batch, &plain.device());
    let mut kept = forward(&plain, config, &batch, &dense);
    let last = kept.pop().expect("a decoder has layers").input;
    let picked = plain.finish(last.clone()).select(0, targets.rows(&plain.device()));
    let (slopes, rest) = loss(&targets.logprobs(&plain, &picked, temperature).scores());

    let mut backward = Backward { decoder, plain: &plain, total: NamedGrads::default() };
    let slope = backward.head(&targets, &picked, &slopes, temperature);
    // Rows that predict nothing have no gradient.
    let rows = targets.rows(&plain.device());
    let slope = last.zeros_like().select_assign(0, rows, slope, IndexingUpdateOp::Add);
    let mut slope = backward.finish(last, slope);
    for (index, layer) in kept.into_iter().enumerate().rev() {
        slope = backward.layer(index, layer, config, &dense, slope);
    }
    backward.embed(&batch, slope);
    Some((backward.total, rest))
}

/// What the forward pass keeps of a layer.
struct Kept {
    /// `[n, hidden]`: what enters it.
    input: Tensor<2>,
    /// `[n, heads * head_dim]`: what its attention gives.
    mixed: Tensor<2>,
}

/// One for each layer, and what the last one gives, as the input of none.
fn forward(decoder: &Decoder, config: &ModelConfig, batch: &Batch, dense: &Dense) -> Vec<Kept> {
    let mut input = decoder.embed(batch.ids());
    let mut kept = Vec::new();
    for index in 0..decoder.depth() {
        let mixed = dense.mix(&dense.rotate(decoder.project(index, input.clone(), config)));
        let output = decoder.merge(index, input.clone(), mixed.clone());
        kept.push(Kept { input, mixed });
        input = output;
    }
    kept.push(Kept { mixed: input.clone(), input });
    kept
}

struct Backward<'a> {
    decoder: &'a Decoder,
    /// The same without leaves.
    plain: &'a Decoder,
    total: NamedGrads,
}

impl Backward<'_> {
    /// Pushes `slopes` back through softmax and head: the gradient by the hidden states `picked`, `[targets, hidden]`.
    fn head(&mut self, targets: &Targets, picked: &Tensor<2>, slopes: &Slopes, temperature: f32) -> Tensor<2> {
        let mut parts = Vec::new();
        for chunk in targets.chunks(self.decoder.vocab_size()) {
            let hidden = picked.clone().narrow(0, chunk.start, chunk.len());
            let slope = targets.slope(&chunk, self.plain.logits(hidden.clone()), slopes, temperature);
            let below = if let Some(head) = self.plain.head() {
                self.product(head, hidden, slope)
            } else {
                let hidden = leaf(hidden);
                let gradients = self.push(vec![(self.decoder.logits(hidden.clone()), slope)]);
                hidden.grad(&gradients).expect("logits depend on the hidden states")
            };
            parts.push(below);
        }
        Tensor::cat(parts, 0)
    }

    /// Through `hidden W` of a head without an adapter, `slope` by its result: logits are the widest tensors of a step, and a
    /// graph would hold several of them.
    fn product(&mut self, head: Head, hidden: Tensor<2>, slope: Tensor<2>) -> Tensor<2> {
        let by_outputs = head.weight.cast(slope.dtype());
        if !self.decoder.is_adapted() {
            let gradient = if head.tied {
                slope.clone().transpose().matmul(hidden)
            } else {
                hidden.transpose().matmul(slope.clone())
            };
            let count = gradient.shape().num_elements();
            self.total.add(NamedGrads([(head.name.to_owned(), gradient.reshape([count]))].into()));
        }
        slope.matmul(by_outputs)
    }

    /// Through the last norm.
    fn finish(&mut self, input: Tensor<2>, slope: Tensor<2>) -> Tensor<2> {
        let input = leaf(input);
        let gradients = self.push(vec![(self.decoder.finish(input.clone()), slope)]);
        input.grad(&gradients).expect("the result depends on the input")
    }

    /// Through layer `index`, whose result has gradient `slope`: the gradient by its input.
    fn layer(&mut self, index: usize, kept: Kept, config: &ModelConfig, dense: &Dense, slope: Tensor<2>) -> Tensor<2> {
        let (input, mixed) = (leaf(kept.input.clone()), leaf(kept.mixed.clone()));
        let Gated { x, gate, up } = self.decoder.gate(index, input.clone(), mixed.clone());
        let plain = |x: &Tensor<2>| x.clone().without_autodiff();
        let activation = leaf(swiglu(plain(&gate), plain(&up)));
        let gradients = self.push(vec![(self.decoder.lower(index, activation.clone()), slope.clone())]);
        let activation = activation.grad(&gradients).expect("a product depends on its input");
        let (by_gate, by_up) = swiglu_backward(plain(&gate), plain(&up), activation);
        let gradients = self.push(vec![(gate, by_gate), (up, by_up), (x, slope)]);
        let mixed = mixed.grad(&gradients).expect("a layer depends on its attention");
        let below = input.grad(&gradients).expect("a layer depends on its input");
        drop(gradients);

        let input = leaf(kept.input);
        let heads = dense.rotate(self.decoder.project(index, input.clone(), config));
        let plain = |x: &Tensor<3>| x.clone().without_autodiff();
        let rotated = Heads { queries: plain(&heads.queries), keys: plain(&heads.keys), values: plain(&heads.values) };
        let slopes = dense.mix_backward(&rotated, &kept.mixed, &mixed);
        let flat = |x: Tensor<3>| x.flatten::<2>(1, 2);
        let gradients = self.push(vec![
            (flat(heads.queries), flat(slopes.queries)),
            (flat(heads.keys), flat(slopes.keys)),
            (flat(heads.values), flat(slopes.values)),
        ]);
        below + input.grad(&gradients).expect("projections depend on the input")
    }

    /// Into the rows of the embedding, unless it is frozen.
    fn embed(&mut self, batch: &Batch, slope: Tensor<2>) {
        if !self.decoder.is_adapted() {
            self.push(vec![(self.decoder.embed(batch.ids()), slope)]);
        }
    }

    /// Runs back from results and the gradients by them, and adds up those of the weights.
    fn push(&mut self, results: Vec<(Tensor<2>, Tensor<2>)>) -> Gradients {
        let weighed = results.into_iter().map(|(result, slope)| (result * slope.autodiff()).sum());
        let sum = weighed.reduce(|sum, next| sum + next).expect("there are results");
        let gradients = sum.backward();
        self.total.add(NamedGrads::collect(self.decoder, &gradients));
        gradients
    }
}

fn leaf(tensor: Tensor<2>) -> Tensor<2> {
    tensor.autodiff().require_grad()
}

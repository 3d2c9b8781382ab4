//! Teacher-forced log-probabilities: the one place where training, reference and recomputed values come from.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};

use crate::model::{Batch, Decoder, ModelConfig, RopeTables};
use crate::sequence::Sequence;

/// Log-probabilities of every target of `sequences`, in order, under the full-vocabulary softmax at `temperature`.
#[derive(Clone, Debug)]
pub struct TokenLogprobs {
    /// `[n]`, nats; carries the graph when the decoder does.
    pub logprobs: Tensor<1>,
    /// `[n]`, nats: entropy of the next-token distribution at each target; never carries a graph.
    pub entropy: Tensor<1>,
}

/// Runs `sequences` as one batch. `None` when no sequence has a target.
pub fn token_logprobs(
    decoder: &Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    sequences: &[&Sequence],
    temperature: f32,
) -> Option<TokenLogprobs> {
    let rows: Vec<&[u32]> = sequences.iter().map(|sequence| sequence.ids.as_slice()).collect();
    let batch = Batch::new(&rows);
    let mut sources: Vec<i32> = Vec::new();
    let mut targets: Vec<i32> = Vec::new();
    for (row, sequence) in sequences.iter().enumerate() {
        for &position in &sequence.targets {
            sources.push((row * batch.width() + position - 1) as i32);
            targets.push(sequence.ids[position] as i32);
        }
    }
    if targets.is_empty() {
        return None;
    }
    let device = decoder.device();
    let count = targets.len();
    // Only rows that predict a target reach the head: the logits are the largest tensor of the step.
    let index = Tensor::<1, Int>::from_ints(sources.as_slice(), &device);
    let hidden = decoder.hidden(config, rope, &batch).select(0, index);
    let logits = decoder.logits(hidden) * (1.0 / f64::from(temperature));
    let distribution = log_softmax(logits, 1);
    let ids = Tensor::<2, Int>::from_data(TensorData::new(targets, [count, 1]), &device);
    let plain = distribution.clone().without_autodiff();
    let entropy = (plain.clone().exp() * plain).sum_dim(1).reshape([count]).neg();
    let logprobs = distribution.gather(1, ids).reshape([count]);
    Some(TokenLogprobs { logprobs, entropy })
}

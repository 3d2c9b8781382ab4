//! Teacher-forced log-probabilities: the one place where training, reference and recomputed values come from.

use std::ops::Range;

use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Device, IndexingUpdateOp, Int, Tensor, TensorData};

use crate::device::Workspace;
use crate::grads::{NamedGrads, track};
use crate::model::{Batch, Decoder, Kernels, ModelConfig, RopeTables, host};
#[cfg(feature = "gpu")]
use crate::model::{logit_grads, token_scores};
use crate::sequence::{Sequence, ids};
use crate::weights::Checkpoint;
use crate::workers::Workers;

/// Largest mean difference of log-probabilities, nats per token, of one set of weights in two engines that both compute f32 in f32. Small
/// models stay below 1e-5, and rounding grows with depth.
pub(crate) const EXACT_GAP: f64 = 5e-5;

/// The same where either of them rounds to fewer bits: bf16 or f16, TF32 in the products of a GPU, a base of 8 bits. A push beyond it is
/// not believed, and the sentinel stops a run whose rollouts are beyond it; `bench/vllm/run.py` reads it here.
pub(crate) const ROUNDED_GAP: f64 = 0.05;

/// Log-probabilities of every target of `sequences`, in order, under the full-vocabulary softmax at the target's temperature.
#[derive(Clone, Debug)]
pub(crate) struct TokenLogprobs {
    /// `[n]`, nats; carries the graph when the decoder does.
    pub logprobs: Tensor<1>,
    /// `[n]`, nats: entropy of the next-token distribution at each target; carries the graph when the decoder does.
    pub entropy: Tensor<1>,
}

/// [`TokenLogprobs`] as plain numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scores {
    /// `[n]`, nats.
    pub logprobs: Vec<f32>,
    /// `[n]`, nats.
    pub entropies: Vec<f32>,
}

/// Derivatives of a loss by [`Scores`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ScoreGrads {
    /// `[n]`: by each log-probability.
    pub logprobs: Vec<f32>,
    /// `[n]`: by each entropy; empty where the loss has none.
    pub entropies: Vec<f32>,
}

impl TokenLogprobs {
    /// The numbers.
    ///
    /// # Panics
    /// When the device is lost.
    pub(crate) fn scores(&self) -> Scores {
        // Read back together: a device stops working each time it is waited for.
        let [count] = self.logprobs.dims();
        let data = Tensor::cat(vec![self.logprobs.clone(), self.entropy.clone()], 0)
            .into_data()
            .convert::<f32>();
        let mut logprobs: Vec<f32> = data.try_into_vec().expect("converted just before");
        let entropies = logprobs.split_off(count);
        Scores {
            logprobs,
            entropies,
        }
    }
}

/// Runs `sequences` as one batch. `None` when no sequence has a target.
pub(crate) fn token_logprobs(
    decoder: &Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    sequences: &[&Sequence],
) -> Option<TokenLogprobs> {
    let batch = Batch::new(&ids(sequences.iter().copied()));
    let targets = Targets::of(sequences, &batch, decoder)?;
    // Only rows that predict a target reach the head.
    let hidden = decoder
        .hidden(config, rope, &batch)
        .select(0, targets.rows(&decoder.device()));
    Some(targets.logprobs(&Logits {
        decoder,
        hidden: &hidden,
        whole: None,
    }))
}

impl Checkpoint {
    /// Entropies at the targets of each sequence, `[sequence][target]`, nats, at temperature 1, under these weights as
    /// f32.
    pub fn entropies(&self, sequences: &[Sequence], workers: &Workers) -> Vec<Vec<f32>> {
        let found = self.scores(sequences, workers).into_iter();
        found.map(|scores| scores.entropies).collect()
    }

    /// Log-probabilities of the targets of each sequence, `[sequence][target]`, nats, at temperature 1, under these weights as
    /// f32.
    pub fn logprobs(&self, sequences: &[Sequence], workers: &Workers) -> Vec<Vec<f32>> {
        let found = self.scores(sequences, workers).into_iter();
        found.map(|scores| scores.logprobs).collect()
    }

    fn scores(&self, sequences: &[Sequence], workers: &Workers) -> Vec<Scores> {
        let Self {
            config, decoder, ..
        } = self;
        let longest = sequences
            .iter()
            .map(|sequence| sequence.ids.len())
            .max()
            .unwrap_or(0);
        let rope = RopeTables::new(config, longest, &decoder.device());
        workers.map(sequences.len(), |index| {
            let plain = Sequence {
                temperatures: Vec::new(),
                nucleus: 0.0,
                ..sequences[index].clone()
            };
            let found = token_logprobs(decoder, config, &rope, &[&plain]);
            found.map(|found| found.scores()).unwrap_or_default()
        })
    }
}

/// The targets of a batch, in order.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    /// Rows of the hidden states that predict them.
    rows: Vec<i32>,
    ids: Vec<i32>,
    /// 1 / temperature of each.
    inverses: Vec<f32>,
    /// Probability of the tokens that entropies are of, where it is not all.
    nucleus: Option<f32>,
    kernels: Kernels,
    /// Most numbers in the logits of a chunk: they are the largest tensor of a step, and never whole in memory.
    logits: usize,
}

impl Targets {
    /// The targets of the sequences of `batch`, run through `decoder`; `None` without any. A row that sequences share may predict
    /// several.
    pub(crate) fn of(sequences: &[&Sequence], batch: &Batch, decoder: &Decoder) -> Option<Self> {
        let (mut rows, mut ids, mut inverses) = (Vec::new(), Vec::new(), Vec::new());
        for (sequence, span) in sequences.iter().zip(batch.spans()) {
            for &position in &sequence.targets {
                rows.push(span.row(position - 1) as i32);
                ids.push(sequence.ids[position] as i32);
            }
            inverses.extend(sequence.temperatures().map(|temperature| 1.0 / temperature));
        }
        let device = decoder.device();
        let logits = Workspace::of(&device).logits;
        // Logits are f32 whatever the decoder computes in.
        let kernels = Kernels::of(&device);
        // One for all that is learned from.
        let nucleus = sequences.first().map(|sequence| sequence.nucleus);
        let nucleus = nucleus.filter(|&share| share > 0.0 && share < 1.0);
        (!ids.is_empty()).then_some(Self {
            rows,
            ids,
            inverses,
            nucleus,
            kernels,
            logits,
        })
    }

    /// Rows of the hidden states that predict the targets.
    pub(crate) fn rows(&self, device: &Device) -> Tensor<1, Int> {
        Tensor::from_ints(self.rows.as_slice(), device)
    }

    /// Targets whose logits are made together.
    pub(crate) fn chunks(&self, vocab_size: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (count, size) = (self.ids.len(), targets_at_once(self.logits, vocab_size));
        (0..count)
            .step_by(size)
            .map(move |start| start..(start + size).min(count))
    }

    /// 1 / temperature of some targets, `[count, 1]`.
    fn inverses(&self, chunk: &Range<usize>, device: &Device) -> Tensor<2> {
        let inverses = self.inverses[chunk.clone()].to_vec();
        let inverses = TensorData::new(inverses, [chunk.len(), 1]);
        Tensor::from_data(inverses, (device, DType::F32))
    }

    /// 1 / temperature of some targets, where all have the same.
    fn one_inverse(&self, chunk: &Range<usize>) -> Option<f32> {
        let (first, rest) = self.inverses[chunk.clone()].split_first()?;
        let same = rest.iter().all(|other| other.to_bits() == first.to_bits());
        same.then_some(*first)
    }

    /// The logits of some targets, and the one inverse temperature to take them at: 1 for those that are divided by temperatures
    /// of their own here.
    #[cfg(feature = "gpu")]
    fn tempered(&self, chunk: &Range<usize>, logits: Tensor<2>) -> (Tensor<2>, f32) {
        if let Some(inverse) = self.one_inverse(chunk) {
            return (logits, inverse);
        }
        let inverses = self.inverses(chunk, &logits.device());
        (logits * inverses, 1.0)
    }

    /// The logits of some targets divided by their temperatures, for Burn's operations.
    fn divided(&self, chunk: &Range<usize>, logits: Tensor<2>) -> Tensor<2> {
        if let Some(inverse) = self.one_inverse(chunk) {
            return logits * f64::from(inverse);
        }
        let inverses = self.inverses(chunk, &logits.device());
        logits * inverses
    }

    /// Log-probabilities from their logits.
    pub(crate) fn logprobs(&self, all: &Logits<'_>) -> TokenLogprobs {
        let (mut logprobs, mut entropies) = (Vec::new(), Vec::new());
        for chunk in self.chunks(all.decoder.vocab_size()) {
            let count = chunk.len();
            let logits = all.of(&chunk);
            if let Some(share) = self.nucleus {
                let distribution = log_softmax(self.divided(&chunk, logits), 1);
                let ids = self.ids(&chunk, &distribution.device());
                logprobs.push(distribution.clone().gather(1, ids).reshape([count]));
                entropies.push(entropy(&nucleus(distribution, share)).reshape([count]));
                continue;
            }
            if self.kernels == Kernels::Processor {
                let device = logits.device();
                let (found, levels) =
                    host::token_scores(logits, &self.ids[chunk.clone()], &self.inverses[chunk]);
                logprobs.push(Tensor::from_floats(found.as_slice(), &device));
                entropies.push(Tensor::from_floats(levels.as_slice(), &device));
                continue;
            }
            #[cfg(feature = "gpu")]
            if self.kernels == Kernels::Cube {
                let device = logits.device();
                let ids = self.ids(&chunk, &device).reshape([count]);
                let (logits, inverse) = self.tempered(&chunk, logits);
                let scores = token_scores(logits, ids, inverse);
                logprobs.push(scores.clone().narrow(1, 0, 1).reshape([count]));
                entropies.push(scores.narrow(1, 1, 1).reshape([count]));
                continue;
            }
            let distribution = log_softmax(self.divided(&chunk, logits), 1);
            entropies.push(entropy(&distribution).reshape([count]));
            let ids = self.ids(&chunk, &distribution.device());
            logprobs.push(distribution.gather(1, ids).reshape([count]));
        }
        TokenLogprobs {
            logprobs: Tensor::cat(logprobs, 0),
            entropy: Tensor::cat(entropies, 0),
        }
    }

    /// Derivative of the loss by the logits z of some targets, `[count, vocab]`, given those by log-probabilities g and
    /// entropies h: (g (1\[target\] - p) - h p (ln p + H)) / T.
    pub(crate) fn grad(
        &self,
        chunk: &Range<usize>,
        logits: Tensor<2>,
        grads: &ScoreGrads,
    ) -> Tensor<2> {
        if self.nucleus.is_none() && self.kernels == Kernels::Processor {
            let entropies = grads.entropies.get(chunk.clone()).unwrap_or_default();
            let ids = &self.ids[chunk.clone()];
            return host::logit_grads(
                logits,
                ids,
                &grads.logprobs[chunk.clone()],
                entropies,
                &self.inverses[chunk.clone()],
            );
        }
        let device = logits.device();
        #[cfg(feature = "gpu")]
        if self.nucleus.is_none() && self.kernels == Kernels::Cube {
            let (count, range) = (chunk.len(), chunk.clone());
            let entropies = grads.entropies.get(range.clone());
            let (logits, inverse) = self.tempered(chunk, logits);
            // What was divided here is not in the kernel's derivative.
            let outside = |target: usize| self.inverses[target] / inverse;
            let pairs = range
                .clone()
                .zip(0..)
                .flat_map(|(target, place): (usize, usize)| {
                    [
                        grads.logprobs[target] * outside(target),
                        entropies.map_or(0.0, |entropies| entropies[place]) * outside(target),
                    ]
                });
            let pairs = TensorData::new(pairs.collect::<Vec<f32>>(), [count, 2]);
            let grads = Tensor::<2>::from_data(pairs, &device);
            let ids = self.ids(chunk, &device).reshape([count]);
            return logit_grads(logits, ids, grads, inverse);
        }
        let column = |values: &[f32]| {
            let values: Vec<f32> = values[chunk.clone()]
                .iter()
                .zip(&self.inverses[chunk.clone()])
                .map(|(value, inverse)| value * inverse)
                .collect();
            Tensor::<2>::from_data(TensorData::new(values, [chunk.len(), 1]), &device)
        };
        let distribution = log_softmax(self.divided(chunk, logits), 1);
        let mut factor = column(&grads.logprobs);
        let at_target = factor.clone();
        let mut beside = None;
        if let (Some(share), false) = (self.nucleus, grads.entropies.is_empty()) {
            // Outside of the nucleus nothing changes its entropy.
            let inside = nucleus(distribution.clone(), share);
            let level = inside.clone() + entropy(&inside);
            beside = Some(inside.exp() * level * column(&grads.entropies));
        } else if !grads.entropies.is_empty() {
            let level = distribution.clone() + entropy(&distribution);
            let [rows, vocab] = level.dims();
            factor = level * column(&grads.entropies) + factor.expand([rows, vocab]);
        }
        let mut grad = distribution.exp() * factor.neg();
        if let Some(beside) = beside {
            grad = grad - beside;
        }
        grad.scatter(
            1,
            self.ids(chunk, &device),
            at_target,
            IndexingUpdateOp::Add,
        )
    }

    /// Token ids of some targets, `[count, 1]`.
    fn ids(&self, chunk: &Range<usize>, device: &Device) -> Tensor<2, Int> {
        Tensor::from_data(
            TensorData::new(self.ids[chunk.clone()].to_vec(), [chunk.len(), 1]),
            device,
        )
    }
}

/// The number of targets whose logits are made together where there may be `logits` of them.
fn targets_at_once(logits: usize, vocab_size: usize) -> usize {
    (logits / vocab_size).max(1)
}

/// Logits of the targets of a batch, made chunk by chunk.
pub(crate) struct Logits<'a> {
    decoder: &'a Decoder,
    /// `[targets, hidden]`
    pub(crate) hidden: &'a Tensor<2>,
    /// All of them, where they are one chunk: kept from the loss to its derivative.
    whole: Option<Tensor<2>>,
}

impl<'a> Logits<'a> {
    /// Numbers of the largest chunk where there may be `logits`, and the number of chunks: the gradient takes the logits' place.
    pub(crate) fn chunks(targets: usize, vocab_size: usize, logits: usize) -> (usize, usize) {
        let at_once = targets_at_once(logits, vocab_size);
        (targets.min(at_once) * vocab_size, targets.div_ceil(at_once))
    }

    /// The logits of `targets` with these hidden states, for the forward and the backward pass.
    pub(crate) fn new(targets: &Targets, decoder: &'a Decoder, hidden: &'a Tensor<2>) -> Self {
        let whole = targets.chunks(decoder.vocab_size()).nth(1).is_none();
        Self {
            decoder,
            hidden,
            whole: whole.then(|| decoder.precise_logits(hidden.clone())),
        }
    }

    /// `[chunk, vocab]`
    fn of(&self, chunk: &Range<usize>) -> Tensor<2> {
        let make = || {
            let hidden = self.hidden.clone();
            self.decoder
                .precise_logits(hidden.narrow(0, chunk.start, chunk.len()))
        };
        self.whole.clone().unwrap_or_else(make)
    }

    /// The logits of a chunk that is not needed again.
    pub(crate) fn take(&mut self, chunk: &Range<usize>) -> Tensor<2> {
        let logits = self.of(chunk);
        self.whole = None;
        logits
    }
}

/// Entropy of each row of log-probabilities, `[rows, 1]`, nats.
fn entropy(distribution: &Tensor<2>) -> Tensor<2> {
    (distribution.clone().exp() * distribution.clone())
        .sum_dim(1)
        .neg()
}

/// Log-probabilities of each row's most likely tokens that have `share` of the probability together, among themselves; those of the
/// others, which have no probability then, are low but finite.
fn nucleus(distribution: Tensor<2>, share: f32) -> Tensor<2> {
    let [rows, vocab] = distribution.dims();
    let probabilities = distribution.clone().exp();
    let sorted = probabilities.clone().sort_descending(1);
    let before = sorted.clone().cumsum(1) - sorted.clone();
    // No probability is above 1, so the least of a row is the last one inside.
    let least = sorted
        .mask_fill(before.greater_equal_elem(share), 2.0)
        .min_dim(1);
    let outside = probabilities.lower(least.expand([rows, vocab]));
    log_softmax(distribution.mask_fill(outside, -1e4), 1)
}

/// Gradients as [`crate::backward::gradients`] gives them, by one graph of Burn's autodiff through the whole decoder for
/// comparison with the written-out derivatives. A loss of entropies is not differentiated.
pub(crate) fn through_graph<T>(
    decoder: &Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    sequences: &[&Sequence],
    loss: impl FnOnce(&Scores) -> (ScoreGrads, T),
) -> Option<(NamedGrads, T)> {
    let tracked = track(decoder);
    let found = token_logprobs(&tracked, config, rope, sequences)?;
    let (by_logprobs, rest) = loss(&found.scores());
    let factors =
        Tensor::<1>::from_floats(by_logprobs.logprobs.as_slice(), &decoder.device()).autodiff();
    let gradients = (found.logprobs * factors).sum().backward();
    Some((NamedGrads::collect(&tracked, &gradients), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::common::{floats, json};

    fn close(found: Tensor<2>, expected: &[f64], what: &str) {
        let found: Vec<f32> = found.into_data().try_into_vec().unwrap();
        assert_eq!(found.len(), expected.len(), "{what}");
        for (&found, expected) in found.iter().zip(expected) {
            let gap = (f64::from(found) - expected).abs();
            assert!(gap < 1e-5, "{what}: {found} is not {expected}");
        }
    }

    #[test]
    fn entropies_of_the_nucleus_and_their_derivatives_equal_torch() {
        let fixture = json("objective.json");
        let fixture = &fixture["nucleus"];
        let rows = fixture["logits"].as_array().unwrap();
        let numbers: Vec<f32> = rows.iter().flat_map(floats).map(|x| x as f32).collect();
        let [count, vocab] = [rows.len(), numbers.len() / rows.len()];
        let device = Device::flex();
        let logits = Tensor::<2>::from_data(TensorData::new(numbers, [count, vocab]), &device);
        let share = fixture["top_p"].as_f64().unwrap() as f32;
        let distribution = log_softmax(logits.clone(), 1);
        let found = entropy(&nucleus(distribution, share));
        close(found, &floats(&fixture["entropies"]), "entropies");
        let targets = Targets {
            rows: (0..count as i32).collect(),
            ids: vec![0; count],
            inverses: vec![1.0; count],
            nucleus: Some(share),
            kernels: Kernels::of(&device),
            logits: usize::MAX,
        };
        let weights = floats(&fixture["weights"]);
        let grads = ScoreGrads {
            logprobs: vec![0.0; count],
            entropies: weights.into_iter().map(|weight| weight as f32).collect(),
        };
        let expected = fixture["gradient"].as_array().unwrap();
        let expected: Vec<f64> = expected.iter().flat_map(floats).collect();
        let found = targets.grad(&(0..count), logits, &grads);
        close(found, &expected, "gradient");
    }
}

//! The parity suite, `forage bench parity`: everything that training and generation run on a device, compared with the processor.
//!
//! Both sides have the same weights, drawn on the processor. Numbers are compared within the tolerance stated beside each check, greedy
//! tokens exactly.

mod adapters;
mod engine;
mod optimizer;

use std::collections::BTreeMap;

use burn::tensor::{DType, Device};
use forage_contracts::policy::Sampling;
use forage_contracts::seed::Seed;

use self::engine::{ROOMY, greedy, half, sampled};
use super::{Check, compared, numbers};
use crate::backward;
use crate::generate::EngineConfig;
use crate::grads::NamedGrads;
use crate::logprobs::{ScoreGrads, Scores, token_logprobs};
use crate::model::{
    Architecture, BLOCK_POSITIONS, Batch, Chunk, Decoder, KvCache, ModelConfig, Pass, RopeTables,
};
use crate::sequence::{Sequence, ids};
use crate::workers::KEPT_BYTES;

/// Tolerance of sums of products in f32, relative to the largest number compared.
const FORWARD: f64 = 1e-4;
/// Tolerance of derivatives, which are sums over all tokens.
const BACKWARD: f64 = 5e-4;
/// Tolerance of learning with moments of 8 bits: the last bit of a product decides between two codes where a moment is halfway between
/// them.
const CODES: f64 = 5e-3;
/// Tolerance of computation in bf16, whose numbers have 8 bits.
const HALF: f64 = 5e-2;

/// Runs every check and calls `each` with its result.
///
/// # Panics
/// Where the runtime of the device does.
pub fn parity(device: &Device, mut each: impl FnMut(Check)) {
    for architecture in Architecture::all() {
        let there = Model::on(device, architecture);
        let here = Model::on(&Device::flex(), architecture);
        for (name, tolerance, compute) in NUMBERS {
            each(compared(
                name,
                &compute(&there),
                &compute(&here),
                *tolerance,
            ));
        }
        each(greedy("greedy tokens of a crowd", &there, &here, ROOMY));
        let tight = EngineConfig {
            cache_tokens: 10 * BLOCK_POSITIONS,
            ..ROOMY
        };
        each(greedy(
            "greedy tokens with too little memory",
            &there,
            &here,
            tight,
        ));
        each(sampled(SAMPLED, &there, &here, Sampling::FULL));
        each(sampled(CUT, &there, &here, CUTS));
        if device.supports_dtype(DType::BF16) {
            each(half(&there, &here));
            let copy = there.decoder.copy_to_train(DType::BF16);
            each(compared(
                "gradients of all weights in bf16",
                &gradients(&there, &copy),
                &gradients(&here, &here.decoder),
                HALF,
            ));
            let copy = there.adapted().copy_to_train(DType::BF16);
            each(compared(
                "gradients of an adapter in bf16",
                &gradients(&there, &copy),
                &gradients(&here, &here.adapted()),
                HALF,
            ));
        }
    }
}

const SAMPLED: &str = "log-probabilities of sampled tokens";
const CUT: &str = "log-probabilities of tokens sampled by top-k, top-p and min-p";
const CUTS: Sampling = Sampling {
    temperature: 0.9,
    top_p: 0.8,
    top_k: 40,
    min_p: 0.01,
};

/// Computes the numbers of one side.
type Compute = fn(&Model) -> Vec<f32>;

const NUMBERS: &[(&str, f64, Compute)] = &[
    ("hidden states of whole sequences", FORWARD, Model::hidden),
    ("logits", FORWARD, Model::logits),
    (
        "hidden states over the cache, in chunks, with a shared beginning",
        FORWARD,
        |model| model.cached(&model.decoder),
    ),
    (
        "hidden states of an adapted decoder over the cache",
        FORWARD,
        |model| model.cached(&model.adapted()),
    ),
    (
        "hidden states over the cache of an adapted decoder whose base is joined",
        FORWARD,
        |model| model.cached(&model.adapted().sharing_base(DType::F32)),
    ),
    (
        "hidden states over a long cache, scores by a large vocabulary",
        FORWARD,
        Model::long,
    ),
    ("log-probabilities and entropies", FORWARD, Model::scores),
    ("gradients of all weights", BACKWARD, |model| {
        gradients(model, &model.decoder)
    }),
    (
        "gradients of all weights, computed with a copy of them",
        BACKWARD,
        |model| gradients(model, &model.decoder.copy_to_train(DType::F32)),
    ),
    (
        "gradients of narrow heads, at a temperature of each sequence's own",
        BACKWARD,
        Model::tempered,
    ),
    ("gradients of an adapter", BACKWARD, |model| {
        gradients(model, &model.adapted())
    }),
    (
        "gradients of an adapter, computed with a copy",
        BACKWARD,
        |model| gradients(model, &model.adapted().copy_to_train(DType::F32)),
    ),
    ("gradients of an adapter with dropout", BACKWARD, |model| {
        gradients(model, &model.dropping(&model.adapted()))
    }),
    (
        "gradients of an adapter with dropout, computed with a copy",
        BACKWARD,
        |model| {
            let copy = model.adapted().copy_to_train(DType::F32);
            gradients(model, &model.dropping(&copy))
        },
    ),
    (
        "gradients of an adapter beside a base of 8 bits",
        BACKWARD,
        |model| gradients(model, &model.quantised()),
    ),
    (
        "gradients of an adapter beside a base of 8 bits, computed with a copy",
        BACKWARD,
        |model| gradients(model, &model.quantised().copy_to_train(DType::F32)),
    ),
    (
        "hidden states over the cache of a base of 8 bits",
        FORWARD,
        |model| model.cached(&model.quantised()),
    ),
    (
        "logits of an adapter merged into the base",
        FORWARD,
        Model::merged,
    ),
    ("norm and clipped gradients", BACKWARD, Model::clipped),
    (
        "weights after three steps of AdamW",
        BACKWARD,
        Model::stepped,
    ),
    (
        "weights after three steps of AdamW with moments of 8 bits",
        CODES,
        Model::stepped_in_8_bits,
    ),
    (
        "weights after three steps of AdamW, sharded among two ranks",
        BACKWARD,
        Model::sharded,
    ),
    (
        "weights after three steps of AdamW with moments of 8 bits, sharded among two ranks",
        CODES,
        Model::sharded_in_8_bits,
    ),
];

/// A shape whose sizes kernels treat in different ways: odd counts, a head narrower than the width, groups of queries.
fn shape(architecture: Architecture) -> ModelConfig {
    ModelConfig {
        architecture,
        vocab_size: 257,
        hidden_size: 96,
        intermediate_size: 160,
        num_hidden_layers: 2,
        num_attention_heads: 6,
        num_key_value_heads: 2,
        head_dim: 16,
        max_position_embeddings: 256,
        rope_theta: 1e4,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: architecture.name() == "qwen3",
    }
}

/// One side of the comparison.
struct Model {
    config: ModelConfig,
    decoder: Decoder,
    rope: RopeTables,
    /// Some share a prefix, and one has a single token.
    sequences: Vec<Sequence>,
}

impl Model {
    fn on(device: &Device, architecture: Architecture) -> Self {
        let config = shape(architecture);
        let decoder = Decoder::random(&config, Seed::root(7), device);
        let rope = RopeTables::new(&config, 128, device);
        let row = |(row, length): (u32, usize)| -> Sequence {
            let ids: Vec<u32> =
                (0..length as u32).map(|place| if place < 9 { place * 5 } else { place * 7 + row } % 250).collect();
            Sequence {
                targets: (1..length).filter(|place| place % 3 != 0).collect(),
                ids,
                temperatures: vec![0.8; length],
                ..Sequence::default()
            }
        };
        let sequences = [(0, 40), (1, 33), (2, 61), (3, 1), (4, 17)].map(row).into();
        Self {
            config,
            decoder,
            rope,
            sequences,
        }
    }

    /// A model of another shape, with weights of its own, on the same device.
    fn shaped(&self, config: ModelConfig) -> Self {
        let device = self.decoder.device();
        Self {
            decoder: Decoder::random(&config, Seed::root(9), &device),
            rope: RopeTables::new(&config, config.max_position_embeddings, &device),
            sequences: self.sequences.clone(),
            config,
        }
    }

    fn hidden(&self) -> Vec<f32> {
        let batch = Batch::new(&ids(self.sequences.iter()));
        numbers(self.decoder.hidden(&self.config, &self.rope, &batch))
    }

    fn logits(&self) -> Vec<f32> {
        self.logits_of(&self.decoder)
    }

    fn logits_of(&self, decoder: &Decoder) -> Vec<f32> {
        let batch = Batch::new(&ids(self.sequences.iter()));
        numbers(decoder.logits(decoder.hidden(&self.config, &self.rope, &batch)))
    }

    /// Two sequences that share the block of their first sixteen tokens, in passes that mix prompts and single tokens.
    fn cached(&self, decoder: &Decoder) -> Vec<f32> {
        // Neighbours in a sequence are not neighbours in memory.
        let tables: [&[u32]; 2] = [&[5, 0, 7, 2], &[5, 9, 1, 11]];
        let passes: [&[(usize, usize, usize)]; 4] = [
            &[(0, 0, 20)],
            &[(0, 20, 21), (1, 16, 41)],
            &[(1, 41, 42), (0, 21, 49)],
            &[(0, 49, 50), (1, 42, 43)],
        ];
        in_passes(decoder, &self.config, &self.rope, tables, &passes)
    }

    /// Sequences of several spans of attention, keys whose number per token is not a power of two, and a vocabulary of several stretches
    /// of the softmax: hidden states over the cache, and log-probabilities that the engine gives to tokens.
    fn long(&self) -> Vec<f32> {
        let config = ModelConfig {
            vocab_size: 4500,
            num_attention_heads: 12,
            num_key_value_heads: 3,
            head_dim: 32,
            max_position_embeddings: 1024,
            ..self.config.clone()
        };
        let model = self.shaped(config);
        let first: Vec<u32> = (0..40).map(|block| (block * 7 + 3) % 80).collect();
        let second: Vec<u32> = first.iter().map(|&block| (block + 40) % 80).collect();
        let passes: [&[(usize, usize, usize)]; 3] = [
            &[(0, 0, 400)],
            &[(0, 400, 401), (1, 0, 333)],
            &[(0, 401, 402), (1, 333, 334)],
        ];
        let tables = [first.as_slice(), second.as_slice()];
        let mut found = in_passes(&model.decoder, &model.config, &model.rope, tables, &passes);
        let engine = model.engine(EngineConfig {
            context: 1024,
            ..ROOMY
        });
        let tokens: Vec<u32> = (0..300).map(|place| place * 13 % 4500).collect();
        let scores = futures::executor::block_on(engine.score(tokens, 0.7));
        found.extend(scores.expect("the engine answers"));
        found
    }

    fn rows(&self) -> Vec<&Sequence> {
        self.sequences.iter().collect()
    }

    fn scores(&self) -> Vec<f32> {
        let found = token_logprobs(&self.decoder, &self.config, &self.rope, &self.rows());
        let Scores {
            logprobs,
            entropies,
        } = found.expect("there are targets").scores();
        [logprobs, entropies].concat()
    }

    fn gradients_of(&self, decoder: &Decoder) -> NamedGrads {
        let (config, rope, rows) = (&self.config, &self.rope, self.rows());
        let found = backward::gradients(decoder, config, rope, &rows, KEPT_BYTES, grads);
        let mut found = found.expect("there are targets").0;
        decoder.separate(&mut found.0, &self.config);
        found
    }

    fn tempered(&self) -> Vec<f32> {
        // Heads have fewer numbers than kernels take up queries at a time.
        let Self {
            config,
            decoder,
            rope,
            mut sequences,
        } = self.shaped(ModelConfig {
            head_dim: 4,
            ..self.config.clone()
        });
        for (row, sequence) in sequences.iter_mut().enumerate() {
            sequence.temperatures = vec![0.7 + 0.1 * row as f32; sequence.targets.len()];
        }
        let rows: Vec<&Sequence> = sequences.iter().collect();
        // Once more with the activations of every layer computed again.
        let found = backward::gradients(&decoder, &config, &rope, &rows, 0, grads);
        all(found.expect("there are targets").0)
    }
}

/// Hidden states of passes over the cache, each of parts of two sequences: `(sequence, start, end)`. They begin alike.
fn in_passes(
    decoder: &Decoder,
    config: &ModelConfig,
    rope: &RopeTables,
    tables: [&[u32]; 2],
    passes: &[&[(usize, usize, usize)]],
) -> Vec<f32> {
    let first: Vec<u32> = (0..500).map(|place| place * 3 % 250).collect();
    let mut second = first.clone();
    second[BLOCK_POSITIONS..]
        .iter_mut()
        .for_each(|id| *id = (*id + 11) % 250);
    let decoder = decoder.clone().for_inference(false);
    let blocks = tables.concat().into_iter().max().unwrap_or(0) as usize + 1;
    let mut cache = KvCache::new(config, blocks, &decoder);
    let mut found = Vec::new();
    for &parts in passes {
        let chunk = |&(row, start, end): &(usize, usize, usize)| Chunk {
            ids: &[&first, &second][row][start..end],
            start,
            blocks: tables[row],
        };
        let pass = Pass::new(parts.iter().map(chunk).collect());
        found.extend(numbers(
            decoder.hidden_cached(config, rope, &pass, &mut cache),
        ));
    }
    found
}

/// Derivatives of a loss of log-probabilities and entropies.
fn grads(scores: &Scores) -> (ScoreGrads, ()) {
    let wave = |count: usize, phase: usize| {
        (0..count)
            .map(|place| ((place * 7 + phase) % 11) as f32 / 11.0 - 0.4)
            .collect()
    };
    (
        ScoreGrads {
            logprobs: wave(scores.logprobs.len(), 0),
            entropies: wave(scores.entropies.len(), 5),
        },
        (),
    )
}

fn gradients(model: &Model, decoder: &Decoder) -> Vec<f32> {
    all(model.gradients_of(decoder))
}

/// Gradients of each parameter relative to its largest, so that none is lost beside another.
fn all(gradients: NamedGrads) -> Vec<f32> {
    let named: BTreeMap<String, Vec<f32>> = gradients
        .0
        .into_iter()
        .map(|(name, tensor)| (name, numbers(tensor)))
        .collect();
    named.into_values().flat_map(scaled).collect()
}

fn scaled(mut values: Vec<f32>) -> Vec<f32> {
    let largest = values
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    if largest > 0.0 {
        for value in &mut values {
            *value /= largest;
        }
        // The scale is compared as well.
        values.push(largest.ln() / 20.0);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_equals_itself() {
        let mut count = 0;
        parity(&Device::flex(), |check| {
            assert!(check.holds, "{check:?}");
            count += 1;
        });
        assert!(count >= 80, "{count}");
    }
}

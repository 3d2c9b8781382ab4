//! Gradients layer by layer equal those of one graph through the whole decoder.

use std::collections::BTreeMap;

use forage_contracts::seed::Seed;

use super::reference::{FAMILIES, Tiny, tiny};
use crate::backward::{add_gradients, gradients};
use crate::grads::{NamedGrads, track};
use crate::logprobs::{ScoreGrads, Scores, token_logprobs};
use crate::lora::{self, LoraConfig, Targets};
use crate::model::{Batch, Decoder, Dropout, ModelConfig, RopeTables};
use crate::sequence::{Sequence, ids};
use crate::workers::{KEPT_BYTES, Parts, Workers};
use burn::tensor::{DType, Device, Tensor};
use rand::RngExt;

/// Sequences of several lengths, some tokens of each in the loss, and one without any.
fn sequences(vocab: usize, seed: Seed) -> Vec<Sequence> {
    let mut rng = seed.rng();
    let sequence = |length: usize| {
        let ids: Vec<u32> = (0..length)
            .map(|_| rng.random_range(0..vocab as u32))
            .collect();
        let targets = (1..length)
            .filter(|position| position % 3 != 0 && length > 2)
            .collect();
        Sequence {
            ids,
            targets,
            ..Sequence::default()
        }
    };
    [17, 2, 40, 9, 23].into_iter().map(sequence).collect()
}

fn grads(count: usize, entropies: bool, seed: Seed) -> ScoreGrads {
    let mut rng = seed.rng();
    let mut draw = |count: usize| {
        (0..count)
            .map(|_| rng.random::<f32>() - 0.5)
            .collect::<Vec<_>>()
    };
    ScoreGrads {
        logprobs: draw(count),
        entropies: if entropies { draw(count) } else { Vec::new() },
    }
}

/// One graph through the whole decoder.
fn whole(model: &Tiny, rows: &[&Sequence], grads: &ScoreGrads) -> (NamedGrads, Scores) {
    let decoder = track(&model.decoder);
    let found = token_logprobs(&decoder, &model.config, &model.rope, rows).unwrap();
    let scores = found.scores();
    let constant = |values: &[f32]| Tensor::<1>::from_floats(values, &Device::flex()).autodiff();
    let mut loss = (found.logprobs * constant(&grads.logprobs)).sum();
    if !grads.entropies.is_empty() {
        loss = loss + (found.entropy * constant(&grads.entropies)).sum();
    }
    (NamedGrads::collect(&decoder, &loss.backward()), scores)
}

fn numbers(gradients: NamedGrads) -> BTreeMap<String, Vec<f32>> {
    gradients
        .0
        .into_iter()
        .map(|(name, tensor)| (name, tensor.into_data().try_into_vec().unwrap()))
        .collect()
}

fn assert_same(found: NamedGrads, expected: NamedGrads, what: &str) {
    let (found, expected) = (numbers(found), numbers(expected));
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>(),
        "{what}"
    );
    for (name, expected) in expected {
        let scale = expected
            .iter()
            .fold(0.0_f32, |most, value| most.max(value.abs()));
        for (found, expected) in found[&name].iter().zip(&expected) {
            assert!(
                (found - expected).abs() <= 1e-5 * scale,
                "{what} {name}: {found} is not {expected}, of {scale}"
            );
        }
    }
}

fn compare(model: &Tiny, what: &str) {
    let seed = Seed::root(5);
    let mut sequences = sequences(model.config.vocab_size, seed);
    for (coldest, step, entropies) in [(1.0, 0.0, false), (0.7, 0.0, true), (0.7, 0.1, true)] {
        for (index, row) in sequences.iter_mut().enumerate() {
            row.temperatures = vec![coldest + step * index as f32; row.targets.len()];
        }
        let rows: Vec<&Sequence> = sequences.iter().collect();
        let count = rows.iter().map(|row| row.targets.len()).sum();
        let grads = grads(count, entropies, seed.child("grads", &[]));
        let (expected, at_once) = whole(model, &rows, &grads);
        let result = gradients(
            &model.decoder,
            &model.config,
            &model.rope,
            &rows,
            KEPT_BYTES,
            |scores| (grads.clone(), scores.clone()),
        );
        let (found, scores) = result.unwrap();
        for (found, expected) in scores.logprobs.iter().zip(&at_once.logprobs) {
            assert!(
                (found - expected).abs() < 1e-5 * expected.abs().max(1.0),
                "{what}: {found} is not {expected}"
            );
        }
        for (found, expected) in scores.entropies.iter().zip(&at_once.entropies) {
            assert!(
                (found - expected).abs() < 1e-5 * expected.abs().max(1.0),
                "{what}: {found} is not {expected}"
            );
        }
        assert_same(found, expected, &format!("{what} from {coldest} by {step}"));
    }
}

#[test]
fn gradients_of_all_weights_equal_the_whole_graph() {
    for name in FAMILIES {
        compare(&tiny(name, &Device::flex().autodiff()), name);
    }
}

/// Products and activations in bf16 beside weights in f32: the direction of the gradient is that of f32, for a loss whose tokens pull
/// in both directions, where rounding shows most. Of weights as they are usually drawn the cosine is above .999; the tiny models' are
/// drawn ten times as wide. `PyTorch`'s autocast finds the same of both (`compare_autocast.py` beside the fixtures).
#[test]
fn gradients_in_bf16_point_where_those_in_f32_do() {
    let device = Device::flex();
    let wide = FAMILIES.map(|name| (name, tiny(name, &device), 0.995));
    for (name, model, least) in wide.into_iter().chain([("usual", usual(&device), 0.9995)]) {
        let seed = Seed::root(5);
        let sequences = sequences(model.config.vocab_size, seed);
        let rows: Vec<&Sequence> = sequences.iter().collect();
        let count = rows.iter().map(|row| row.targets.len()).sum();
        let grads = grads(count, true, seed.child("grads", &[]));
        let of = |decoder: &Decoder| {
            let (config, rope) = (&model.config, &model.rope);
            let found = gradients(decoder, config, rope, &rows, KEPT_BYTES, |scores| {
                (grads.clone(), scores.clone())
            });
            let (gradients, scores) = found.unwrap();
            let numbers: Vec<f32> = numbers(gradients).into_values().flatten().collect();
            (numbers, scores)
        };
        let (expected, exact) = of(&model.decoder);
        let (found, scores) = of(&model.decoder.copy_to_train(DType::BF16));
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
            products.sum()
        };
        let lengths = dot(&found, &found).sqrt() * dot(&expected, &expected).sqrt();
        let cosine = dot(&found, &expected) / lengths;
        assert!(cosine > least && cosine < 1.0 - 1e-9, "{name}: {cosine}");
        for (found, exact) in scores.logprobs.iter().zip(&exact.logprobs) {
            assert!(
                (found - exact).abs() < 0.02 + 0.02 * exact.abs(),
                "{name}: {found} is not {exact}"
            );
        }
    }
}

/// Four layers of 256 with weights as they are usually drawn.
fn usual(device: &Device) -> Tiny {
    let config = ModelConfig {
        hidden_size: 256,
        intermediate_size: 1024,
        num_hidden_layers: 4,
        head_dim: 64,
        ..tiny("tiny_qwen2", device).config
    };
    Tiny {
        decoder: Decoder::random(&config, Seed::root(3), device),
        rope: RopeTables::new(&config, 128, device),
        config,
    }
}

#[test]
fn gradients_of_an_adapter_equal_the_whole_graph() {
    for name in FAMILIES {
        let mut model = tiny(name, &Device::flex().autodiff());
        let config = LoraConfig {
            rank: 3,
            alpha: 6.0,
            rank_stabilised: false,
            dropout: 0.0,
            targets: Targets::AllLinear,
            base: "base".to_owned(),
        };
        lora::attach(&mut model.decoder, &config, Seed::root(3)).unwrap();
        compare(&model, name);
    }
}

/// The same masks in the forward pass, in layers that are computed again and on the way back.
#[test]
fn gradients_of_an_adapter_with_dropout_equal_the_whole_graph() {
    for name in FAMILIES {
        let mut model = tiny(name, &Device::flex().autodiff());
        let config = LoraConfig {
            rank: 3,
            alpha: 6.0,
            rank_stabilised: false,
            dropout: 0.3,
            targets: Targets::AllLinear,
            base: "base".to_owned(),
        };
        lora::attach(&mut model.decoder, &config, Seed::root(3)).unwrap();
        // An adapter that changes something.
        for (_, map) in model.decoder.linears() {
            if let Some(low_rank) = &mut map.low_rank {
                low_rank.b = low_rank.b.clone().map(|b| b + 0.1);
            }
        }
        let sequences = sequences(model.config.vocab_size, Seed::root(5));
        let ids = ids(sequences.iter());
        let dropout = Dropout {
            rate: config.dropout,
            seed: Seed::root(8),
        };
        let keys = Batch::new(&ids).keys(&ids);
        model.decoder = model.decoder.dropping(dropout, keys);
        compare(&model, name);
    }
}

#[test]
fn sequences_without_a_target_have_no_gradient() {
    let model = tiny("tiny_qwen2", &Device::flex().autodiff());
    let sequence = Sequence {
        ids: vec![1, 2, 3],
        targets: Vec::new(),
        ..Sequence::default()
    };
    let found = gradients(
        &track(&model.decoder),
        &model.config,
        &model.rope,
        &[&sequence],
        KEPT_BYTES,
        |_| (ScoreGrads::default(), ()),
    );
    assert!(found.is_none());
}

/// One worker adds the gradients of a layer to the sum while it goes back, several when a micro-batch is done: both have the bits of
/// micro-batches that are computed by themselves and added in order, part by part.
#[test]
fn gradients_added_on_the_way_have_the_bits_of_those_added_afterwards() {
    for name in FAMILIES {
        let model = tiny(name, &Device::flex());
        let (decoder, config, rope) = (&model.decoder, &model.config, &model.rope);
        let sequences = sequences(config.vocab_size, Seed::root(5));
        let loss = |index: usize, scores: &Scores| {
            let seed = Seed::root(5).child("grads", &[index as u64]);
            (grads(scores.logprobs.len(), false, seed), index)
        };
        let bits = |sums: Vec<NamedGrads>| -> Vec<(String, Vec<u32>)> {
            let all = sums.into_iter().flat_map(numbers);
            let of =
                |values: Vec<f32>| -> Vec<u32> { values.into_iter().map(f32::to_bits).collect() };
            all.map(|(name, values)| (name, of(values))).collect()
        };
        let alone = Workers::new(1).map(sequences.len(), |index| {
            let rows = [&sequences[index]];
            let loss = |scores: &Scores| loss(index, scores);
            gradients(decoder, config, rope, &rows, KEPT_BYTES, loss)
        });
        for folded in [true, false] {
            let sum = |part: &[Option<(NamedGrads, usize)>]| {
                let mut sum = NamedGrads::default();
                for (found, _) in part.iter().flatten() {
                    sum.add(found.clone());
                }
                sum
            };
            let mut expected = vec![sum(&alone[..2]), sum(&alone[2..])];
            if folded {
                let last = expected.pop().unwrap();
                expected[0].add(last);
            }
            let expected = bits(expected);
            let parts = Parts::new(vec![2, 5], folded);
            for workers in [1, 3] {
                let workers = Workers::new(workers);
                let (sums, rests) = workers.gradients_of_parts(&parts, |index, sum| {
                    let rows = [&sequences[index]];
                    let loss = |scores: &Scores| loss(index, scores);
                    add_gradients(sum, decoder, config, rope, &rows, KEPT_BYTES, loss)
                });
                assert!(bits(sums) == expected, "{name}, folded: {folded}");
                // One of them has no target.
                assert_eq!(rests, [0, 2, 3, 4]);
            }
        }
    }
}

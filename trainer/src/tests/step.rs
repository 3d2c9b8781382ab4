//! A whole optimizer step from a file of recorded rollouts gives `PyTorch`'s weights: all of them or an adapter, layer by
//! layer or in one graph, however the step is cut.

use std::collections::BTreeMap;
use std::path::Path;

use super::common::fixtures;
use super::reference::{Tiny, tiny};
use crate::backward;
use crate::grads::{NamedGrads, track};
use crate::logprobs::token_logprobs;
use crate::model::Decoder;
use crate::objective::{Algorithm, Recipe};
use crate::optim::{AdamW, AdamWConfig};
use crate::ranks::Ranks;
use crate::sample::Sample;
use crate::sequence::{Sequence, cut, ids};
use crate::update::{Readings, Scored, loss, minibatches, score};
use crate::weights::adapter;
use crate::weights::write::save_decoder;
use crate::workers::{KEPT_BYTES, Workers};
use burn::tensor::{Device, Tensor};

/// The decoder after the step.
fn step(model: &Tiny, rollouts: &Path, graph: bool, budget: usize) -> Decoder {
    let recipe = Algorithm::default().recipe(1);
    let groups = Sample::read_groups(rollouts, model.config.vocab_size, 128, None).unwrap();
    let rows = minibatches(
        score(groups, &recipe, &Readings::default(), &[]).0,
        1,
        &recipe,
    )
    .pop()
    .unwrap();
    let batches = cut(&ids(rows.iter().map(|row| &row.sequence)), budget);
    let (gradients, _) = Workers::new(2).gradients(batches.len(), |index| {
        let rows: Vec<&Scored> = batches[index].iter().map(|&row| &rows[row]).collect();
        let sequences: Vec<&Sequence> = rows.iter().map(|row| &row.sequence).collect();
        if graph {
            return Some((whole_graph(model, &rows, &sequences, &recipe), ()));
        }
        backward::gradients(
            &model.decoder,
            &model.config,
            &model.rope,
            &sequences,
            KEPT_BYTES,
            |scores| (loss(&rows, &recipe, scores, None).0, ()),
        )
    });
    let config = AdamWConfig {
        learning_rate: 1e-3,
        warmup_steps: 0,
        ..AdamWConfig::default()
    };
    let norm = gradients.global_norm();
    let mut decoder = model.decoder.clone();
    AdamW::new(config)
        .apply(
            &mut decoder,
            &model.config,
            gradients,
            norm,
            &Ranks::alone(),
        )
        .unwrap();
    decoder
}

fn whole_graph(
    model: &Tiny,
    rows: &[&Scored],
    sequences: &[&Sequence],
    recipe: &Recipe,
) -> NamedGrads {
    let decoder = track(&model.decoder);
    let found = token_logprobs(&decoder, &model.config, &model.rope, sequences).unwrap();
    let grads = loss(rows, recipe, &found.scores(), None).0;
    let grads = Tensor::<1>::from_floats(grads.logprobs.as_slice(), &Device::flex()).autodiff();
    NamedGrads::collect(&decoder, &(found.logprobs * grads).sum().backward())
}

fn tensors(path: &Path) -> BTreeMap<String, Vec<f32>> {
    let bytes = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let floats = |data: &[u8]| {
        data.chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect()
    };
    file.iter()
        .map(|(name, view)| (name.to_owned(), floats(view.data())))
        .collect()
}

/// Every tensor of the reference, within 1e-5 of its Euclidean norm. Some gradients of key biases are nearly nothing but
/// rounding (a softmax does not notice what all its scores share), and the first step of Adam makes them as large as any.
fn assert_same(found: &Path, expected: &Path, what: &str) {
    let (found, expected) = (tensors(found), tensors(expected));
    assert!(expected.len() > 5);
    for (name, expected) in expected {
        let norm = |values: &mut dyn Iterator<Item = f32>| {
            values
                .map(|value| f64::from(value).powi(2))
                .sum::<f64>()
                .sqrt()
        };
        let gap = norm(
            &mut found[&name]
                .iter()
                .zip(&expected)
                .map(|(found, expected)| found - expected),
        );
        let size = norm(&mut expected.iter().copied());
        let tolerance = if name.ends_with("k_proj.bias") {
            1e-4
        } else {
            1e-5
        };
        assert!(gap <= tolerance * size, "{what} {name}: {gap} of {size}");
    }
}

/// With and without one graph; all together, some, and each alone, which shares no prompt.
const WAYS: [(bool, usize); 5] = [
    (false, 10_000),
    (false, 80),
    (false, 1),
    (true, 10_000),
    (true, 80),
];

#[test]
fn a_step_of_all_weights_equals_pytorch() {
    let reference = fixtures().join("step/full.safetensors");
    for (graph, budget) in WAYS {
        let model = tiny("tiny_qwen2", &Device::flex().autodiff());
        let decoder = step(&model, &fixtures().join("step/full.jsonl"), graph, budget);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        save_decoder(&path, &decoder).unwrap();
        assert_same(
            &path,
            &reference,
            &format!("graph {graph}, budget {budget}"),
        );
    }
}

#[test]
fn a_step_of_an_adapter_equals_peft() {
    let reference = fixtures().join("step/adapter.safetensors");
    for (graph, budget) in WAYS {
        let mut model = tiny("tiny_qwen3", &Device::flex());
        let config =
            adapter::load(&mut model.decoder, &fixtures().join("lora/all_linear")).unwrap();
        let decoder = step(
            &model,
            &fixtures().join("step/adapter.jsonl"),
            graph,
            budget,
        );
        let folder = tempfile::tempdir().unwrap();
        adapter::save(&decoder, &config, folder.path()).unwrap();
        let path = folder.path().join("adapter_model.safetensors");
        assert_same(
            &path,
            &reference,
            &format!("graph {graph}, budget {budget}"),
        );
    }
}

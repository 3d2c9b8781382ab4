//! Adapters equal PEFT: what they compute, their gradients, their merged weights, their files.

use std::path::{Path, PathBuf};

use forage_contracts::seed::Seed;

use super::common::{assert_bounded, fixtures, floats, json, parameters};
use super::reference::{FAMILIES, assert_close, left, tiny, tokens};
use super::resume;
use crate::backward;
use crate::checkpoint::CheckpointError;
use crate::grads::{NamedGrads, track};
use crate::logprobs::{ScoreGrads, token_logprobs};
use crate::lora::{self, LoraConfig, Targets};
use crate::model::{Batch, Decoder, ModelConfig, RopeTables};
use crate::optim::{AdamW, AdamWConfig};
use crate::ranks::Ranks;
use crate::records::RunError;
use crate::sequence::Sequence;
use crate::weights::{
    Checkpoint, Precision, SaveOptions, adapter, load_decoder_as, save_decoder_as,
};
use crate::workers::KEPT_BYTES;
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Tensor};
use serde_json::Value;

fn references() -> Vec<(String, Value)> {
    let file = json("lora/reference.json");
    file["adapters"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn folder(name: &str) -> PathBuf {
    fixtures().join("lora").join(name)
}

fn sequence() -> Sequence {
    let ids = tokens(&json("lora/reference.json")["tokens"]);
    Sequence {
        targets: (1..ids.len()).collect(),
        ids,
        ..Sequence::default()
    }
}

fn assert_logits(decoder: &Decoder, base: &str, expected: &Value, tolerance: f64, what: &str) {
    let model = tiny(base, &Device::flex());
    let ids = sequence().ids;
    let hidden = decoder.hidden(&model.config, &model.rope, &Batch::new(&[&ids]));
    let logits: Vec<f32> = decoder.logits(hidden).into_data().try_into_vec().unwrap();
    let expected: Vec<f64> = expected
        .as_array()
        .unwrap()
        .iter()
        .flat_map(floats)
        .collect();
    assert_eq!(logits.len(), expected.len());
    for (found, expected) in logits.iter().zip(expected) {
        assert_close(f64::from(*found), expected, tolerance, what);
    }
}

#[test]
fn adapted_and_merged_models_compute_what_peft_computes() {
    for (name, reference) in references() {
        let base = reference["base"].as_str().unwrap();
        let mut decoder = tiny(base, &Device::flex()).decoder;
        let config = adapter::load(&mut decoder, &folder(&name)).unwrap();
        assert_eq!(config.base, base);
        assert_logits(&decoder, base, &reference["logits"], 1e-5, &name);
        assert_logits(
            &decoder.clone().for_inference(false),
            base,
            &reference["logits"],
            1e-5,
            &name,
        );
        lora::merge(&mut decoder);
        assert!(!decoder.is_adapted());
        assert_logits(&decoder, base, &reference["logits"], 1e-5, &name);
        let sum: f64 = parameters(&decoder)
            .values()
            .flat_map(|(v, _)| v)
            .map(|v| f64::from(*v).powi(2))
            .sum();
        assert_close(
            sum,
            reference["merged_square_sum"].as_f64().unwrap(),
            1e-6,
            &name,
        );
    }
}

#[test]
fn only_the_adapter_learns_and_its_gradients_are_those_of_peft() {
    for (name, reference) in references() {
        let base = reference["base"].as_str().unwrap();
        let model = tiny(base, &Device::flex());
        let mut decoder = model.decoder;
        adapter::load(&mut decoder, &folder(&name)).unwrap();
        let tracked = track(&decoder);
        let scored = token_logprobs(&tracked, &model.config, &model.rope, &[&sequence()]).unwrap();
        let loss = scored.logprobs.mean().neg();
        assert_close(
            f64::from(loss.clone().into_scalar::<f32>()),
            reference["loss"].as_f64().unwrap(),
            1e-5,
            &name,
        );
        let gradients = NamedGrads::collect(&tracked, &loss.backward());
        assert_eq!(
            gradients.0.len() as u64,
            reference["trained"].as_u64().unwrap(),
            "{name}"
        );
        assert!(
            gradients.0.keys().all(|key| key.contains(".low_rank.")),
            "{:?}",
            gradients.0.keys()
        );
        let norm = gradients.global_norm();
        assert_close(norm, reference["grad_norm"].as_f64().unwrap(), 3e-5, &name);
        // An update moves the adapter and nothing else; only it has moments.
        let before = parameters(&decoder);
        let mut optimizer = AdamW::new(AdamWConfig {
            warmup_steps: 0,
            learning_rate: 1e-2,
            ..AdamWConfig::default()
        });
        let alone = Ranks::alone();
        optimizer
            .apply(&mut decoder, &model.config, gradients, norm, &alone)
            .unwrap();
        let after = parameters(&decoder);
        for (key, value) in &after {
            assert_eq!(
                *value == before[key],
                !key.contains(".low_rank."),
                "{name} {key}"
            );
        }
        let file = tempfile::tempdir().unwrap();
        optimizer
            .save(&file.path().join("moments"), &alone)
            .unwrap();
        let bytes = std::fs::read(file.path().join("moments")).unwrap();
        let moments = safetensors::SafeTensors::deserialize(&bytes).unwrap().len();
        assert_eq!(moments as u64, 2 * reference["trained"].as_u64().unwrap());
    }
}

#[test]
fn a_saved_adapter_reads_back_and_a_fresh_one_changes_nothing() {
    let out = tempfile::tempdir().unwrap();
    for (name, reference) in references() {
        let base = reference["base"].as_str().unwrap();
        let mut decoder = tiny(base, &Device::flex()).decoder;
        let config = adapter::load(&mut decoder, &folder(&name)).unwrap();
        adapter::save(&decoder, &config, &out.path().join(&name)).unwrap();
        let mut again = tiny(base, &Device::flex()).decoder;
        assert_eq!(
            adapter::load(&mut again, &out.path().join(&name)).unwrap(),
            config
        );
        assert!(parameters(&again) == parameters(&decoder), "{name}");
        assert!(
            parameters(&decoder.without_adapter())
                == parameters(&tiny(base, &Device::flex()).decoder)
        );
    }
    let mut decoder = tiny("tiny_qwen3", &Device::flex()).decoder;
    let config = fresh(Targets::AllLinear);
    lora::attach(&mut decoder, &config, Seed::root(4)).unwrap();
    let found = parameters(&decoder);
    let (a, _) = &found["model.layers.0.mlp.down_proj.low_rank.a"];
    let bound = 1.0 / 80.0_f32.sqrt();
    assert!(
        a.iter().all(|value| value.abs() <= bound)
            && a.iter().any(|value| value.abs() > 0.9 * bound)
    );
    assert!(
        found["model.layers.0.mlp.down_proj.low_rank.b"]
            .0
            .iter()
            .all(|value| *value == 0.0)
    );
    let reference = json("reference_tiny_qwen3.json");
    let merged = |mut decoder: Decoder| {
        lora::merge(&mut decoder);
        parameters(&decoder)
    };
    assert!(
        reference.is_object()
            && merged(decoder) == parameters(&tiny("tiny_qwen3", &Device::flex()).decoder)
    );
}

fn fresh(targets: Targets) -> LoraConfig {
    LoraConfig {
        rank: 4,
        alpha: 8.0,
        rank_stabilised: false,
        dropout: 0.0,
        targets,
        base: "tiny_qwen3".into(),
    }
}

#[test]
fn a_half_precision_base_in_its_file_can_be_adapted_trained_and_merged() {
    let out = tempfile::tempdir().unwrap();
    let source = fixtures().join("tiny_qwen3");
    let config = ModelConfig::from_file(&source.join("config.json")).unwrap();
    let full = tiny("tiny_qwen3", &Device::flex());
    let options = SaveOptions {
        file_type: crate::weights::FileType::Bf16,
        ..SaveOptions::default()
    };
    save_decoder_as(out.path(), &full.decoder, options).unwrap();
    let load = |precision| {
        let mut decoder = load_decoder_as(out.path(), &config, precision, &Device::flex()).unwrap();
        adapter::load(&mut decoder, &folder("names")).unwrap();
        decoder
    };
    let (half, exact) = (load(Precision::Half), load(Precision::Full));
    let gradients = |decoder: &Decoder| {
        let tracked = track(decoder);
        let scored = token_logprobs(&tracked, &config, &full.rope, &[&sequence()]).unwrap();
        NamedGrads::collect(&tracked, &scored.logprobs.mean().backward())
    };
    let (found, expected) = (gradients(&half), gradients(&exact));
    assert_eq!(found.0.len(), 8);
    assert_close(found.global_norm(), expected.global_norm(), 1e-5, "norm");
    let mut merged = half;
    lora::merge(&mut merged);
    let mut exact = exact;
    lora::merge(&mut exact);
    let exact = parameters(&exact);
    for (name, (found, dtype)) in parameters(&merged) {
        assert_eq!(
            dtype,
            if name.contains("norm") {
                DType::F32
            } else {
                DType::BF16
            },
            "{name}"
        );
        for (found, expected) in found.iter().zip(&exact[&name].0) {
            assert_close(f64::from(*found), f64::from(*expected), 4e-3, &name);
        }
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let load = |base: &str, path: &Path| {
        adapter::load(&mut tiny(base, &Device::flex()).decoder, path)
            .unwrap_err()
            .to_string()
    };
    let on = |own: LoraConfig| {
        let decoder = &mut tiny("tiny_qwen3", &Device::flex()).decoder;
        adapter::load_on(&own, decoder, &folder("names")).map_err(|error| error.to_string())
    };
    let own = || LoraConfig::from_file(&folder("names").join("adapter_config.json")).unwrap();
    let calmer = LoraConfig {
        dropout: 0.0,
        ..own()
    };
    assert_eq!((on(own()), on(calmer)), (Ok(()), Ok(())));
    let base = "another".to_owned();
    let error = on(LoraConfig { base, ..own() }).unwrap_err();
    assert!(error.contains("the run begins with another"), "{error}");
    let rank = own().rank + 1;
    let error = on(LoraConfig { rank, ..own() }).unwrap_err();
    assert!(error.contains("another rank than [policy.lora]"), "{error}");
    let alpha = own().alpha * 2.0;
    let error = on(LoraConfig { alpha, ..own() }).unwrap_err();
    assert!(
        error.contains("another alpha than [policy.lora]"),
        "{error}"
    );
    let error = load("tiny_qwen2", &folder("names"));
    assert!(
        error.contains("misshapen") && error.contains("q_proj.lora_A.weight"),
        "{error}"
    );
    let out = tempfile::tempdir().unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(folder("names").join(file), out.path().join(file)).unwrap();
    }
    let path = out.path().join("adapter_config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"down_proj\"", "\"o_proj\"")).unwrap();
    let error = load("tiny_qwen3", out.path());
    assert!(
        error.contains("missing base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight"),
        "{error}"
    );
    assert!(
        error.contains("unexpected base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"),
        "{error}"
    );
    assert_bounded(&path, 16, || load("tiny_qwen3", out.path()));
    std::fs::write(
        &path,
        text.replace("\"use_dora\": false", "\"use_dora\": true"),
    )
    .unwrap();
    assert!(
        load("tiny_qwen3", out.path()).contains("adapter_config.json: use_dora is not supported")
    );
    let mut decoder = tiny("tiny_qwen3", &Device::flex()).decoder;
    let wrong = fresh(Targets::Names(vec!["q_proj".into(), "qkv".into()]));
    let error = lora::attach(&mut decoder, &wrong, Seed::root(1))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`qkv`") && error.contains("gate_proj"),
        "{error}"
    );
}

/// Leaves folders for `make_lora_fixtures.py --check` under the fixtures of the build.
#[test]
fn folders_for_peft_are_written() {
    let out = left("lora");
    for (name, reference) in references() {
        let base = reference["base"].as_str().unwrap();
        let mut decoder = tiny(base, &Device::flex()).decoder;
        let config = adapter::load(&mut decoder, &folder(&name)).unwrap();
        adapter::save(&decoder, &config, &out.join(&name)).unwrap();
        lora::merge(&mut decoder);
        let merged = out.join(format!("{name}-merged"));
        std::fs::create_dir_all(&merged).unwrap();
        std::fs::copy(
            fixtures().join(base).join("config.json"),
            merged.join("config.json"),
        )
        .unwrap();
        save_decoder_as(&merged, &decoder, SaveOptions::default()).unwrap();
        assert!(merged.join("model.safetensors").exists());
    }
}

/// GGML's `Q8_0` with scales in f32, and back: for a matrix `[inputs, outputs]`, blocks of 32 inputs.
fn eight_bits(values: &[f32], outputs: usize) -> Vec<f32> {
    let mut rounded = values.to_vec();
    for block in (0..values.len() / outputs).step_by(32) {
        for output in 0..outputs {
            let places: Vec<usize> = (block..block + 32)
                .map(|input| input * outputs + output)
                .collect();
            let scale = places
                .iter()
                .map(|&place| values[place].abs())
                .fold(0.0, f32::max)
                / 127.0;
            for place in places {
                rounded[place] = (values[place] / scale).round() * scale;
            }
        }
    }
    rounded
}

/// Sets every second matrix of an adapter, which starts at zero, to something.
struct Stir(Vec<String>);

impl ModuleMapper for Stir {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.0.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.0.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let stirred = self.0.ends_with(&["low_rank".to_owned(), "b".to_owned()]);
        if stirred {
            param.map(|b| (b + 0.05).sin())
        } else {
            param
        }
    }
}

#[test]
fn an_adapter_beside_a_base_of_8_bits_learns_as_beside_its_widened_weights() {
    for family in FAMILIES {
        learns_beside_8_bits(family);
    }
    let error = load_decoder_as(
        &fixtures().join("tiny_qwen3"),
        &tiny("tiny_qwen3", &Device::flex()).config,
        Precision::Int8,
        &Device::flex(),
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("q_proj has 40 inputs") && error.contains("choose bf16"),
        "{error}"
    );
}

/// A shape of a family whose inputs are multiples of a block of 8 bits.
fn in_blocks(family: &str) -> ModelConfig {
    ModelConfig {
        hidden_size: 64,
        intermediate_size: 96,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 16,
        ..ModelConfig::from_file(&fixtures().join(family).join("config.json")).unwrap()
    }
}

#[test]
fn maps_of_8_bits_that_are_not_adapted_are_written_too() {
    let (out, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = in_blocks("tiny_qwen3");
    let full = Decoder::random(&config, Seed::root(3), &Device::flex());
    let save = |folder: &Path, decoder: &Decoder| {
        save_decoder_as(folder, decoder, SaveOptions::default()).unwrap();
    };
    let load = |folder: &Path, precision: Precision| {
        load_decoder_as(folder, &config, precision, &Device::flex()).unwrap()
    };
    save(out.path(), &full);
    let kept = load(out.path(), Precision::Int8);
    let mut merged = kept.clone();
    let own = fresh(Targets::Names(vec!["q_proj".into(), "v_proj".into()]));
    lora::attach(&mut merged, &own, Seed::root(4)).unwrap();
    lora::merge(&mut merged);
    for decoder in [kept, merged] {
        save(again.path(), &decoder);
        let found = parameters(&load(again.path(), Precision::Full));
        let projections = parameters(&full).into_iter();
        for (name, (numbers, _)) in projections.filter(|(name, _)| name.contains("_proj.weight")) {
            let expected = eight_bits(&numbers, numbers.len() / inputs(&name, &config));
            for (found, expected) in found[&name].0.iter().zip(expected) {
                assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{name}");
            }
        }
    }
}

fn learns_beside_8_bits(family: &str) {
    let out = tempfile::tempdir().unwrap();
    let config = in_blocks(family);
    let full = Decoder::random(&config, Seed::root(3), &Device::flex());
    save_decoder_as(out.path(), &full, SaveOptions::default()).unwrap();
    let adapter = LoraConfig {
        rank: 4,
        ..fresh(Targets::AllLinear)
    };
    let adapted = |mut decoder: Decoder| {
        lora::attach(&mut decoder, &adapter, Seed::root(4)).unwrap();
        decoder.map(&mut Stir(Vec::new()))
    };
    let kept = || load_decoder_as(out.path(), &config, Precision::Int8, &Device::flex()).unwrap();
    // An adapter that changes nothing, merged, leaves the weights as they are used.
    let mut widened = kept();
    lora::attach(&mut widened, &adapter, Seed::root(4)).unwrap();
    lora::merge(&mut widened);
    let found = parameters(&widened);
    for (name, (expected, _)) in parameters(&full) {
        let (found, dtype) = &found[&name];
        let projection = name.contains("_proj.weight");
        assert_eq!(
            *dtype,
            if name.contains("_proj") || name.contains("norm") {
                DType::F32
            } else {
                DType::BF16
            },
            "{name}"
        );
        let (expected, off) = if projection {
            (
                eight_bits(&expected, expected.len() / inputs(&name, &config)),
                1e-6,
            )
        } else {
            (expected, 4e-3)
        };
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() <= off * expected.abs(),
                "{name}: {found} instead of {expected}"
            );
        }
    }
    let (eight, widened) = (adapted(kept()), adapted(widened));
    let rope = RopeTables::new(&config, 64, &Device::flex());
    let sequences = [&sequence()];
    let (found, ()) =
        backward::gradients(&eight, &config, &rope, &sequences, KEPT_BYTES, |scores| {
            let count = scores.logprobs.len();
            (
                ScoreGrads {
                    logprobs: vec![1.0 / count as f32; count],
                    entropies: Vec::new(),
                },
                (),
            )
        })
        .unwrap();
    let tracked = track(&widened);
    let scored = token_logprobs(&tracked, &config, &rope, &sequences).unwrap();
    let expected = NamedGrads::collect(&tracked, &scored.logprobs.mean().backward());
    assert_eq!(found.0.len(), expected.0.len());
    for (name, expected) in &expected.0 {
        let norm = |x: Tensor<1>| f64::from(x.square().sum().into_scalar::<f32>()).sqrt();
        let off = norm(found.0[name].clone() - expected.clone().inner());
        assert!(
            off <= 1e-5 * norm(expected.clone().inner()),
            "{name}: {off}"
        );
    }
}

fn inputs(name: &str, config: &ModelConfig) -> usize {
    match name {
        name if name.contains("o_proj") => config.num_attention_heads * config.head_dim,
        name if name.contains("down_proj") => config.intermediate_size,
        _ => config.hidden_size,
    }
}

#[tokio::test]
async fn an_adapter_is_not_gone_on_with_on_other_weights_of_its_base() {
    let folder = tempfile::tempdir().unwrap();
    let config = resume::config();
    let run = async |start: Checkpoint, resumes: bool| {
        let (ran, _) = resume::run_as(&config, start, folder.path(), resumes, 2).await;
        ran
    };
    let ran = run(resume::adapted(), false).await;
    assert!(
        matches!(ran, Err(RunError::Interrupted { step: 2, .. })),
        "{ran:?}"
    );
    let mut other = resume::adapted();
    other.decoder = other.decoder.scaled(1.5);
    match run(other, true).await {
        Err(RunError::Checkpoint(CheckpointError::File { path, message })) => {
            assert!(path.ends_with("step-000002/state.json"), "{path:?}");
            assert!(
                message.contains("other weights than those of base now"),
                "{message}"
            );
        }
        ran => panic!("{ran:?}"),
    }
    let ran = run(resume::adapted(), true).await;
    assert!(
        matches!(ran, Err(RunError::Interrupted { step: 4, .. })),
        "{ran:?}"
    );
}

//! Hugging Face folders: what is written reads back, what is broken is named.

use std::path::Path;

use forage_contracts::Tokenizer;
use forage_contracts::seed::Seed;

use crate::tests::common::problem::checkpoint;
use crate::tests::common::{assert_bounded, fixtures, parameters};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Tensor, bf16, f16};
use forage_trainer::model::{Decoder, ModelConfig};
use forage_trainer::weights::{
    Checkpoint, FileType, Precision, SaveOptions, load_decoder_as, load_decoder_like,
};
use forage_trainer::{LoraConfig, Targets};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

#[test]
fn a_saved_folder_reads_back_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a"), folder.path().join("b"));
    let start = checkpoint(3);
    start.save(&first).unwrap();
    let loaded = Checkpoint::load(&first, &Device::flex()).unwrap();
    loaded.save(&second).unwrap();
    for name in [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        assert!(
            std::fs::read(first.join(name)).unwrap() == std::fs::read(second.join(name)).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn an_adapter_appears_when_it_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("policy");
    let mut start = checkpoint(3);
    let config = LoraConfig {
        rank: 2,
        alpha: 4.0,
        rank_stabilised: false,
        dropout: 0.0,
        targets: Targets::AllLinear,
        base: "base".to_owned(),
    };
    start.adapt(config, Seed::root(1)).unwrap();
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // Nothing can be written beside the place.
    let beside = folder.path().join(".partial-policy");
    std::fs::write(&beside, "").unwrap();
    start.save_adapter(&place).unwrap_err();
    assert!(!place.exists());
    std::fs::remove_file(&beside).unwrap();
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("left"), "").unwrap();
    start.save_adapter(&place).unwrap();
    let files = [
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(names(&place), files);
    // What its policy writes is read without the base.
    let tokenizer = Checkpoint::tokenizer_of(&place).unwrap();
    let ids = start.tokenizer.encode("What is it?");
    assert_eq!(tokenizer.encode("What is it?"), ids);
    assert_eq!(names(folder.path()), ["policy"]);
}

#[test]
fn weights_of_another_shape_do_not_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("a");
    let start = checkpoint(3);
    start.save(&folder).unwrap();
    let load = |shape: &ModelConfig| {
        let loaded = load_decoder_like(&folder, shape, &Device::flex());
        loaded.map(drop).map_err(|error| error.to_string())
    };
    let own = start.config;
    assert_eq!(load(&own), Ok(()));
    let wider = ModelConfig {
        hidden_size: 64,
        ..own.clone()
    };
    let untied = ModelConfig {
        tie_word_embeddings: false,
        ..own
    };
    for (shape, key) in [(wider, "hidden_size"), (untied, "tie_word_embeddings")] {
        let error = load(&shape).unwrap_err();
        let expected = format!("config.json: has another {key}");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn texts_that_are_no_files_or_too_long_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("a");
    checkpoint(3).save(&folder).unwrap();
    let load = || {
        let loaded = Checkpoint::load(&folder, &Device::flex());
        loaded.unwrap_err().to_string()
    };
    for (name, most) in [
        ("config.json", 16),
        ("generation_config.json", 16),
        ("tokenizer_config.json", 16),
        ("tokenizer.json", 64),
        ("chat_template.jinja", 64),
        ("model.safetensors.index.json", 64),
    ] {
        assert_bounded(&folder.join(name), most, load);
    }
    // Short enough, but its tree of values would take many times the memory.
    std::fs::write(folder.join("config.json"), "[],".repeat(500_001)).unwrap();
    assert!(load().contains("config.json: cannot be read: it holds more than 1000000 values"));
}

/// Copies `tiny_qwen2` with its tensors changed by `keep`.
fn changed(keep: impl Fn(&str) -> Option<String>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let source = fixtures().join("tiny_qwen2");
    std::fs::copy(
        source.join("config.json"),
        folder.path().join("config.json"),
    )
    .unwrap();
    let bytes = std::fs::read(source.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors: Vec<(String, TensorView<'_>)> = file
        .tensors()
        .into_iter()
        .filter_map(|(name, view)| Some((keep(&name)?, view)))
        .collect();
    safetensors::serialize_to_file(tensors, None, &folder.path().join("model.safetensors"))
        .unwrap();
    let config = ModelConfig::from_file(&folder.path().join("config.json")).unwrap();
    Decoder::load(folder.path(), &config, &Device::flex())
        .unwrap_err()
        .to_string()
}

#[test]
fn missing_and_unexpected_tensors_are_named() {
    let error = changed(|name| (!name.contains("layers.1.mlp.up_proj")).then(|| name.to_owned()));
    assert!(
        error.contains("missing") && error.contains("layers.1.mlp.up_proj.weight"),
        "{error}"
    );
    let error =
        changed(|name| Some(name.replace("layers.0.input_layernorm", "layers.7.input_layernorm")));
    assert!(
        error.contains("unexpected") && error.contains("layers.7.input_layernorm"),
        "{error}"
    );
}

#[test]
fn truncated_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = fixtures().join("tiny_qwen2");
    let config = ModelConfig::from_file(&source.join("config.json")).unwrap();
    let bytes = std::fs::read(source.join("model.safetensors")).unwrap();
    for length in [0, 5, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(folder.path().join("model.safetensors"), &bytes[..length]).unwrap();
        let error = Decoder::load(folder.path(), &config, &Device::flex())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("model.safetensors") && error.contains("truncated"),
            "{length}: {error}"
        );
    }
}

#[test]
fn misshapen_and_quantised_tensors_are_named() {
    let error = rewritten("tiny_qwen3", |name, dtype, shape, bytes| {
        let half = name.ends_with("layers.0.mlp.gate_proj.weight");
        let shape = if half {
            vec![shape[0] * 2, shape[1] / 2]
        } else {
            shape
        };
        Some((name, dtype, shape, bytes))
    });
    let error = load_full(error.path()).unwrap_err();
    assert!(
        error.contains(
            "misshapen model.layers.0.mlp.gate_proj.weight ([160, 20] instead of [80, 40])"
        ),
        "{error}"
    );
    let folder = rewritten("tiny_qwen3", |name, dtype, shape, bytes| {
        let narrow = name.ends_with("layers.1.mlp.up_proj.weight");
        let bytes: Vec<u8> = if narrow {
            bytes.into_iter().step_by(4).collect()
        } else {
            bytes
        };
        Some((
            name,
            if narrow { Dtype::F8_E4M3 } else { dtype },
            shape,
            bytes,
        ))
    });
    let error = load_full(folder.path()).unwrap_err();
    assert!(
        error.contains("up_proj.weight (F8_E4M3)") && error.contains("bf16 release"),
        "{error}"
    );
}

#[test]
fn half_precision_files_load_as_their_exact_values() {
    let full = parameters(&load(&fixtures().join("tiny_qwen2"), Precision::Full));
    for dtype in [Dtype::BF16, Dtype::F16] {
        let folder = narrowed("tiny_qwen2", dtype);
        for (name, (values, kind)) in parameters(&load(folder.path(), Precision::Full)) {
            assert_eq!(kind, DType::F32);
            let round = |value: &f32| match dtype {
                Dtype::F16 => f16::from_f32(*value).to_f32(),
                _ => bf16::from_f32(*value).to_f32(),
            };
            assert!(full[&name].0.iter().map(round).eq(values), "{name}");
        }
    }
}

#[test]
fn matrices_stay_in_the_file_when_asked() {
    let half = narrowed("tiny_qwen3", Dtype::BF16);
    let stored = rewritten("tiny_qwen3", |name, dtype, shape, bytes| {
        Some((name, dtype, shape, bytes))
    });
    for (folder, precision, kind) in [
        (&half, Precision::Half, DType::BF16),
        (&half, Precision::Stored, DType::BF16),
        (&stored, Precision::Stored, DType::F32),
    ] {
        let decoder = load(folder.path(), precision);
        let mapped = file_range(&folder.path().join("model.safetensors"));
        let mut places = Places::default();
        decoder.visit(&mut places);
        assert_eq!(places.matrices.len(), 16);
        assert!(
            places
                .matrices
                .iter()
                .all(|(start, end)| mapped.0 <= *start && *end <= mapped.1)
        );
        let expected = parameters(&load(folder.path(), Precision::Full));
        for (name, (values, found)) in parameters(&decoder) {
            let matrix = !name.contains("norm");
            assert_eq!(found, if matrix { kind } else { DType::F32 }, "{name}");
            assert!(values == expected[&name].0, "{name}");
        }
    }
    // f32 in the file, bf16 asked for: rounded into memory.
    let decoder = load(stored.path(), Precision::Half);
    let expected = parameters(&load(half.path(), Precision::Full));
    for (name, (values, _)) in parameters(&decoder)
        .into_iter()
        .filter(|(name, _)| !name.contains("norm"))
    {
        assert!(values == expected[&name].0, "{name}");
    }
}

#[test]
fn unaligned_tensors_are_copied() {
    let folder = narrowed("tiny_qwen3", Dtype::BF16);
    let path = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    // One more space at the header's end moves every tensor to an odd address.
    let mut moved = (header + 1).to_le_bytes().to_vec();
    moved.extend(&bytes[8..8 + header as usize]);
    moved.push(b' ');
    moved.extend(&bytes[8 + header as usize..]);
    let expected = parameters(&load(folder.path(), Precision::Half));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, moved).unwrap();
    assert!(parameters(&load(folder.path(), Precision::Half)) == expected);
}

#[test]
fn a_tied_head_may_be_a_copy_and_nothing_else() {
    let tied = |change: bool| {
        let mut head = None;
        let source = std::fs::read(fixtures().join("tiny_qwen2/model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&source).unwrap();
        for (name, view) in file.tensors() {
            if name == "model.embed_tokens.weight" {
                let mut bytes = view.data().to_vec();
                bytes[5] ^= u8::from(change);
                head = Some((view.shape().to_vec(), bytes));
            }
        }
        let (shape, head) = head.unwrap();
        let mut tensors = file.tensors();
        tensors.push((
            "lm_head.weight".to_owned(),
            TensorView::new(Dtype::F32, shape, &head).unwrap(),
        ));
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(
            fixtures().join("tiny_qwen2/config.json"),
            folder.path().join("config.json"),
        )
        .unwrap();
        safetensors::serialize_to_file(tensors, None, &folder.path().join("model.safetensors"))
            .unwrap();
        load_full(folder.path())
    };
    tied(false).unwrap();
    let error = tied(true).unwrap_err();
    assert!(
        error.contains("lm_head.weight differs") && error.contains("tie_word_embeddings"),
        "{error}"
    );
}

#[test]
fn shards_read_back_and_missing_ones_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("sharded");
    let start = checkpoint(3);
    start
        .save_with(
            &target,
            SaveOptions {
                file_type: FileType::F32,
                shard_bytes: 30_000,
            },
        )
        .unwrap();
    let index: Value = serde_json::from_slice(
        &std::fs::read(target.join("model.safetensors.index.json")).unwrap(),
    )
    .unwrap();
    let total = start.config.parameters() * 4;
    assert_eq!(index["metadata"]["total_size"], json!(total));
    assert!(!target.join("model.safetensors").exists());
    let loaded = Checkpoint::load(&target, &Device::flex()).unwrap();
    assert!(parameters(&loaded.decoder) == parameters(&start.decoder));
    let last = index["weight_map"]["model.norm.weight"].as_str().unwrap();
    std::fs::remove_file(target.join(last)).unwrap();
    let error = Checkpoint::load(&target, &Device::flex())
        .unwrap_err()
        .to_string();
    assert!(error.contains(last), "{error}");
}

#[test]
fn half_precision_is_written_as_such_and_read_back_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a"), folder.path().join("b"));
    let options = SaveOptions {
        file_type: FileType::Bf16,
        ..SaveOptions::default()
    };
    checkpoint(3).save_with(&first, options).unwrap();
    let loaded = Checkpoint::load_as(&first, Precision::Half, &Device::flex()).unwrap();
    loaded.save_with(&second, options).unwrap();
    for name in ["config.json", "model.safetensors"] {
        assert!(
            std::fs::read(first.join(name)).unwrap() == std::fs::read(second.join(name)).unwrap(),
            "{name}"
        );
    }
    let config: Value =
        serde_json::from_slice(&std::fs::read(first.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["torch_dtype"], "bfloat16");
}

#[test]
fn files_beside_the_weights_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a"), folder.path().join("b"));
    checkpoint(3).save(&first).unwrap();
    let edit = |name: &str, keys: Value| {
        let path = first.join(name);
        let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        value
            .as_object_mut()
            .unwrap()
            .extend(keys.as_object().unwrap().clone());
        std::fs::write(path, format!("{value:#}\n")).unwrap();
    };
    edit(
        "config.json",
        json!({"eos_token_id": [5, 0], "max_window_layers": 21, "sliding_window": null, "use_cache": true}),
    );
    edit(
        "generation_config.json",
        json!({"eos_token_id": [7, 0, 9], "temperature": 0.6, "top_k": 20, "top_p": 0.95}),
    );
    let list = json!([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "{{ messages }}"}]);
    edit(
        "tokenizer_config.json",
        json!({"chat_template": list, "added_tokens_decoder": {"0": {"content": "x"}}}),
    );
    let loaded = Checkpoint::load(&first, &Device::flex()).unwrap();
    assert_eq!(loaded.ends, [0, 7, 9]);
    assert_eq!(
        (
            loaded.generation.temperature,
            loaded.generation.top_k,
            loaded.generation.min_p
        ),
        (Some(0.6), Some(20), None)
    );
    assert_eq!(loaded.chat_template.as_deref(), Some("{{ messages }}"));
    assert_eq!(
        loaded
            .chat
            .as_ref()
            .map(forage_env::chat::ChatTemplate::source),
        Some("{{ messages }}")
    );
    loaded.save(&second).unwrap();
    for name in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        assert!(
            std::fs::read(first.join(name)).unwrap() == std::fs::read(second.join(name)).unwrap(),
            "{name}"
        );
    }
    assert!(!second.join("chat_template.jinja").exists());
    // A template of its own file wins, and a changed one is written there.
    std::fs::write(second.join("chat_template.jinja"), "{{ own }}").unwrap();
    let mut loaded = Checkpoint::load(&second, &Device::flex()).unwrap();
    assert_eq!(loaded.chat_template.as_deref(), Some("{{ own }}"));
    loaded.chat_template = Some("{{ changed }}".to_owned());
    loaded.save(&first).unwrap();
    assert_eq!(
        std::fs::read_to_string(first.join("chat_template.jinja")).unwrap(),
        "{{ changed }}"
    );
    std::fs::write(first.join("tokenizer_config.json"), "{").unwrap();
    let error = Checkpoint::load(&first, &Device::flex())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tokenizer_config.json") && error.contains("not JSON"),
        "{error}"
    );
}

/// Copies a fixture with every tensor changed by `change` (name, type, shape, bytes).
fn rewritten(
    fixture: &str,
    change: impl Fn(String, Dtype, Vec<usize>, Vec<u8>) -> Option<(String, Dtype, Vec<usize>, Vec<u8>)>,
) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = fixtures().join(fixture);
    std::fs::copy(
        source.join("config.json"),
        folder.path().join("config.json"),
    )
    .unwrap();
    let bytes = std::fs::read(source.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let changed: Vec<_> = file
        .tensors()
        .into_iter()
        .filter_map(|(name, view)| {
            change(
                name,
                view.dtype(),
                view.shape().to_vec(),
                view.data().to_vec(),
            )
        })
        .collect();
    let views = changed.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, &folder.path().join("model.safetensors")).unwrap();
    folder
}

/// Copies a fixture with its matrices rounded to a half-precision type.
fn narrowed(fixture: &str, to: Dtype) -> tempfile::TempDir {
    rewritten(fixture, |name, _, shape, bytes| {
        let values = bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&word| f32::from_le_bytes(word));
        let bytes = match to {
            Dtype::F16 => values
                .flat_map(|value| f16::from_f32(value).to_le_bytes())
                .collect(),
            _ => values
                .flat_map(|value| bf16::from_f32(value).to_le_bytes())
                .collect(),
        };
        Some((name, to, shape, bytes))
    })
}

fn load(folder: &Path, precision: Precision) -> Decoder {
    let config = ModelConfig::from_file(&folder.join("config.json")).unwrap();
    load_decoder_as(folder, &config, precision, &Device::flex()).unwrap()
}

fn load_full(folder: &Path) -> Result<Decoder, String> {
    let config = ModelConfig::from_file(&folder.join("config.json")).unwrap();
    Decoder::load(folder, &config, &Device::flex()).map_err(|error| error.to_string())
}

/// Where the numbers of every matrix stand in memory.
#[derive(Default)]
struct Places {
    matrices: Vec<(usize, usize)>,
}

impl ModuleVisitor for Places {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if D == 2 {
            let primitive = param
                .val()
                .try_into_primitive::<burn::backend::Flex>()
                .unwrap();
            let start = primitive.bytes().as_ptr() as usize;
            self.matrices.push((start, start + primitive.bytes().len()));
        }
    }
}

/// The addresses at which this process has a file mapped.
fn file_range(path: &Path) -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps
        .lines()
        .find(|line| line.ends_with(path.to_str().unwrap()))
        .unwrap();
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    (
        usize::from_str_radix(start, 16).unwrap(),
        usize::from_str_radix(end, 16).unwrap(),
    )
}

#[test]
fn a_random_model_of_no_published_shape_is_refused_with_the_names_of_those() {
    let unknown = Checkpoint::random(
        "Mistral-7B",
        None,
        Seed::root(1),
        Precision::Half,
        &Device::flex(),
    )
    .unwrap_err();
    assert!(
        unknown.to_string().contains("Mistral-7B") && unknown.to_string().contains("Qwen3-0.6B"),
        "{unknown}"
    );
}

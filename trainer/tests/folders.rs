//! Hugging Face folders: what is written reads back, what is broken is named.

mod common;

use burn::tensor::Device;
use common::fixtures;
use common::problem::checkpoint;
use forage_trainer::model::ModelConfig;
use forage_trainer::weights::{Checkpoint, load_decoder};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

#[test]
fn a_saved_folder_reads_back_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a"), folder.path().join("b"));
    let start = checkpoint(3);
    start.save(&first).unwrap();
    let loaded = Checkpoint::load(&first, &Device::flex()).unwrap();
    loaded.save(&second).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        assert!(std::fs::read(first.join(name)).unwrap() == std::fs::read(second.join(name)).unwrap(), "{name}");
    }
}

/// Copies `tiny_qwen2` with its tensors changed by `keep`.
fn changed(keep: impl Fn(&str) -> Option<String>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let source = fixtures().join("tiny_qwen2");
    std::fs::copy(source.join("config.json"), folder.path().join("config.json")).unwrap();
    let bytes = std::fs::read(source.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors: Vec<(String, TensorView<'_>)> =
        file.tensors().into_iter().filter_map(|(name, view)| Some((keep(&name)?, view))).collect();
    safetensors::serialize_to_file(tensors, None, &folder.path().join("model.safetensors")).unwrap();
    let config = ModelConfig::from_file(&folder.path().join("config.json")).unwrap();
    load_decoder(folder.path(), &config, &Device::flex()).unwrap_err().to_string()
}

#[test]
fn missing_and_unexpected_tensors_are_named() {
    let error = changed(|name| (!name.contains("layers.1.mlp.up_proj")).then(|| name.to_owned()));
    assert!(error.contains("missing") && error.contains("layers.1.mlp.up_proj.weight"), "{error}");
    let error = changed(|name| Some(name.replace("layers.0.input_layernorm", "layers.7.input_layernorm")));
    assert!(error.contains("unexpected") && error.contains("layers.7.input_layernorm"), "{error}");
}

#[test]
fn truncated_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = fixtures().join("tiny_qwen2");
    let config = ModelConfig::from_file(&source.join("config.json")).unwrap();
    let bytes = std::fs::read(source.join("model.safetensors")).unwrap();
    for length in [0, 5, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(folder.path().join("model.safetensors"), &bytes[..length]).unwrap();
        let error = load_decoder(folder.path(), &config, &Device::flex()).unwrap_err().to_string();
        assert!(error.contains("model.safetensors") && error.contains("truncated"), "{length}: {error}");
    }
}

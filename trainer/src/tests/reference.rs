//! Tiny checkpoints with the numbers that transformers and `PyTorch` get from them.

use std::path::PathBuf;

use burn::tensor::Device;
use serde_json::Value;

use super::common::{fixtures, floats};
use crate::model::{Decoder, ModelConfig, RopeTables};

/// A tiny model of each family.
pub(super) const FAMILIES: [&str; 4] = ["tiny_qwen2", "tiny_qwen3", "tiny_llama", "tiny_olmo2"];

pub(super) fn tokens(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

/// Positions whose mask is 1.
pub(super) fn targets(mask: &Value) -> Vec<usize> {
    floats(mask)
        .iter()
        .enumerate()
        .filter(|(_, mask)| **mask > 0.5)
        .map(|(position, _)| position)
        .collect()
}

pub(super) struct Tiny {
    pub(super) config: ModelConfig,
    pub(super) decoder: Decoder,
    pub(super) rope: RopeTables,
}

pub(super) fn tiny(name: &str, device: &Device) -> Tiny {
    let folder = fixtures().join(name);
    let config = ModelConfig::from_file(&folder.join("config.json")).unwrap();
    let decoder = Decoder::load(&folder, &config, device).unwrap();
    let rope = RopeTables::new(&config, 128, &device.clone().without_autodiff());
    Tiny {
        config,
        decoder,
        rope,
    }
}

pub(crate) fn assert_close(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!(
        (found - expected).abs() <= tolerance * expected.abs().max(1.0),
        "{what}: {found} is not {expected}"
    );
}

/// The folder where tests leave what scripts beside the fixtures check: `tmp` in the build's folder, as for integration tests.
pub(super) fn left(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    // `TARGET/PROFILE/deps/TEST`
    own.ancestors().nth(3).unwrap().join("tmp").join(name)
}

//! Reference fixtures written by `tests/fixtures/make_fixtures.py`.

pub(crate) mod problem;
pub(crate) mod tool_caller;

use std::path::PathBuf;

use burn::tensor::Device;
use forage_trainer::model::{Decoder, ModelConfig, RopeTables};
use forage_trainer::weights::load_decoder;
use serde_json::Value;

/// A tiny model of each family.
pub(crate) const FAMILIES: [&str; 4] = ["tiny_qwen2", "tiny_qwen3", "tiny_llama", "tiny_olmo2"];

pub(crate) fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

pub(crate) fn json(name: &str) -> Value {
    let text = std::fs::read_to_string(fixtures().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub(crate) fn floats(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_f64().unwrap())
        .collect()
}

pub(crate) fn tokens(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

/// Positions whose mask is 1.
pub(crate) fn targets(mask: &Value) -> Vec<usize> {
    floats(mask)
        .iter()
        .enumerate()
        .filter(|(_, mask)| **mask > 0.5)
        .map(|(position, _)| position)
        .collect()
}

pub(crate) struct Tiny {
    pub(crate) config: ModelConfig,
    pub(crate) decoder: Decoder,
    pub(crate) rope: RopeTables,
}

pub(crate) fn tiny(name: &str, device: &Device) -> Tiny {
    let folder = fixtures().join(name);
    let config = ModelConfig::from_file(&folder.join("config.json")).unwrap();
    let decoder = load_decoder(&folder, &config, device).unwrap();
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

//! The warm-started policy that ships inside the binary; `configs/quickstart/README.md` says how it was made.

use std::path::Path;

use anyhow::{Context, Result};
use forage_trainer::device::DeviceSpec;
use forage_trainer::weights::Checkpoint;

const FILES: [(&str, &[u8]); 4] = [
    ("config.json", include_bytes!("../../configs/quickstart/config.json")),
    ("tokenizer_config.json", include_bytes!("../../configs/quickstart/tokenizer_config.json")),
    ("tokenizer.json", include_bytes!("../../configs/quickstart/tokenizer.json")),
    ("model.safetensors", include_bytes!("../../configs/quickstart/model.safetensors")),
];

/// Loads it, by way of a temporary folder because weights are memory-mapped.
pub(crate) fn load(device: &DeviceSpec) -> Result<Checkpoint> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    for (name, bytes) in FILES {
        write(&folder.path().join(name), bytes)?;
    }
    Ok(Checkpoint::load(folder.path(), &device.open()?)?)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

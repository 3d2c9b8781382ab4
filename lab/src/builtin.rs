//! The warm-started policies that ship inside the binary; the `README.md` beside each says how it was made.

use std::path::Path;

use forage_trainer::Checkpoint;
use forage_trainer::device::DeviceSpec;

use crate::error::{Context, Result, bail};

/// Files of a checkpoint by name.
type Files = [(&'static str, &'static [u8]); 4];

macro_rules! checkpoint {
    ($folder:literal) => {
        [
            (
                "config.json",
                include_bytes!(concat!("../../configs/", $folder, "/config.json")),
            ),
            (
                "tokenizer_config.json",
                include_bytes!(concat!("../../configs/", $folder, "/tokenizer_config.json")),
            ),
            (
                "tokenizer.json",
                include_bytes!(concat!("../../configs/", $folder, "/tokenizer.json")),
            ),
            (
                "model.safetensors",
                include_bytes!(concat!("../../configs/", $folder, "/model.safetensors")),
            ),
        ]
    };
}

const POLICIES: [(&str, Files); 2] = [
    ("quickstart", checkpoint!("quickstart")),
    ("quickstart-code", checkpoint!("quickstart-code")),
];

/// The files of the policy of this name.
fn files(name: &str) -> Result<&'static Files> {
    let Some((_, files)) = POLICIES.iter().find(|(known, _)| *known == name) else {
        let known: Vec<String> = POLICIES
            .iter()
            .map(|(known, _)| format!("`builtin:{known}`"))
            .collect();
        bail!(
            "there is no builtin policy `{name}`; there are {}",
            known.join(" and ")
        );
    };
    Ok(files)
}

/// The digest of the policy of this name, which another version of the program may have other weights for.
pub(crate) fn digest(name: &str) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    for (name, bytes) in files(name)? {
        hasher.update(name.as_bytes());
        hasher.update(bytes);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Loads the policy of this name, by way of a temporary folder because weights are memory-mapped.
pub(crate) fn load(name: &str, device: &DeviceSpec) -> Result<Checkpoint> {
    let files = files(name)?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    for (name, bytes) in files {
        write(&folder.path().join(name), bytes)?;
    }
    Ok(Checkpoint::load(folder.path(), &device.open()?)?)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

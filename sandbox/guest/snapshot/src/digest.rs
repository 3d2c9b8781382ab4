//! What the interpreter was made of and by what, written beside it.

use std::fs;
use std::path::{Path, PathBuf};

use wasmtime::Result;
use wasmtime::error::Context;

/// What is made, not a source.
const MADE: [&str; 3] = ["python.wasm.zst", "guest.toml", "target"];

/// Writes `guest.toml`.
pub(crate) fn write(guest: &Path, toolchain: &str, compressed: &[u8]) -> Result<()> {
    let text = format!(
        "# Written by build.sh: what python.wasm.zst is and what it was made from.\n\
         artifact = \"{}\"\nsources = \"{}\"\ntoolchain = \"{toolchain}\"\n",
        blake3::hash(compressed).to_hex(),
        sources(guest)?,
    );
    let path = guest.join("guest.toml");
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// One digest of every source file with its path, in order.
fn sources(guest: &Path) -> Result<String> {
    let mut files = Vec::new();
    collect(guest, &mut files)?;
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in files {
        let name = file.strip_prefix(guest)?.to_string_lossy().replace('\\', "/");
        let bytes = fs::read(&file)?;
        hasher.update(name.as_bytes()).update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| MADE.contains(&name)) {
            continue;
        }
        if path.is_dir() { collect(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

//! The committed interpreter is the one its sources make.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
struct Made {
    artifact: String,
    sources: String,
    toolchain: String,
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if ["python.wasm.zst", "guest.toml", "target"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// As `guest/snapshot/src/digest.rs` makes it.
fn digest_of_sources(guest: &Path) -> String {
    let mut files = Vec::new();
    collect(guest, &mut files);
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in files {
        let name = file
            .strip_prefix(guest)
            .unwrap()
            .to_str()
            .unwrap()
            .replace('\\', "/");
        let bytes = fs::read(&file).unwrap();
        hasher
            .update(name.as_bytes())
            .update(&(bytes.len() as u64).to_le_bytes())
            .update(&bytes);
    }
    hasher.finalize().to_hex().to_string()
}

#[test]
fn the_committed_interpreter_is_made_of_its_sources() {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest");
    let made: Made =
        toml::from_str(&fs::read_to_string(guest.join("guest.toml")).unwrap()).unwrap();
    let artifact = blake3::hash(&fs::read(guest.join("python.wasm.zst")).unwrap()).to_hex();
    let advice = "; run sandbox/guest/build.sh and commit what it makes";
    assert_eq!(
        made.artifact,
        artifact.as_str(),
        "python.wasm.zst is not what guest.toml describes{advice}"
    );
    assert_eq!(
        made.sources,
        digest_of_sources(&guest),
        "the interpreter's sources have changed since it was built{advice}"
    );
    assert!(made.toolchain.starts_with("rustc 1."), "{}", made.toolchain);
}

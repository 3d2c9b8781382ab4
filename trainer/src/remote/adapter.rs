//! Names of adapters on a server.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::error::RemoteError;

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";

/// A name that says version and content, so that neither another version nor another run's adapter, nor anything that a
/// server cached under one, is ever taken for it.
pub(super) fn name(folder: &Path, version: u64) -> Result<String, RemoteError> {
    let mut hasher = blake3::Hasher::new();
    for file in [CONFIG, TENSORS] {
        let path = folder.join(file);
        let read = File::open(&path).and_then(|mut file| std::io::copy(&mut file, &mut hasher));
        if let Err(cause) = read {
            let what =
                format!("it cannot be read ({cause}); an adapter needs {CONFIG} and {TENSORS}");
            return Err(RemoteError::Folder { path, what });
        }
    }
    let digest = hasher.finalize().to_hex();
    Ok(format!("forage-{version}-{}", &digest[..12]))
}

/// A folder as the server needs it: from the root, since its working folder is another.
pub(super) fn absolute(folder: &Path) -> Result<(PathBuf, String), RemoteError> {
    let wrong = |what: String| RemoteError::Folder {
        path: folder.to_owned(),
        what,
    };
    let path = std::path::absolute(folder)
        .map_err(|cause| wrong(format!("its place is unknown ({cause})")))?;
    if !path.is_dir() {
        return Err(wrong(
            "it is not a folder; name one that the server sees at the same place".to_owned(),
        ));
    }
    let text = path
        .to_str()
        .ok_or_else(|| wrong("its name is not text; choose another".to_owned()))?
        .to_owned();
    Ok((path, text))
}

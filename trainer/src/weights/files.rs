//! The weight files of a folder, mapped into memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use forage_net::FileBounds;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde::Deserialize;

use super::WeightsError;
use super::disk::read;

/// One tensor of a file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) dtype: Dtype,
    /// As in the file: `[out, in]` for matrices.
    pub(crate) shape: Vec<usize>,
    /// Part of the mapped file; keeps it mapped.
    pub(crate) bytes: Bytes,
}

/// Every tensor of a folder by its name.
#[derive(Debug)]
pub(crate) struct WeightFiles {
    pub(crate) folder: PathBuf,
    pub(crate) tensors: BTreeMap<String, Stored>,
}

impl WeightFiles {
    /// Maps `model.safetensors` or the shards that the index names.
    ///
    /// # Errors
    /// [`WeightsError`] that names the file that is missing, truncated or damaged.
    pub(crate) fn open(folder: &Path) -> Result<Self, WeightsError> {
        let mut tensors = BTreeMap::new();
        for path in safetensors_files(folder)? {
            for (name, stored) in open_file(&path)? {
                if tensors.insert(name.clone(), stored).is_some() {
                    let message = format!(
                        "holds `{name}`, as another shard does; download the checkpoint again"
                    );
                    return Err(WeightsError::Tensors { path, message });
                }
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            tensors,
        })
    }
}

/// Maps one safetensors file.
///
/// # Errors
/// [`WeightsError`] that names the file.
pub(crate) fn open_file(path: &Path) -> Result<Vec<(String, Stored)>, WeightsError> {
    let bytes = map(path).map_err(|source| WeightsError::Io {
        path: path.to_owned(),
        source,
    })?;
    let parsed = parse(path, &bytes)?;
    let stored = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        (
            name,
            Stored {
                dtype: view.dtype(),
                shape: view.shape().to_vec(),
                bytes: bytes.slice_ref(view.data()),
            },
        )
    };
    Ok(parsed.tensors().into_iter().map(stored).collect())
}

/// The tensors of the bytes of a safetensors file.
///
/// # Errors
/// [`WeightsError::Tensors`] that names the file.
pub(crate) fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>, WeightsError> {
    SafeTensors::deserialize(bytes).map_err(|error| {
        let what = match error {
            SafeTensorError::HeaderTooSmall
            | SafeTensorError::InvalidHeaderLength
            | SafeTensorError::MetadataIncompleteBuffer => {
                "is truncated, or of another length than its header says".to_owned()
            }
            error => format!("is not a safetensors file: {error}"),
        };
        WeightsError::Tensors {
            path: path.to_owned(),
            message: format!("{what}; download it again"),
        }
    })
}

/// Maps a file into memory.
#[expect(
    unsafe_code,
    reason = "mapping a file is unsafe because another process may change or cut it meanwhile"
)]
pub(crate) fn map(path: &Path) -> std::io::Result<Bytes> {
    // Opening a pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        let what = "is not a file; put one in its place";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what));
    }
    let file = std::fs::File::open(path)?;
    // SAFETY: the map is read only, and files of checkpoints are replaced by renaming a new file over the old one, which leaves
    // the mapped one whole; the same holds of every program that maps checkpoints.
    let map = unsafe { memmap2::Mmap::map(&file) }?;
    Ok(Bytes::from_owner(map))
}

/// The weight files of a folder: the shards its index names, else `model.safetensors`.
pub(crate) fn safetensors_files(folder: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let index = folder.join(INDEX);
    if !index.exists() {
        return Ok(vec![folder.join(SINGLE)]);
    }
    let names = shard_names(&index)?;
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Name of the only weight file of a folder.
pub(super) const SINGLE: &str = "model.safetensors";
/// Name of the list of shards.
pub(super) const INDEX: &str = "model.safetensors.index.json";

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The shards that an index names.
pub(super) fn shard_names(index: &Path) -> Result<BTreeSet<String>, WeightsError> {
    let fail = |message: String| WeightsError::Tensors {
        path: index.to_owned(),
        message,
    };
    let text = read(index, FileBounds::LIST)?;
    let parsed: Index = serde_json::from_slice(&text).map_err(|error| {
        fail(format!(
            "is not an index of shards: {error}; download it again"
        ))
    })?;
    let names: BTreeSet<String> = parsed.weight_map.into_values().collect();
    if names.is_empty() {
        return Err(fail(
            "has an empty weight_map; download it again".to_owned(),
        ));
    }
    // Names become paths: one that leaves the folder is not a shard of this checkpoint.
    let outside = names
        .iter()
        .find(|name| Path::new(name).file_name() != Some(std::ffi::OsStr::new(name.as_str())));
    outside.map_or(Ok(()), |name| {
        Err(fail(format!(
            "names the shard `{name}`, which is not a plain file name"
        )))
    })?;
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(bytes: &[u8]) -> Result<usize, WeightsError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(SINGLE);
        std::fs::write(&path, bytes).unwrap();
        Ok(open_file(&path)?.len())
    }

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    const HEADER: &str = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]}}"#;

    #[test]
    fn hostile_headers_are_refused() {
        assert_eq!(opened(&file(HEADER, 12)).unwrap(), 2);
        let cut = opened(&file(HEADER, 11)).unwrap_err();
        assert!(cut.to_string().contains("truncated"));
        let most = u64::MAX.to_string();
        for (from, to) in [
            ("12]", most.as_str()),
            ("[2]", "[4611686018427387905,4]"),
            ("[2]", "[18446744073709551615,2]"),
            ("[0,8]", "[8,0]"),
            ("[0,8]", "[0]"),
            ("[0,8]", "[-1,8]"),
            ("\"F32\"", "\"X\""),
        ] {
            let to = if from == "12]" {
                format!("{to}]")
            } else {
                to.to_owned()
            };
            assert!(
                opened(&file(&HEADER.replace(from, &to), 12)).is_err(),
                "{to}"
            );
        }
        for length in [u64::MAX, u64::MAX - 7, 100_000_001, 1 << 62] {
            let mut bytes = file(HEADER, 12);
            bytes[..8].copy_from_slice(&length.to_le_bytes());
            assert!(opened(&bytes).is_err(), "{length}");
        }
    }

    #[test]
    fn mutated_files_are_read_or_refused() {
        let whole = file(HEADER, 12);
        let mut read = 0;
        for place in 0..whole.len() {
            for byte in [0, b'0', b'9', b'-', b'"', b'}', b']', 0xFF] {
                let mut bytes = whole.clone();
                bytes[place] = byte;
                read += usize::from(opened(&bytes).is_ok());
            }
            assert!(opened(&whole[..place]).is_err());
        }
        assert!(read > 0);
    }
}

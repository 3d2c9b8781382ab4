//! The weight files of a folder, mapped into memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use forage_net::FileBounds;
use safetensors::{Dtype, SafeTensors};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{WeightsError, read};

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
    check_readable(path)?;
    let bytes = map(path).map_err(|source| WeightsError::Io {
        path: path.to_owned(),
        source,
    })?;
    let parsed = SafeTensors::deserialize(&bytes).map_err(|error| WeightsError::Tensors {
        path: path.to_owned(),
        message: format!("is not a safetensors file: {error}; download it again"),
    })?;
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

#[expect(
    unsafe_code,
    reason = "mapping a file is unsafe because another process may change or cut it meanwhile"
)]
pub(crate) fn map(path: &Path) -> std::io::Result<Bytes> {
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

/// Finds truncation before the file is mapped: the header says how long the file must be.
pub(crate) fn check_readable(path: &Path) -> Result<(), WeightsError> {
    let fail = |message: String| WeightsError::Tensors {
        path: path.to_owned(),
        message,
    };
    let io = |source| WeightsError::Io {
        path: path.to_owned(),
        source,
    };
    // Opening a pipe would wait for a writer.
    let found = std::fs::metadata(path).map_err(io)?;
    if !found.is_file() {
        return Err(fail("is not a file; download it again".to_owned()));
    }
    let length = found.len();
    let file = std::fs::File::open(path).map_err(io)?;
    let mut head = [0_u8; 8];
    std::io::Read::read_exact(&mut &file, &mut head)
        .map_err(|_| fail("is truncated; download it again".to_owned()))?;
    let header = u64::from_le_bytes(head);
    if header > length.min(MOST_HEADER) {
        return Err(fail(
            "is truncated or no safetensors file; download it again".to_owned(),
        ));
    }
    let mut text = vec![0_u8; header as usize];
    std::io::Read::read_exact(&mut &file, &mut text)
        .map_err(|_| fail("is truncated; download it again".to_owned()))?;
    let End(data) = serde_json::from_slice(&text)
        .map_err(|_| fail("has a damaged header; download it again".to_owned()))?;
    match data.checked_add(8 + header) {
        Some(whole) if whole <= length => Ok(()),
        Some(whole) => Err(fail(format!(
            "is truncated: {length} bytes of {whole}; download it again"
        ))),
        None => Err(fail("has a damaged header; download it again".to_owned())),
    }
}

/// Most bytes of a header: the library's own limit.
const MOST_HEADER: u64 = 100_000_000;

/// The end of the last tensor that a header names; nothing else of it is kept.
struct End(u64);

impl<'de> Deserialize<'de> for End {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Tensor {
            data_offsets: Option<[u64; 2]>,
        }

        struct Tensors;

        impl<'de> Visitor<'de> for Tensors {
            type Value = End;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<End, A::Error> {
                let mut end = 0;
                while let Some((_, tensor)) = map.next_entry::<IgnoredAny, Tensor>()? {
                    end = end.max(tensor.data_offsets.map_or(0, |[_, end]| end));
                }
                Ok(End(end))
            }
        }

        deserializer.deserialize_map(Tensors)
    }
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
        for length in [u64::MAX, u64::MAX - 7, MOST_HEADER + 1, 1 << 62] {
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

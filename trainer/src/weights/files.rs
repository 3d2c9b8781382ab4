//! The weight files of a folder, mapped into memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use safetensors::{Dtype, SafeTensors};

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
    let bytes = map(path)?;
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
fn map(path: &Path) -> Result<Bytes, WeightsError> {
    let fail = |source| WeightsError::Io {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(fail)?;
    // SAFETY: the map is read only, and weight files are replaced by renaming a new file over the old one, which leaves
    // the mapped one whole; the same holds of every program that maps checkpoints.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(fail)?;
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

/// The shards that an index names.
pub(super) fn shard_names(index: &Path) -> Result<BTreeSet<String>, WeightsError> {
    let fail = |message: String| WeightsError::Tensors {
        path: index.to_owned(),
        message,
    };
    let value: serde_json::Value = serde_json::from_slice(&read(index)?)
        .map_err(|_| fail("is no JSON; download it again".to_owned()))?;
    let map = value.get("weight_map").and_then(|map| map.as_object());
    let map = map
        .filter(|map| !map.is_empty())
        .ok_or_else(|| fail("has no weight_map; download it again".to_owned()))?;
    let names: BTreeSet<String> = map
        .values()
        .filter_map(|name| name.as_str())
        .map(str::to_owned)
        .collect();
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
    let file = std::fs::File::open(path).map_err(|source| WeightsError::Io {
        path: path.to_owned(),
        source,
    })?;
    let length = file
        .metadata()
        .map_err(|source| WeightsError::Io {
            path: path.to_owned(),
            source,
        })?
        .len();
    let mut head = [0_u8; 8];
    std::io::Read::read_exact(&mut &file, &mut head)
        .map_err(|_| fail("is truncated; download it again".to_owned()))?;
    let header = u64::from_le_bytes(head);
    if header > length {
        return Err(fail(
            "is truncated or no safetensors file; download it again".to_owned(),
        ));
    }
    let mut text = vec![0_u8; header as usize];
    std::io::Read::read_exact(&mut &file, &mut text)
        .map_err(|_| fail("is truncated; download it again".to_owned()))?;
    let value: serde_json::Value = serde_json::from_slice(&text)
        .map_err(|_| fail("has a damaged header; download it again".to_owned()))?;
    let end = |tensor: &serde_json::Value| {
        tensor
            .get("data_offsets")
            .and_then(|ends| ends.get(1)?.as_u64())
    };
    let data = value
        .as_object()
        .into_iter()
        .flat_map(|map| map.values())
        .filter_map(end)
        .max()
        .unwrap_or(0);
    if 8 + header + data > length {
        let message = format!(
            "is truncated: {length} bytes of {}; download it again",
            8 + header + data
        );
        return Err(fail(message));
    }
    Ok(())
}

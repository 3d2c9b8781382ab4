//! Numbers of a file, mapped, or in memory.

use std::path::Path;

use bytemuck::Pod;
use forage_contracts::retriever::RetrieverError;
use tantivy::directory::{Directory, MmapDirectory, OwnedBytes};

use super::fault;

/// Little-endian numbers of one type, one after another.
pub(super) enum Table<T> {
    /// Mapped by tantivy, which keeps unsafe code out of this crate. A mapping begins on a page, so it is aligned.
    Mapped(OwnedBytes),
    Owned(Vec<T>),
}

impl<T: Pod> Table<T> {
    /// Maps a file of which `unit` bytes make a whole; `fix` says what to do about a damaged one.
    ///
    /// # Errors
    /// [`RetrieverError::Vectors`] when the file is missing or does not hold whole units.
    pub(super) fn open(path: &Path, unit: usize, fix: &str) -> Result<Self, RetrieverError> {
        if cfg!(target_endian = "big") {
            return Err(fault(
                path,
                "the file is little-endian and this processor is not; use another machine",
            ));
        }
        let bytes = map(path, fix)?;
        if unit == 0 || !bytes.len().is_multiple_of(unit) {
            let found = bytes.len();
            return Err(fault(
                path,
                format!("{found} bytes are not whole rows of {unit} bytes; {fix}"),
            ));
        }
        if bytes.is_empty() {
            // There is nothing to map, so nothing that could be aligned.
            return Ok(Self::Owned(Vec::new()));
        }
        if bytemuck::try_cast_slice::<u8, T>(&bytes).is_err() {
            return Err(fault(
                path,
                "the mapping is not aligned to four bytes; copy the file to a local disk",
            ));
        }
        Ok(Self::Mapped(bytes))
    }

    pub(super) fn values(&self) -> &[T] {
        match self {
            // The cast was tried when the file was opened.
            Self::Mapped(bytes) => bytemuck::cast_slice(bytes),
            Self::Owned(values) => values,
        }
    }
}

fn map(path: &Path, fix: &str) -> Result<OwnedBytes, RetrieverError> {
    let unreadable = |cause: String| fault(path, format!("cannot be mapped ({cause}); {fix}"));
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let name = path
        .file_name()
        .ok_or_else(|| unreadable("not a file".to_owned()))?;
    let directory = MmapDirectory::open(folder).map_err(|cause| unreadable(cause.to_string()))?;
    let file = directory
        .open_read(Path::new(name))
        .map_err(|cause| unreadable(cause.to_string()))?;
    file.read_bytes()
        .map_err(|cause| unreadable(cause.to_string()))
}

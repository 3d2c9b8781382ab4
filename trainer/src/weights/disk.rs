//! Files of a checkpoint folder, and folders that appear when they are complete.

use std::path::{Path, PathBuf};

use forage_net::FileBounds;

use super::WeightsError;
use crate::folder;

/// Writes a folder that gets its name when it is on the disk; one that was there is replaced, and stays until then.
pub(super) fn save_folder(
    folder: &Path,
    write: impl FnOnce(&Path) -> Result<(), WeightsError>,
) -> Result<(), WeightsError> {
    write_beside(folder, write, |partial| {
        folder::sync(partial)?;
        Ok(folder::publish(partial, folder, &beside(folder, "old"))?)
    })
}

/// As [`save_folder`], for who reads the folder at once: nobody waits for the disk.
pub(super) fn write_folder(
    folder: &Path,
    write: impl FnOnce(&Path) -> Result<(), WeightsError>,
) -> Result<(), WeightsError> {
    write_beside(folder, write, |partial| {
        let _ = std::fs::remove_dir_all(folder);
        std::fs::rename(partial, folder).map_err(|source| WeightsError::Io {
            path: folder.to_owned(),
            source,
        })
    })
}

/// The place of a folder that stands for another one.
fn beside(folder: &Path, role: &str) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".{role}-{name}"))
}

/// Writes a folder beside its place, and lets `publish` give it its name. Nothing partial stays.
fn write_beside(
    folder: &Path,
    write: impl FnOnce(&Path) -> Result<(), WeightsError>,
    publish: impl FnOnce(&Path) -> Result<(), WeightsError>,
) -> Result<(), WeightsError> {
    let partial = beside(folder, "partial");
    let _ = std::fs::remove_dir_all(&partial);
    let written = write(&partial).and_then(|()| publish(&partial));
    if written.is_err() {
        let _ = std::fs::remove_dir_all(&partial);
    }
    written
}

/// JSON as people read it.
pub(super) fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

pub(crate) fn read(path: &Path, bounds: FileBounds) -> Result<Vec<u8>, WeightsError> {
    bounds.read(path).map_err(|source| WeightsError::Io {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), WeightsError> {
    std::fs::write(path, bytes).map_err(|source| WeightsError::Io {
        path: path.to_owned(),
        source,
    })
}

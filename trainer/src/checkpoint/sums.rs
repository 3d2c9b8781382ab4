//! Digests of a checkpoint's files, in the form that `b3sum --check` reads.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::{CheckpointError, at, list};
use crate::folder::sync;

/// Name of the file with the digests of all others.
pub(super) const SUMS: &str = "BLAKE3SUMS";
/// Folders within folders of a checkpoint; deeper ones are not of this program.
const MOST_DEPTH: usize = 4;

/// Writes the digests of a checkpoint that is complete. Afterwards every file and folder of it is on the disk.
pub(super) fn seal(folder: &Path) -> Result<(), CheckpointError> {
    let mut text = String::new();
    for (name, digest) in digests(folder)? {
        let _ = writeln!(text, "{digest}  {name}");
    }
    let path = folder.join(SUMS);
    std::fs::write(&path, text).map_err(at(&path))?;
    Ok(sync(folder)?)
}

/// Checks a checkpoint's files against their digests. Returns whether it has any: those of older versions have none.
pub(super) fn verify(folder: &Path) -> Result<bool, CheckpointError> {
    let sums = folder.join(SUMS);
    let text = match std::fs::read_to_string(&sums) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            return Err(damaged(folder, SUMS, "is damaged"));
        }
        Err(error) => return Err(at(&sums)(error)),
    };
    let found = digests(folder)?;
    let mut named = 0;
    for line in text.lines() {
        let (digest, name) = line
            .split_once("  ")
            .ok_or_else(|| damaged(folder, SUMS, "is damaged"))?;
        match found.get(name) {
            Some(found) if found == digest => named += 1,
            Some(_) => {
                return Err(damaged(
                    folder,
                    name,
                    "is damaged: its digest is not the one in BLAKE3SUMS",
                ));
            }
            None => return Err(damaged(folder, name, "is missing")),
        }
    }
    if named < found.len() {
        return Err(damaged(
            folder,
            SUMS,
            "is damaged: it does not name every file",
        ));
    }
    Ok(true)
}

/// The error of a checkpoint that is not as it was written, with the ways to go on.
pub(super) fn damaged(folder: &Path, file: &str, fault: &str) -> CheckpointError {
    let before = folder.parent().and_then(Path::parent).and_then(|run| {
        let earlier = list(run).ok()?;
        let place = earlier.iter().position(|other| other == folder)?;
        Some(earlier[place.checked_sub(1)?].clone())
    });
    let fix = match before {
        Some(before) => format!(
            "to go on from the checkpoint before it, remove the folder {} and --resume, or begin a new run with --from {}",
            folder.display(),
            before.display()
        ),
        None => "there is no checkpoint before it: start a new run".to_owned(),
    };
    CheckpointError::File {
        path: folder.join(file),
        message: format!("{fault}; {fix}"),
    }
}

/// Digests of all files by their paths within the folder.
fn digests(folder: &Path) -> Result<BTreeMap<String, String>, CheckpointError> {
    let files = content(folder)?;
    let digest = |(name, path): (String, PathBuf)| {
        let mut hasher = blake3::Hasher::new();
        let opened = File::open(&path).map_err(at(&path))?;
        hasher.update_reader(opened).map_err(at(&path))?;
        Ok((name, hasher.finalize().to_hex().to_string()))
    };
    let others = files.into_par_iter().filter(|(name, _)| name != SUMS);
    others.map(digest).collect()
}

/// Files with their paths within the folder.
pub(super) fn content(folder: &Path) -> Result<Vec<(String, PathBuf)>, CheckpointError> {
    let (mut files, mut folders) = (Vec::new(), vec![(String::new(), folder.to_owned())]);
    let mut next = 0;
    while let Some((prefix, folder)) = folders.get(next).cloned() {
        for entry in std::fs::read_dir(&folder).map_err(at(&folder))? {
            let path = entry.map_err(at(&folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = format!("{prefix}{name}");
            let found = std::fs::symlink_metadata(&path).map_err(at(&path))?;
            if found.is_dir() && name.matches('/').count() < MOST_DEPTH {
                folders.push((format!("{name}/"), path));
            } else if found.is_file() {
                files.push((name, path));
            } else {
                return Err(CheckpointError::File {
                    path,
                    message: "is neither a file nor a folder of a checkpoint; remove it".to_owned(),
                });
            }
        }
        next += 1;
    }
    Ok(files)
}

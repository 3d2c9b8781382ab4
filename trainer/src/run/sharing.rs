//! The checkpoint that a run resumes from, sent by rank 0 to the other processes, which need no shared file system.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::checkpoint;
use crate::ranks::Ranks;
use crate::records::RunError;
use crate::student::LearnError;

/// Bytes of a file that are sent at a time.
const PIECE: u64 = 8 << 20;

/// The announcement of the files that rank 0 is about to send.
#[derive(Serialize, Deserialize)]
struct Parcel {
    /// The checkpoint's own name; none where the run begins anew.
    name: Option<String>,
    /// Names and bytes of its files.
    files: Vec<(String, u64)>,
}

/// Sends rank 0's checkpoint `newest` to the others, which store it under their `run`. Returns its path on this rank.
pub(super) fn share(
    ranks: &Ranks,
    newest: Option<PathBuf>,
    run: &Path,
) -> Result<Option<PathBuf>, RunError> {
    if ranks.size() == 1 {
        return Ok(newest);
    }
    let failed = |error| RunError::Learn {
        step: 0,
        source: LearnError::Ranks(error),
    };
    let unreadable = || failed(ranks.wrong(0, "sends no checkpoint"));
    let mut own = Parcel {
        name: None,
        files: Vec::new(),
    };
    let mut places = Vec::new();
    if let (Some(folder), true) = (&newest, ranks.is_first()) {
        let name = folder.file_name().unwrap_or_default();
        own.name = Some(name.to_string_lossy().into_owned());
        for (name, path) in checkpoint::files(folder)? {
            let bytes = std::fs::metadata(&path).map_err(at(&path))?.len();
            own.files.push((name, bytes));
            places.push(path);
        }
    }
    let written = serde_json::to_vec(&own).map_err(|_| unreadable())?;
    let said = ranks.of_first(written).map_err(failed)?;
    let parcel: Parcel = serde_json::from_slice(&said).map_err(|_| unreadable())?;
    let Some(name) = parcel.name else {
        return Ok(None);
    };
    let all = parcel.files.iter().map(|(name, _)| name);
    if !all.chain([&name]).all(|name| is_inside(name)) {
        return Err(unreadable());
    }
    let folder = run.join(checkpoint::FOLDER).join(name);
    for (index, (name, bytes)) in parcel.files.iter().enumerate() {
        let path = places.get(index).cloned();
        let path = path.unwrap_or_else(|| folder.join(name));
        let mut file = if ranks.is_first() {
            File::open(&path).map_err(at(&path))?
        } else {
            let parent = path.parent().unwrap_or(&folder);
            std::fs::create_dir_all(parent).map_err(at(parent))?;
            File::create(&path).map_err(at(&path))?
        };
        let mut left = *bytes;
        while left > 0 {
            let mut piece = Vec::new();
            if ranks.is_first() {
                let read = (&mut file).take(left.min(PIECE)).read_to_end(&mut piece);
                read.map_err(at(&path))?;
            }
            let piece = ranks.of_first(piece).map_err(failed)?;
            // A file that shrinks meanwhile would never be complete.
            if piece.is_empty() || piece.len() as u64 > left {
                return Err(unreadable());
            }
            left -= piece.len() as u64;
            if !ranks.is_first() {
                file.write_all(&piece).map_err(at(&path))?;
            }
        }
    }
    Ok(Some(newest.unwrap_or(folder)))
}

/// Tells whether a name stays within the folder that it is joined to.
fn is_inside(name: &str) -> bool {
    let mut parts = Path::new(name).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> RunError {
    |source| RunError::Sent {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_of_the_folder_are_known() {
        for name in ["step-000002", "model/config.json"] {
            assert!(is_inside(name), "{name}");
        }
        for name in ["", "/etc/passwd", "../x", "model/../../x", "."] {
            assert!(!is_inside(name), "{name}");
        }
    }
}

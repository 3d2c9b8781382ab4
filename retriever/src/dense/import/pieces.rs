//! A file that was cut into pieces, as large ones are published, read as one.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use forage_contracts::retriever::RetrieverError;

use crate::dense::fault;

/// Pieces in order. None is held in memory.
pub(super) struct Pieces {
    /// Each with the place of its end in the whole.
    files: Vec<(File, u64)>,
    position: u64,
}

impl Pieces {
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self, RetrieverError> {
        let mut files = Vec::with_capacity(paths.len());
        let mut end = 0;
        for path in paths {
            let opened = open(path);
            let (file, length) = opened.map_err(|cause| {
                fault(path, format!("cannot be opened ({cause}); check the path"))
            })?;
            end += length;
            files.push((file, end));
        }
        Ok(Self { files, position: 0 })
    }

    pub(super) fn length(&self) -> u64 {
        self.files.last().map_or(0, |&(_, end)| end)
    }

    /// Bytes from where the next read begins.
    pub(super) fn left(&self) -> u64 {
        self.length().saturating_sub(self.position)
    }

    /// The place where the next read begins.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Leaves bytes out, all that are left at most.
    pub(super) fn skip(&mut self, bytes: u64) {
        self.position = self.position.saturating_add(bytes).min(self.length());
    }

    pub(super) fn read_at(&mut self, place: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.position = place;
        self.read_exact(bytes)
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok((file, about.len()))
}

impl Read for Pieces {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let at = self.files.partition_point(|&(_, end)| end <= self.position);
        let begin = at.checked_sub(1).map_or(0, |before| self.files[before].1);
        let Some((file, end)) = self.files.get_mut(at) else {
            return Ok(0);
        };
        file.seek(SeekFrom::Start(self.position - begin))?;
        let most = usize::try_from(*end - self.position).unwrap_or(usize::MAX);
        let most = most.min(bytes.len());
        let count = file.read(&mut bytes[..most])?;
        self.position += count as u64;
        Ok(count)
    }
}

//! Comparison of an index with its manifest.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rayon::prelude::*;

use super::manifest::{FileRecord, Manifest};
use super::open::Index;
use crate::corpus::CorpusHasher;
use crate::error::IndexError;

/// Largest index whose digests are checked on every opening, bytes.
const CHECKED_ON_OPENING: u64 = 256 << 20;
/// Bytes read at a time.
const BUFFER_BYTES: usize = 1 << 20;

impl Index {
    /// Checks the size and the digest of every file of an index folder, on all threads of the current rayon pool, and
    /// opens it.
    ///
    /// # Errors
    /// [`IndexError::Damaged`], which names the file, or as [`Index::open`].
    pub fn verify(folder: impl AsRef<Path>) -> Result<Self, IndexError> {
        Self::found(folder.as_ref(), Self::verify_generation)
    }

    pub(super) fn verify_generation(
        folder: &Path,
        manifest: &Manifest,
    ) -> Result<Self, IndexError> {
        manifest.check_sizes(folder)?;
        check_digests(folder, manifest)?;
        Self::open_segments(folder, manifest)
    }

    /// Reads every stored passage and compares their digest with the manifest's: whether the segments together hold the
    /// passages the index was built from.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] when they differ.
    pub fn verify_contents(&self) -> Result<(), IndexError> {
        if self.digest_contents()? == self.manifest.contents_digest {
            Ok(())
        } else {
            Err(self.damaged("stored passages do not have the digest in the manifest".to_owned()))
        }
    }

    pub(super) fn digest_contents(&self) -> Result<String, IndexError> {
        let mut hasher = CorpusHasher::new();
        for segment in &self.segments {
            for local in 0..segment.info.passages {
                let document = segment.document(local)?;
                hasher.update(
                    document.id,
                    document.title,
                    document.text,
                    &document.fields(),
                );
            }
        }
        Ok(hasher.finish())
    }
}

pub(super) fn check_digests_if_small(folder: &Path, manifest: &Manifest) -> Result<(), IndexError> {
    if manifest.bytes() <= CHECKED_ON_OPENING {
        check_digests(folder, manifest)
    } else {
        Ok(())
    }
}

/// Of several damaged files the first in the manifest is named.
fn check_digests(folder: &Path, manifest: &Manifest) -> Result<(), IndexError> {
    let files: Vec<(String, &FileRecord)> = manifest.files().collect();
    let faults: Vec<Option<String>> = files
        .par_iter()
        .map(|(name, expected)| match record(&folder.join(name)) {
            Ok(found) if found == **expected => None,
            Ok(_) => Some(format!("`{name}` does not have the digest in the manifest")),
            Err(cause) => Some(format!("`{name}` cannot be read ({cause})")),
        })
        .collect();
    match faults.into_iter().flatten().next() {
        Some(what) => Err(IndexError::Damaged {
            path: folder.to_owned(),
            what,
        }),
        None => Ok(()),
    }
}

/// Size and digest of a file as it is now.
pub(crate) fn record(path: &Path) -> io::Result<FileRecord> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut bytes = 0;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(FileRecord {
                bytes,
                blake3: hasher.finalize().to_hex().to_string(),
            });
        }
        hasher.update_rayon(&buffer[..count]);
        bytes += count as u64;
    }
}

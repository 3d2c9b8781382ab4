//! An opened index.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use tantivy::directory::{Directory, MmapDirectory, OwnedBytes};

use super::manifest::Manifest;
use super::store::{Document, Store, read_u32};
use super::{BOUNDS_FILE, BY_ID_FILE, DOCS_FILE, OFFSETS_FILE, POSTINGS_FOLDER};
use crate::bm25::{Bm25Params, Postings, Scorer, Scratch};
use crate::corpus::CorpusHasher;
use crate::error::{IndexError, RetrieverError};

/// A corpus with its postings, read-only, shared between threads.
///
/// Files are memory-mapped: opening takes milliseconds and resident memory is what queries touch, plus one byte per
/// passage.
pub struct Index {
    pub(super) place: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) parts: Parts,
}

/// Everything but the manifest.
pub(super) struct Parts {
    pub(super) store: Store,
    pub(super) by_id: OwnedBytes,
    pub(super) bounds: OwnedBytes,
    pub(super) postings: Postings,
}

impl Index {
    /// Opens an index folder after checking that every file is there in full length.
    ///
    /// # Errors
    /// [`IndexError::Missing`], [`IndexError::Version`], [`IndexError::Analyzer`], [`IndexError::Damaged`], or a failure
    /// of the file system or the postings engine.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, IndexError> {
        let folder = folder.as_ref();
        let manifest = Manifest::read(folder)?;
        manifest.check_files(folder)?;
        let parts = Parts {
            store: Store::new(map(folder, DOCS_FILE)?, map(folder, OFFSETS_FILE)?),
            by_id: map(folder, BY_ID_FILE)?,
            bounds: map(folder, BOUNDS_FILE)?,
            postings: open_postings(folder)?,
        };
        let index = Self { place: folder.to_owned(), manifest, parts };
        index.check_tables()?;
        Ok(index)
    }

    /// The tables must agree with each other on the number of passages and terms.
    fn check_tables(&self) -> Result<(), IndexError> {
        let Parts { store, by_id, bounds, postings } = &self.parts;
        let passages = self.manifest.counts.passages as usize;
        let tables = [
            ("passages", store.len(), passages),
            ("ids", by_id.len() / 4, passages),
            ("lengths", postings.norms().len(), passages),
            ("term bounds", bounds.len() / 4, postings.terms()),
        ];
        for (name, found, expected) in tables {
            if found != expected {
                return Err(self.damaged(format!("{found} {name} where {expected} are expected")));
            }
        }
        Ok(())
    }

    /// What the index was built from and how.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The folder, or `memory`.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Number of passages; ordinals run from 0 to this.
    pub fn len(&self) -> usize {
        self.parts.store.len()
    }

    /// Whether there are no passages; a built index has at least one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The passage with this ordinal (its place in the corpus), in constant time.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] when there is no such ordinal or its stored bytes make no sense.
    pub fn document(&self, ordinal: u32) -> Result<Document<'_>, IndexError> {
        self.parts.store.get(ordinal).ok_or_else(|| self.damaged(format!("passage {ordinal} cannot be read")))
    }

    /// The ordinal of an external id, by binary search over the mapped id table.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] when a stored id cannot be read.
    pub fn ordinal_of(&self, id: &str) -> Result<Option<u32>, IndexError> {
        let (mut low, mut high) = (0, self.len() as u32);
        while low < high {
            let middle = low + (high - low) / 2;
            let ordinal = self.ordinal_at_rank(middle)?;
            match self.document(ordinal)?.id.cmp(id) {
                Ordering::Equal => return Ok(Some(ordinal)),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// Refuses an index of another corpus.
    ///
    /// # Errors
    /// [`IndexError::CorpusMismatch`] when the manifest's digest is not `expected_digest`.
    pub fn verify_corpus(&self, expected_digest: &str) -> Result<(), IndexError> {
        let found = &self.manifest.corpus_digest;
        if found == expected_digest {
            return Ok(());
        }
        let (index, expected) = (self.place.clone(), expected_digest.to_owned());
        Err(IndexError::CorpusMismatch { index, expected, found: found.clone() })
    }

    /// Reads every stored passage and compares their digest with the manifest's: finds damage that keeps lengths.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] when they differ.
    pub fn verify_contents(&self) -> Result<(), IndexError> {
        let mut hasher = CorpusHasher::new();
        for ordinal in 0..self.len() as u32 {
            let document = self.document(ordinal)?;
            hasher.update(document.id, document.title, document.text);
        }
        if hasher.finish() == self.manifest.corpus_digest {
            Ok(())
        } else {
            Err(self.damaged("stored passages do not have the digest in the manifest".to_owned()))
        }
    }

    /// Norm tables for these constants.
    pub(crate) fn scorer(&self, params: Bm25Params) -> Scorer {
        Scorer::new(&self.parts.postings, params)
    }

    /// The best `k` ordinals for a bag of words, best first, ties by external id.
    pub(crate) fn top(
        &self,
        scorer: &Scorer,
        params: Bm25Params,
        text: &str,
        k: usize,
        scratch: &mut Scratch,
    ) -> Result<Vec<(u32, f32)>, RetrieverError> {
        let Parts { postings, bounds, .. } = &self.parts;
        // The stored bounds belong to the manifest's constants; under others a term's score is bounded by its weight.
        let stored = params == self.manifest.bm25;
        let saturation = |term: u64| {
            let bits = if stored { read_u32(bounds, term as usize) } else { None };
            bits.map_or(f32::INFINITY, f32::from_bits)
        };
        let ranked = scorer.top(postings, saturation, text, k.min(self.len()), scratch);
        let mut hits =
            ranked.map_err(|source| RetrieverError::Postings { path: postings.place().to_owned(), source })?;
        for hit in &mut hits {
            hit.0 = self.ordinal_at_rank(hit.0)?;
        }
        Ok(hits)
    }

    fn ordinal_at_rank(&self, rank: u32) -> Result<u32, IndexError> {
        read_u32(&self.parts.by_id, rank as usize).ok_or_else(|| self.damaged(format!("no id of rank {rank}")))
    }

    fn damaged(&self, what: String) -> IndexError {
        IndexError::Damaged { path: self.place.clone(), what }
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Index")
            .field("place", &self.place)
            .field("manifest", &self.manifest)
            .finish_non_exhaustive()
    }
}

fn open_postings(folder: &Path) -> Result<Postings, IndexError> {
    let failed = |source: tantivy::TantivyError| IndexError::Engine { action: "open", path: folder.to_owned(), source };
    let directory = MmapDirectory::open(folder.join(POSTINGS_FOLDER)).map_err(|cause| failed(cause.into()))?;
    Postings::open(directory.into(), folder).map_err(failed)
}

/// Maps a file of the folder. The mapping is tantivy's, which keeps unsafe code out of this crate.
pub(super) fn map(folder: &Path, name: &str) -> Result<OwnedBytes, IndexError> {
    let damaged = |cause: String| IndexError::Damaged {
        path: folder.to_owned(),
        what: format!("`{name}` cannot be mapped ({cause})"),
    };
    let directory = MmapDirectory::open(folder).map_err(|cause| damaged(cause.to_string()))?;
    let file = directory.open_read(Path::new(name)).map_err(|cause| damaged(cause.to_string()))?;
    file.read_bytes().map_err(|cause| damaged(cause.to_string()))
}

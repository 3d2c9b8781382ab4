//! An opened index.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::build::moved_aside;
use super::manifest::Manifest;
use super::segment::Segment;
use super::store::Document;
use super::verify;
use crate::corpus::CorpusFormat;
use crate::error::IndexError;

/// The number of times that opening starts over when the index changes underneath.
const OPEN_ATTEMPTS: usize = 4;
/// Documents that show whether they are pages or parts of pages.
const LOOKED_AT: usize = 1000;

/// A corpus with its postings, read-only, shared between threads.
///
/// Files are memory-mapped: opening takes milliseconds and resident memory is what queries touch, plus one byte per
/// passage. An opened index does not change while passages are added to its folder or its segments are merged.
pub struct Index {
    pub(super) place: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) segments: Vec<Segment>,
}

impl Index {
    /// Opens an index folder after checking that every file is there in full length and, when the index is at most
    /// 256 MiB, that every file has its digest. [`Index::verify`] checks the digests of larger ones.
    ///
    /// # Errors
    /// [`IndexError::Missing`], [`IndexError::Version`], [`IndexError::Analyzer`], [`IndexError::Damaged`], or a failure
    /// of the file system or the postings engine.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, IndexError> {
        Self::found(folder.as_ref(), Self::open_generation)
    }

    /// Opens the index of a folder, or the one that a build has moved aside to put another in its place: there is none in the folder for
    /// a moment, and after a build that was killed in that moment.
    pub(super) fn found(
        folder: &Path,
        open: impl Fn(&Path, &Manifest) -> Result<Self, IndexError>,
    ) -> Result<Self, IndexError> {
        match Self::settled(folder, &open) {
            Err(IndexError::Missing { .. }) => {}
            opened => return opened,
        }
        match moved_aside(folder).map(|aside| Self::settled(&aside, &open)) {
            Some(Ok(index)) => Ok(index),
            // By now the new one is in its place, or there was none.
            _ => Self::settled(folder, open),
        }
    }

    /// Opens an index generation after generation, until none has taken the place of the one that was opened.
    pub(crate) fn settled(
        folder: &Path,
        open: impl Fn(&Path, &Manifest) -> Result<Self, IndexError>,
    ) -> Result<Self, IndexError> {
        let mut manifest = Manifest::read(folder)?;
        for _ in 1..OPEN_ATTEMPTS {
            let failure = match open(folder, &manifest) {
                Ok(index) => return Ok(index),
                Err(failure) => failure,
            };
            // A change that finished meanwhile has removed files of the generation that was being opened.
            let current = Manifest::read(folder)?;
            if current == manifest {
                return Err(failure);
            }
            manifest = current;
        }
        open(folder, &manifest)
    }

    /// Opens the generation that a manifest describes, with the checks of every opening.
    pub(crate) fn open_generation(folder: &Path, manifest: &Manifest) -> Result<Self, IndexError> {
        manifest.check_sizes(folder)?;
        verify::check_digests_if_small(folder, manifest)?;
        Self::open_segments(folder, manifest)
    }

    pub(super) fn open_segments(folder: &Path, manifest: &Manifest) -> Result<Self, IndexError> {
        let mut segments = Vec::with_capacity(manifest.segments.len());
        let mut base = 0;
        for entry in &manifest.segments {
            segments.push(Segment::open(folder, entry, base)?);
            base += entry.counts.passages as u32;
        }
        Ok(Self {
            place: folder.to_owned(),
            manifest: manifest.clone(),
            segments,
        })
    }

    /// The index as `manifest.json` describes it: its corpora, constants and files.
    pub fn description(&self) -> impl Serialize {
        &self.manifest
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The folder, or `memory`.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Number of passages; ordinals run from 0 to this.
    pub fn len(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    /// Tells whether there are no passages; a built index has at least one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The segments, in the order of their ordinals; at least one.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The segment that holds an ordinal, and the ordinal within it.
    pub(crate) fn locate(&self, ordinal: u32) -> Option<(&Segment, u32)> {
        let after = self
            .segments
            .partition_point(|segment| segment.info.base <= ordinal);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        let local = ordinal - segment.info.base;
        (local < segment.info.passages).then_some((segment, local))
    }

    /// The passage with this ordinal (its place in the corpus), in constant time.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] when there is no such ordinal or its stored bytes make no sense.
    pub fn document(&self, ordinal: u32) -> Result<Document<'_>, IndexError> {
        let found = self
            .locate(ordinal)
            .and_then(|(segment, local)| segment.document(local).ok());
        found.ok_or_else(|| self.damaged(format!("passage {ordinal} cannot be read")))
    }

    /// The ordinal of an external id, by binary search over the mapped id tables.
    ///
    /// # Errors
    /// [`IndexError::Damaged`] when a stored id cannot be read.
    pub fn ordinal_of(&self, id: &str) -> Result<Option<u32>, IndexError> {
        for segment in &self.segments {
            if let Some(rank) = segment.rank_of(id)? {
                return Ok(Some(segment.info.base + segment.local_at_rank(rank)?));
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
        let paths = self.manifest.sources.iter();
        let paths: Vec<String> = paths.map(|source| format!("`{}`", source.path)).collect();
        Err(IndexError::CorpusMismatch {
            index,
            sources: paths.join(", "),
            expected,
            found: found.clone(),
        })
    }

    /// As [`Index::verify_corpus`], for corpora that are read as one in this format.
    ///
    /// # Errors
    /// [`IndexError::OtherFormat`] when the index has them in another format, and when they cannot be read.
    pub fn verify_corpora<P: AsRef<Path>>(
        &self,
        corpora: &[P],
        format: CorpusFormat,
    ) -> Result<(), IndexError> {
        let verified = self.verify_corpus(&format.digest_of(corpora)?);
        if verified.is_ok() {
            return verified;
        }
        let sources = self.manifest.sources.iter();
        let own = sources.map(|source| source.format.parse::<CorpusFormat>());
        for own in own.flatten().filter(|own| *own != format) {
            let digest = own.digest_of(corpora);
            if digest.is_ok_and(|digest| digest == self.manifest.corpus_digest) {
                return Err(IndexError::OtherFormat {
                    index: self.place.clone(),
                    found: own.name().to_owned(),
                    expected: format.name().to_owned(),
                });
            }
        }
        verified
    }

    /// Refuses an index whose documents are parts of pages.
    ///
    /// # Errors
    /// [`IndexError::Passages`] when a corpus of it was read in a format that cuts pages, [`IndexError::Pieces`] when two neighbours
    /// among its first documents have one title and ids that are one but for the number at the end, `page#0` and `page#1`.
    pub fn verify_whole_pages(&self) -> Result<(), IndexError> {
        let cuts = |name: &str| {
            let format: Result<CorpusFormat, _> = name.parse();
            format.is_ok_and(|format| format.whole() != format)
        };
        let mut sources = self.manifest.sources.iter();
        if let Some(source) = sources.find(|source| cuts(&source.format)) {
            return Err(IndexError::Passages {
                path: self.place.clone(),
                format: source.format.clone(),
            });
        }
        let mut before = None;
        for ordinal in (0..self.len() as u32).take(LOOKED_AT) {
            let document = self.document(ordinal)?;
            let piece = piece_of(document.id).map(|page| (page, document.title));
            if piece.is_some() && piece == before {
                return Err(IndexError::Pieces {
                    path: self.place.clone(),
                    id: document.id.to_owned(),
                });
            }
            before = piece;
        }
        Ok(())
    }

    pub(super) fn damaged(&self, what: String) -> IndexError {
        IndexError::Damaged {
            path: self.place.clone(),
            what,
        }
    }
}

/// The page that a passage of this id is a part of, where it is named as passages are.
fn piece_of(id: &str) -> Option<&str> {
    let (page, number) = id.rsplit_once('#')?;
    number.parse::<u32>().ok().map(|_| page)
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

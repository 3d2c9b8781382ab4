//! The sources of a segment's passages.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use forage_contracts::Passage;

use crate::corpus::{CorpusHasher, CorpusReader, content_hash};
use crate::error::{IndexError, ReadError};
use crate::index::manifest::Source;
use crate::index::open::Index;

/// Passages in corpus order, each with the line it came from.
pub(in crate::index) trait Feed {
    /// The file, or the index, and the line in it to name in an error about a passage of this id and line.
    fn place(&self, id: &str, line: u64) -> (&Path, u64);

    /// The next passage and its 1-based line.
    fn next(&mut self) -> Result<Option<(u64, Passage)>, IndexError>;
}

/// A corpus file, checked against the index it is to be added to.
pub(in crate::index) struct FileFeed<'a> {
    reader: CorpusReader,
    existing: Option<&'a Index>,
    /// Digests of what was read; `None` when duplicates are kept.
    seen: Option<HashSet<[u8; 16]>>,
    /// Over all passages as read; only where it differs from the digest of those stored.
    hasher: Option<CorpusHasher>,
    read: u64,
    dropped: u64,
    textless: u64,
    first_textless: Option<String>,
}

impl<'a> FileFeed<'a> {
    pub(in crate::index) fn new(
        reader: CorpusReader,
        drop_duplicates: bool,
        existing: Option<&'a Index>,
    ) -> Result<Self, IndexError> {
        let (seen, hasher) = if drop_duplicates {
            (Some(contents_of(existing)?), Some(CorpusHasher::new()))
        } else {
            (None, None)
        };
        Ok(Self {
            reader,
            existing,
            seen,
            hasher,
            read: 0,
            dropped: 0,
            textless: 0,
            first_textless: None,
        })
    }

    /// Passages without a text among those that were given, and the id of the first.
    pub(in crate::index) fn textless(&self) -> (u64, Option<String>) {
        (self.textless, self.first_textless.clone())
    }

    /// The record of the corpus that was read. `stored_digest` is that of the passages this feed gave.
    pub(in crate::index) fn into_source(
        self,
        paths: &[PathBuf],
        format: &str,
        stored_digest: &str,
    ) -> Source {
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        Source {
            path: paths.join(", "),
            format: format.to_owned(),
            corpus_digest: self
                .hasher
                .map_or_else(|| stored_digest.to_owned(), |hasher| hasher.finish()),
            passages: self.read,
            dropped_duplicates: self.dropped,
        }
    }

    /// Tells whether the passage was not read before, as far as that matters.
    fn is_new(&mut self, passage: &Passage) -> bool {
        let Some(seen) = &mut self.seen else {
            return true;
        };
        seen.insert(content_hash(&passage.title, &passage.text))
    }
}

impl Feed for FileFeed<'_> {
    fn place(&self, id: &str, line: u64) -> (&Path, u64) {
        self.reader.place_of(id, line)
    }

    fn next(&mut self) -> Result<Option<(u64, Passage)>, IndexError> {
        while let Some(passage) = self.reader.next().transpose()? {
            self.read += 1;
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&passage.id, &passage.title, &passage.text, &passage.fields);
            }
            if !self.is_new(&passage) {
                self.dropped += 1;
                continue;
            }
            let line = self.reader.line();
            if let Some(index) = self.existing
                && index.ordinal_of(&passage.id)?.is_some()
            {
                let (path, line) = self.reader.place_of(&passage.id, line);
                return Err(ReadError::AlreadyIndexed {
                    path: path.to_owned(),
                    id: passage.id,
                    line,
                    index: index.place().to_owned(),
                }
                .into());
            }
            if passage.text.trim().is_empty() {
                self.textless += 1;
                self.first_textless
                    .get_or_insert_with(|| passage.id.clone());
            }
            return Ok(Some((line, passage)));
        }
        Ok(None)
    }
}

/// The passages of an index, all segments one after the other.
pub(in crate::index) struct IndexFeed<'a> {
    index: &'a Index,
    next: u32,
}

impl<'a> IndexFeed<'a> {
    pub(in crate::index) fn new(index: &'a Index) -> Self {
        Self { index, next: 0 }
    }
}

impl Feed for IndexFeed<'_> {
    fn place(&self, _: &str, line: u64) -> (&Path, u64) {
        (self.index.place(), line)
    }

    fn next(&mut self) -> Result<Option<(u64, Passage)>, IndexError> {
        if self.next as usize == self.index.len() {
            return Ok(None);
        }
        let passage = self.index.document(self.next)?.to_passage();
        self.next += 1;
        Ok(Some((u64::from(self.next), passage)))
    }
}

fn contents_of(existing: Option<&Index>) -> Result<HashSet<[u8; 16]>, IndexError> {
    let mut seen = HashSet::new();
    for segment in existing.map_or(&[][..], Index::segments) {
        for local in 0..segment.info.passages {
            let document = segment.document(local)?;
            seen.insert(content_hash(document.title, document.text));
        }
    }
    Ok(seen)
}

//! One segment: a run of the corpus with its store, id table, postings and bounds.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use forage_contracts::retriever::{CancelFlag, Filter};
use tantivy::directory::{Directory, MmapDirectory, OwnedBytes};

use super::guard::guarded;
use super::manifest::SegmentManifest;
use super::store::{Document, Store, read_u32};
use super::{BOUNDS_FILE, BY_ID_FILE, DOCS_FILE, OFFSETS_FILE, POSTINGS_FOLDER};
use crate::bm25::{Bm25Params, DocSet, Postings, Scorer, Totals};
use crate::cancel::check_io;
use crate::error::IndexError;

/// Passages that are compared between two looks at the flag that ends a search.
const SCAN_BLOCK: u32 = 4096;

/// The passages of a segment and its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentInfo {
    /// `seg-000001`; `memory` for an index without a folder.
    pub(crate) name: String,
    /// Ordinal of its first passage in the whole index.
    pub(crate) base: u32,
    /// Number of passages.
    pub(crate) passages: u32,
    /// Folder of its files; `memory` for an index without a folder.
    pub(crate) folder: PathBuf,
}

/// A segment opened for reading. Passages are numbered three ways: by ordinal in the index, by *local* ordinal (from 0 in
/// corpus order) and by *rank* (from 0 in the byte order of ids), which is the document number of the postings.
pub(crate) struct Segment {
    pub(crate) info: SegmentInfo,
    pub(crate) postings: Postings,
    pub(super) store: Store,
    pub(super) by_id: OwnedBytes,
    pub(super) bounds: OwnedBytes,
}

impl Segment {
    /// Maps the files of a segment whose sizes have been checked. `base` is the ordinal of its first passage.
    pub(super) fn open(
        index: &Path,
        entry: &SegmentManifest,
        base: u32,
    ) -> Result<Self, IndexError> {
        let folder = index.join(&entry.name);
        let file = |name: &str| map(index, &entry.name, name);
        let store = Store::new(file(DOCS_FILE)?, file(OFFSETS_FILE)?);
        let (by_id, bounds) = (file(BY_ID_FILE)?, file(BOUNDS_FILE)?);
        let postings = open_postings(index, &folder)?;
        let passages = entry.counts.passages as usize;
        let tables = [
            ("passages", store.len(), passages),
            ("ids", by_id.len() / 4, passages),
            ("lengths", postings.norms().len(), passages),
            ("term bounds", bounds.len() / 4, postings.terms()),
            ("terms", postings.terms(), entry.counts.terms as usize),
        ];
        for (name, found, expected) in tables {
            if found != expected {
                let what = format!(
                    "`{}` has {found} {name} where {expected} are expected",
                    entry.name
                );
                return Err(IndexError::Damaged {
                    path: index.to_owned(),
                    what,
                });
            }
        }
        let info = SegmentInfo {
            name: entry.name.clone(),
            base,
            passages: passages as u32,
            folder,
        };
        Ok(Self {
            info,
            postings,
            store,
            by_id,
            bounds,
        })
    }

    /// Number of passages.
    pub(crate) fn len(&self) -> usize {
        self.store.len()
    }

    /// The passage with this local ordinal.
    pub(crate) fn document(&self, local: u32) -> Result<Document<'_>, IndexError> {
        self.store
            .get(local)
            .ok_or_else(|| self.damaged(format!("passage {local} cannot be read")))
    }

    /// The local ordinal of the passage with this rank.
    pub(crate) fn local_at_rank(&self, rank: u32) -> Result<u32, IndexError> {
        read_u32(&self.by_id, rank as usize)
            .ok_or_else(|| self.damaged(format!("no id of rank {rank}")))
    }

    /// The rank of an external id, by binary search over the mapped id table.
    pub(crate) fn rank_of(&self, id: &str) -> Result<Option<u32>, IndexError> {
        let (mut low, mut high) = (0, self.len() as u32);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.document(self.local_at_rank(middle)?)?.id.cmp(id) {
                Ordering::Equal => return Ok(Some(middle)),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// The contribution of this segment to the totals of the collection.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            docs: self.postings.docs_with_terms(),
            tokens: self.postings.tokens(),
        }
    }

    /// The scorer under which the stored bounds were computed.
    pub(super) fn bounds_scorer(&self, params: Bm25Params) -> Scorer {
        Scorer::new(self.totals(), params)
    }

    /// Ranks, ascending, of the passages whose field has this value. `id` and `title` are fields too.
    pub(crate) fn field_docs(
        &self,
        name: &str,
        value: &str,
        cancel: &CancelFlag,
    ) -> io::Result<Vec<u32>> {
        match self.indexed_docs(name, value, cancel)? {
            Some(ranks) => Ok(ranks),
            None => self.scan(name, &HashSet::from([value]), cancel),
        }
    }

    /// The same from the index; `None` where it does not hold such values, names or both being too long.
    fn indexed_docs(
        &self,
        name: &str,
        value: &str,
        cancel: &CancelFlag,
    ) -> io::Result<Option<Vec<u32>>> {
        check_io(cancel)?;
        if name == "id" {
            let rank = self.rank_of(value).map_err(io::Error::other)?;
            return Ok(Some(rank.into_iter().collect()));
        }
        self.postings.field_docs(name, value)
    }

    /// Compares the field of every passage with values that the index does not hold, all of them at once.
    fn scan(
        &self,
        name: &str,
        values: &HashSet<&str>,
        cancel: &CancelFlag,
    ) -> io::Result<Vec<u32>> {
        let mut ranks = Vec::new();
        for rank in 0..self.len() as u32 {
            if rank.is_multiple_of(SCAN_BLOCK) {
                check_io(cancel)?;
            }
            let local = self.local_at_rank(rank).map_err(io::Error::other)?;
            let document = self.document(local).map_err(io::Error::other)?;
            if document
                .field(name)
                .is_some_and(|found| values.contains(found.as_str()))
            {
                ranks.push(rank);
            }
        }
        Ok(ranks)
    }

    /// The ranks that pass a filter: those with one of the values of every field. `None` when everything passes.
    pub(crate) fn allowed(
        &self,
        filter: &Filter,
        cancel: &CancelFlag,
    ) -> io::Result<Option<DocSet>> {
        let mut allowed: Option<DocSet> = None;
        for (name, values) in &filter.0 {
            let mut of_field = DocSet::empty(self.len());
            let mut long = HashSet::new();
            for value in values {
                match self.indexed_docs(name, value, cancel)? {
                    Some(found) => of_field.insert(&found),
                    None => _ = long.insert(value.as_str()),
                }
            }
            // Once for all of them: under a name that is too long, every value is.
            if !long.is_empty() {
                of_field.insert(&self.scan(name, &long, cancel)?);
            }
            match &mut allowed {
                Some(allowed) => allowed.intersect(&of_field),
                None => allowed = Some(of_field),
            }
        }
        Ok(allowed)
    }

    fn damaged(&self, what: String) -> IndexError {
        IndexError::Damaged {
            path: self.info.folder.clone(),
            what,
        }
    }
}

pub(super) fn open_postings(index: &Path, folder: &Path) -> Result<Postings, IndexError> {
    let failed = |source: tantivy::TantivyError| IndexError::Engine {
        action: "open",
        path: index.to_owned(),
        source,
    };
    let directory =
        MmapDirectory::open(folder.join(POSTINGS_FOLDER)).map_err(|cause| failed(cause.into()))?;
    guarded(index, || Postings::open(directory.into()).map_err(failed))
}

/// Maps a file of a segment. The mapping is tantivy's, which keeps unsafe code out of this crate.
pub(crate) fn map(index: &Path, segment: &str, name: &str) -> Result<OwnedBytes, IndexError> {
    let damaged = |cause: String| IndexError::Damaged {
        path: index.to_owned(),
        what: format!("`{segment}/{name}` cannot be mapped ({cause})"),
    };
    let directory =
        MmapDirectory::open(index.join(segment)).map_err(|cause| damaged(cause.to_string()))?;
    let file = directory
        .open_read(Path::new(name))
        .map_err(|cause| damaged(cause.to_string()))?;
    file.read_bytes()
        .map_err(|cause| damaged(cause.to_string()))
}

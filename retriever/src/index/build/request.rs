//! Requests for builds, their progress and their results.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use forage_contracts::retriever::Fingerprint;

use crate::bm25::Bm25Params;
use crate::corpus::CorpusFormat;

/// An index to build.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// Corpus file or folder; several are one corpus, as [`crate::CorpusReader::open_all`] reads them.
    pub sources: Vec<PathBuf>,
    /// The format of the corpus.
    pub format: CorpusFormat,
    /// Index folder to create. A folder that holds anything but an index is never touched.
    pub out: PathBuf,
    /// Default constants of searches over the index.
    pub bm25: Bm25Params,
    /// Puts the new index, once it is finished, in the place of one that is there, which is usable until then; without it an
    /// index that is there is an error.
    pub replace: bool,
    /// Leaves out, and counts, passages whose title and text (the first 128 bits of their BLAKE3 digest) were read before;
    /// without it they are indexed as any other, as Lucene does.
    pub drop_duplicates: bool,
    /// Memory for postings before they go to disk, MiB over all threads, 15 to 4000.
    pub memory_mib: usize,
    /// Threads, at least 1; indexing takes no more than there are 15 MiB of memory for. The index is the same whatever
    /// their number.
    pub threads: usize,
}

impl BuildRequest {
    /// A request with the default constants (0.9, 0.4), 256 MiB, a thread per core, which neither replaces an index nor drops duplicates.
    pub fn new(source: impl Into<PathBuf>, format: CorpusFormat, out: impl Into<PathBuf>) -> Self {
        Self {
            sources: vec![source.into()],
            format,
            out: out.into(),
            bm25: Bm25Params::default(),
            replace: false,
            drop_duplicates: false,
            memory_mib: 256,
            threads: available_threads(),
        }
    }
}

/// Passages to add to an index as a segment of its own.
#[derive(Debug, Clone)]
pub struct AddRequest {
    /// Corpus file or folder; several are one corpus, as [`crate::CorpusReader::open_all`] reads them.
    pub sources: Vec<PathBuf>,
    /// The format of the corpus.
    pub format: CorpusFormat,
    /// The index folder.
    pub index: PathBuf,
    /// Leaves out, and counts, passages that say the same as one of the index or an earlier one of the file.
    pub drop_duplicates: bool,
    /// Memory for postings before they go to disk, MiB over all threads, 15 to 4000.
    pub memory_mib: usize,
    /// Threads, at least 1.
    pub threads: usize,
}

impl AddRequest {
    /// A request with 256 MiB and a thread per core, which drops no duplicates.
    pub fn new(
        source: impl Into<PathBuf>,
        format: CorpusFormat,
        index: impl Into<PathBuf>,
    ) -> Self {
        Self {
            sources: vec![source.into()],
            format,
            index: index.into(),
            drop_duplicates: false,
            memory_mib: 256,
            threads: available_threads(),
        }
    }
}

/// One thread per core this process may use.
pub(in crate::index) fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The result of a build, addition or merge.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildSummary {
    /// The index folder.
    pub path: PathBuf,
    /// Passages of the whole index.
    pub passages: u64,
    /// Distinct terms.
    pub terms: u64,
    /// Terms over all passages, repeats counted.
    pub tokens: u64,
    /// Passages left out as duplicates this time.
    pub dropped_duplicates: u64,
    /// Passages without a text that were indexed this time: only their titles can be found.
    pub textless: u64,
    /// The id of the first of them.
    pub first_textless: Option<String>,
    /// Number of segments.
    pub segments: usize,
    /// Generation of the index.
    pub generation: u64,
    /// Bytes on disk, manifest aside.
    pub bytes: u64,
    /// Digest of the corpus, hex.
    pub corpus_digest: String,
    /// Fingerprint of a search with the default constants.
    pub fingerprint: Fingerprint,
}

//! Requests for builds, their progress and their results.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use forage_contracts::retriever::Fingerprint;

use crate::bm25::Bm25Params;
use crate::corpus::CorpusFormat;
use crate::index::manifest::Counts;

/// The treatment of an index that is already where the new one should go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Fail with [`crate::IndexError::Exists`].
    #[default]
    Keep,
    /// Put the new index in its place once it is finished; until then the old one stays usable.
    Replace,
}

/// The treatment of a passage whose title and text were read before, under whatever id and fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// Index it as any other, as Lucene does.
    #[default]
    Keep,
    /// Leave it out and count it. Equal means equal in the first 128 bits of a BLAKE3 digest.
    Drop,
}

/// An index to build.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// Corpus file, or BEIR folder.
    pub source: PathBuf,
    /// The format of the corpus.
    pub format: CorpusFormat,
    /// Index folder to create. A folder that holds anything but an index is never touched.
    pub out: PathBuf,
    /// Default constants of searches over the index.
    pub bm25: Bm25Params,
    /// The treatment of an index that is already there.
    pub existing: Existing,
    /// The treatment of passages that say the same.
    pub duplicates: Duplicates,
    /// Memory for postings before they go to disk, MiB over all threads, 15 to 4000.
    pub memory_mib: usize,
    /// Threads, at least 1; indexing takes no more than there are 15 MiB of memory for. The index is the same whatever
    /// their number.
    pub threads: usize,
}

impl BuildRequest {
    /// A request with the default constants (0.9, 0.4), 256 MiB, a thread per core, keeping what exists and duplicates.
    pub fn new(source: impl Into<PathBuf>, format: CorpusFormat, out: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            format,
            out: out.into(),
            bm25: Bm25Params::default(),
            existing: Existing::Keep,
            duplicates: Duplicates::Keep,
            memory_mib: 256,
            threads: available_threads(),
        }
    }
}

/// Passages to add to an index as a segment of its own.
#[derive(Debug, Clone)]
pub struct AddRequest {
    /// Corpus file, or BEIR folder.
    pub source: PathBuf,
    /// The format of the corpus.
    pub format: CorpusFormat,
    /// The index folder.
    pub index: PathBuf,
    /// The treatment of passages that say the same as one of the index or an earlier one of the file.
    pub duplicates: Duplicates,
    /// Memory for postings before they go to disk, MiB over all threads, 15 to 4000.
    pub memory_mib: usize,
    /// Threads, at least 1.
    pub threads: usize,
}

impl AddRequest {
    /// A request with 256 MiB and a thread per core, keeping duplicates.
    pub fn new(
        source: impl Into<PathBuf>,
        format: CorpusFormat,
        index: impl Into<PathBuf>,
    ) -> Self {
        Self {
            source: source.into(),
            format,
            index: index.into(),
            duplicates: Duplicates::Keep,
            memory_mib: 256,
            threads: available_threads(),
        }
    }
}

/// One thread per core this process may use.
pub(in crate::index) fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The part of a build under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildStage {
    /// Reading the corpus into the document store; the number of passages is not known yet.
    Reading,
    /// Analysing passages into postings.
    Indexing,
    /// Merging postings, computing bounds and digests.
    Finishing,
}

/// The progress of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildProgress {
    /// Current part.
    pub stage: BuildStage,
    /// Passages done in this part.
    pub done: u64,
    /// Passages in all, once known.
    pub total: Option<u64>,
}

/// The result of a build, addition or merge.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildSummary {
    /// The index folder.
    pub path: PathBuf,
    /// Sizes of the whole index.
    pub counts: Counts,
    /// Passages left out as duplicates this time.
    pub dropped_duplicates: u64,
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

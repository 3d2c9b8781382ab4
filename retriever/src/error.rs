//! Errors, one enum per family of operations. Each message says what is wrong, where, and what to do.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Failures of reading a corpus, queries or relevance judgements.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Nothing at the path.
    #[error("no file at `{}`; check the path, or pass the folder that holds it", path.display())]
    Missing {
        /// What was asked for.
        path: PathBuf,
    },
    /// The operating system refused a read.
    #[error("read `{}` near line {line}; check permissions and the disk", path.display())]
    Io {
        /// File being read.
        path: PathBuf,
        /// 1-based line; 0 when the file could not be opened.
        line: u64,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A gzip stream ended before its trailer.
    #[error("gzip data of `{}` breaks off after line {line}; fetch or compress the file again", path.display())]
    Truncated {
        /// File being read.
        path: PathBuf,
        /// Last whole line, 1-based; 0 for none.
        line: u64,
    },
    /// A line is not what the format asks for.
    #[error("`{}` line {line}: {what}; {fix}", path.display())]
    Malformed {
        /// File being read.
        path: PathBuf,
        /// 1-based line.
        line: u64,
        /// What is wrong.
        what: String,
        /// What to do about it.
        fix: &'static str,
    },
    /// A file that is not what its first bytes or its name promise.
    #[error("`{}`: {what}; {fix}", path.display())]
    Unreadable {
        /// File being read.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What to do about it.
        fix: &'static str,
    },
    /// A row of a parquet file, or a record of a JSON list, is not what the format asks for, or cannot be read.
    #[error("`{}` row {row}: {what}; {fix}", path.display())]
    MalformedRow {
        /// File being read.
        path: PathBuf,
        /// 1-based row.
        row: u64,
        /// What is wrong.
        what: String,
        /// What to do about it.
        fix: &'static str,
    },
    /// A folder without anything to read.
    #[error(
        "`{}` holds no corpus; pass a file, or a folder with corpus.jsonl or with files of one kind: .jsonl(.gz), \
         .parquet or .md",
        path.display()
    )]
    NoCorpus {
        /// The folder.
        path: PathBuf,
    },
    /// Files of several kinds in one folder, so that it is not clear which of them are the corpus.
    #[error("`{}` holds both {one} and {other} files; pass one of them, or a folder with one kind", path.display())]
    MixedFolder {
        /// The folder.
        path: PathBuf,
        /// A kind that was found.
        one: &'static str,
        /// Another one.
        other: &'static str,
    },
    /// Two records carry one id.
    #[error(
        "`{}`: id `{id}` is on line {first} and again on line {second}; ids must be unique, remove or rename one",
        path.display()
    )]
    DuplicateId {
        /// File being read.
        path: PathBuf,
        /// The repeated id.
        id: String,
        /// 1-based line of the first use.
        first: u64,
        /// 1-based line of the second use.
        second: u64,
    },
    /// A passage to be added carries the id of one that is in the index.
    #[error(
        "`{}` line {line}: id `{id}` is already in index `{}`; ids must be unique, remove or rename the passage",
        path.display(),
        index.display()
    )]
    AlreadyIndexed {
        /// File being read.
        path: PathBuf,
        /// The repeated id.
        id: String,
        /// 1-based line.
        line: u64,
        /// The index folder.
        index: PathBuf,
    },
    /// The file holds no record at all.
    #[error("`{}` holds no {what}; check that it is the right file", path.display())]
    Empty {
        /// File that was read.
        path: PathBuf,
        /// What was expected: `passages`, `queries`, `judgements`.
        what: &'static str,
    },
    /// A format name that does not exist.
    #[error("unknown corpus format `{found}`; use one of: beir, search-r1, pages, whole-pages")]
    UnknownFormat {
        /// The name as written.
        found: String,
    },
    /// The first record fits none of the known formats.
    #[error(
        "cannot tell the corpus format of `{}` from its first record (fields: {fields}); name it: beir, search-r1 or pages",
        path.display()
    )]
    UndetectedFormat {
        /// File that was read.
        path: PathBuf,
        /// Field names of the first record.
        fields: String,
    },
}

/// Failures of building or opening an index.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The corpus could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// BM25 constants outside their range.
    #[error("BM25 constants k1 = {k1}, b = {b} are out of range; use a finite k1 >= 0 and b in [0, 1]")]
    Constants {
        /// Term-frequency saturation as given.
        k1: f32,
        /// Length normalisation as given.
        b: f32,
    },
    /// An index is already there and was not to be replaced.
    #[error("an index already exists at `{}`; choose another folder or ask for it to be replaced", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds something else; it is never overwritten.
    #[error("`{}` exists and is not an index, so it is left alone; choose another folder", path.display())]
    NotAnIndexFolder {
        /// The folder or file.
        path: PathBuf,
    },
    /// Another process builds at the same place.
    #[error("another build of `{}` is running; wait for it or choose another folder", path.display())]
    Busy {
        /// The index folder being built.
        path: PathBuf,
    },
    /// No index at the path.
    #[error("no index at `{}` (no manifest.json); build one with `forage index build`", path.display())]
    Missing {
        /// The folder asked for.
        path: PathBuf,
    },
    /// The manifest names another on-disk format.
    #[error(
        "index `{}` has format version {found}, this program reads {expected}; build it again from its corpus",
        path.display()
    )]
    Version {
        /// The index folder.
        path: PathBuf,
        /// Version on disk.
        found: u32,
        /// Version of this program.
        expected: u32,
    },
    /// The index was built with another text analysis.
    #[error("index `{}` was built with analyzer {found}, this program has {expected}; build it again", path.display())]
    Analyzer {
        /// The index folder.
        path: PathBuf,
        /// Analyzer on disk.
        found: String,
        /// Analyzer of this program.
        expected: String,
    },
    /// The index was built from another corpus than the one expected.
    #[error(
        "index `{}` was built from corpus {found}, but corpus {expected} is expected; build the index again from that \
         corpus or point to the index that belongs to it",
        index.display()
    )]
    CorpusMismatch {
        /// The index folder.
        index: PathBuf,
        /// Digest that was expected, hex.
        expected: String,
        /// Digest in the manifest, hex.
        found: String,
    },
    /// A file of the index is missing, cut short or inconsistent.
    #[error("index `{}` is damaged: {what}; build it again or restore the folder from a copy", path.display())]
    Damaged {
        /// The index folder.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// Merging would lose the vectors of the segments.
    #[error("index `{}` holds vectors, which a merge cannot keep; build it again from its corpora", path.display())]
    Vectors {
        /// The index folder.
        path: PathBuf,
    },
    /// The corpus has more passages than an index can hold.
    #[error("the corpus has more than {limit} passages, the most one index holds; split it into shards")]
    TooLarge {
        /// Most passages.
        limit: u64,
    },
    /// The operating system refused a file operation.
    #[error("{action} `{}`; check permissions and free space", path.display())]
    Io {
        /// What was being done: `create`, `write`, `rename`.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The postings engine failed.
    #[error("postings engine failed to {action} in `{}`", path.display())]
    Engine {
        /// What was being done.
        action: &'static str,
        /// The index folder, or `memory`.
        path: PathBuf,
        /// The cause.
        #[source]
        source: tantivy::TantivyError,
    },
}

/// Failures of answering a query.
///
/// Always a fault of the infrastructure, never of the policy that asked: an episode that meets one has no reward. It must
/// not be graded as a wrong answer or scored zero.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetrieverError {
    /// The index could not be opened, or a stored passage is damaged.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Postings could not be read.
    #[error("read postings of `{}`; the index may be damaged or its disk unreachable", path.display())]
    Postings {
        /// The index folder, or `memory`.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Statistics that cannot be those of a collection this index is part of.
    #[error("statistics of the collection do not fit index `{}`: {what}; gather them again from all shards", path.display())]
    Statistics {
        /// The index folder, or `memory`.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// The backend has no way to do what was asked.
    #[error("{retriever} cannot {what}; use another mode or backend")]
    Unsupported {
        /// Which backend.
        retriever: String,
        /// What was asked: `filter by field`, `rank with given statistics`.
        what: &'static str,
    },
    /// The encoder or the reranker failed.
    #[error("{model} failed: {what}; check the model folder and free memory")]
    Model {
        /// Name of the model.
        model: String,
        /// What went wrong.
        what: String,
    },
    /// Vectors that cannot be searched.
    #[error("vectors of `{}`: {what}", path.display())]
    Vectors {
        /// File or index folder, or `memory`.
        path: PathBuf,
        /// What is wrong and what to do.
        what: String,
    },
    /// A remote backend did not answer as it should, retries included.
    #[error("{url}: {fault}, after {attempts} attempts; check that the server runs and what it logs")]
    Remote {
        /// Address that was asked.
        url: String,
        /// The last failure.
        fault: RemoteFault,
        /// Requests made.
        attempts: u32,
    },
    /// A remote backend is set up in a way that cannot work.
    #[error("remote retriever, `{key}`: {what}")]
    Setting {
        /// The key as written in the file.
        key: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// There is nothing to search.
    #[error("there are no passages to search; give the run a corpus, an index or a remote retriever")]
    NoPassages,
    /// A tape answers only what was recorded.
    #[error("`{}` has no answer to `{query}` (k = {k}); record the tools again, or replay with the passages at hand", path.display())]
    NotRecorded {
        /// The tape.
        path: PathBuf,
        /// What was asked.
        query: String,
        /// Hits asked for.
        k: usize,
    },
    /// A tape cannot be written.
    #[error(transparent)]
    Tape(#[from] crate::tape::TapeError),
    /// The work could not be finished because the program is shutting down or a worker is gone.
    #[error("search was stopped before it was done; ask again")]
    Stopped,
    /// A search that several callers waited for failed; each of them gets its failure.
    #[error(transparent)]
    Shared(#[from] Arc<RetrieverError>),
}

impl RetrieverError {
    /// The failure itself, whether or not several callers share it.
    pub fn root(&self) -> &Self {
        match self {
            Self::Shared(failure) => failure.root(),
            failure => failure,
        }
    }
}

/// Why a remote backend gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteFault {
    /// No connection.
    #[error("cannot connect ({0})")]
    Connect(String),
    /// No answer in time.
    #[error("no answer within {milliseconds} ms")]
    Timeout {
        /// The limit, ms.
        milliseconds: u64,
    },
    /// An HTTP status that is not a success.
    #[error("HTTP status {status}: {body}")]
    Status {
        /// The code.
        status: u16,
        /// Beginning of the body.
        body: String,
    },
    /// A body that does not fit the protocol.
    #[error("the answer does not fit the protocol ({0})")]
    Protocol(String),
    /// The caller lets nothing more be sent.
    #[error("not asked: {0}")]
    Withheld(String),
}

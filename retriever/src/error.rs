//! Errors, one enum per family of operations. Each message says what is wrong, where, and what to do.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use forage_contracts::retriever::RetrieverError;
use forage_net::{NetError, SettingError};

/// Failures of reading a corpus, queries or relevance judgements.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Nothing at the path.
    #[error("no file at `{}`; check the path, or pass the folder that holds it", path.display())]
    Missing {
        /// The path as given.
        path: PathBuf,
    },
    /// The operating system refused a read.
    #[error("cannot read `{}`{}; check what is there, permissions and the disk", path.display(), near(*line))]
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
    /// A file, or a row of it, is not what its format asks for.
    #[error("`{}`{place}: {what}; {fix}", path.display())]
    Malformed {
        /// File being read.
        path: PathBuf,
        /// The line or row, or the whole file.
        place: Box<str>,
        /// The fault.
        what: String,
        /// The way to remove it.
        fix: Cow<'static, str>,
    },
    /// A folder without anything to read.
    #[error(
        "`{}` holds no corpus; pass a file, or a folder with corpus.jsonl or with files of one kind: .jsonl(.gz), \
         .parquet, .md, .json, .tsv or .csv",
        path.display()
    )]
    NoCorpus {
        /// The folder.
        path: PathBuf,
    },
    /// An index folder where a corpus is wanted.
    #[error(
        "`{}` is an index, and a corpus is read here; name the corpus, or the index by --index (in a config data.files.index)",
        path.display()
    )]
    IsIndex {
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
    /// Files of a folder of markdown pages differ in their extensions alone.
    #[error(
        "`{}` and `{}` would be one page, as a page is called after its file without the extension ({count} such in all); rename \
         one of them, or write rows {{\"id\", \"title\", \"content\"}}",
        path.display(),
        first.display()
    )]
    SamePage {
        /// The later one.
        path: PathBuf,
        /// The earlier one.
        first: PathBuf,
        /// Number of files whose page an earlier one is.
        count: usize,
    },
    /// Two corpora that are to be one carry one name, so that their ids would not stay apart.
    #[error("`{}` and another of the corpora are both called `{name}`; rename one of them", path.display())]
    SameName {
        /// The later one.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// Two records carry one id.
    #[error(
        "`{}`: id `{id}` is on line {first}{} and again on line {second}; ids must be unique, remove or rename one",
        path.display(),
        of_file(earlier.as_deref())
    )]
    DuplicateId {
        /// File of the second use.
        path: PathBuf,
        /// File of the first use, where it is another.
        earlier: Option<PathBuf>,
        /// The repeated id.
        id: String,
        /// 1-based line of the first use.
        first: u64,
        /// 1-based line of the second use.
        second: u64,
    },
    /// A passage is judged twice for one query, with different grades.
    #[error(
        "`{}`: query `{query}` and passage `{document}` have grade {grade} on line {first} and grade {other} on line \
         {second}; remove one of them",
        path.display()
    )]
    Contradiction {
        /// File being read.
        path: PathBuf,
        /// The query.
        query: String,
        /// The passage.
        document: String,
        /// 1-based line of the first judgement.
        first: u64,
        /// Its grade.
        grade: i32,
        /// 1-based line of the second judgement.
        second: u64,
        /// Its grade.
        other: i32,
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
        /// The records that were expected: `passages`, `queries`, `judgements`.
        what: &'static str,
    },
    /// The first record fits none of the known formats.
    #[error(
        "cannot tell the corpus format of `{}` from its first record (fields: {fields}); name it: {known}",
        path.display()
    )]
    UndetectedFormat {
        /// File that was read.
        path: PathBuf,
        /// Field names of the first record.
        fields: String,
        /// The formats there are.
        known: String,
    },
}

/// The place of a read that failed; none of a file that could not be opened.
fn near(line: u64) -> String {
    if line == 0 {
        return String::new();
    }
    format!(" near line {line}")
}

/// The words for the file of a line, where it is another than the one that is named.
fn of_file(file: Option<&Path>) -> String {
    file.map_or_else(String::new, |file| format!(" of `{}`", file.display()))
}

/// Failures of building or opening an index.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The corpus could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// BM25 constants outside their range.
    #[error(
        "BM25 constants k1 = {k1}, b = {b} are out of range; use a finite k1 >= 0 and b in [0, 1]"
    )]
    Constants {
        /// Term-frequency saturation as given.
        k1: f32,
        /// Length normalisation as given.
        b: f32,
    },
    /// An index is already there and was not to be replaced.
    #[error("an index already exists at `{}`; choose another folder, or replace it with `--replace`", path.display())]
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
    /// The documents are parts of pages, and whole pages are asked for.
    #[error("`{}` holds passages cut from pages (format {format}), and whole pages are needed here; build it with `--format whole-pages`", path.display())]
    Passages {
        /// The index folder.
        path: PathBuf,
        /// The format of the corpus that was cut.
        format: String,
    },
    /// The documents are numbered parts of pages, and whole pages are asked for.
    #[error(
        "`{}` holds passages of pages, `{id}` for instance, and whole pages are needed here; build it from the pages with `--format whole-pages`",
        path.display()
    )]
    Pieces {
        /// The index folder.
        path: PathBuf,
        /// The second passage of a page.
        id: String,
    },
    /// Pages would be added in another form than the index has.
    #[error(
        "`{}` holds pages in format {held}, and {given} would mix whole pages with passages of pages; add with `--format {held}`, or \
         build another index",
        path.display()
    )]
    MixedPages {
        /// The index folder.
        path: PathBuf,
        /// The format of a corpus in the index.
        held: String,
        /// The format of the corpus to be added.
        given: &'static str,
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
        "index `{}` was built from {sources}, whose passages are others than those of the corpus that is expected (digests {found} \
         and {expected}); build the index again from that corpus or point to the index that belongs to it",
        index.display()
    )]
    CorpusMismatch {
        /// The index folder.
        index: PathBuf,
        /// Paths of the corpora that it was built from.
        sources: String,
        /// Digest that was expected, hex.
        expected: String,
        /// Digest in the manifest, hex.
        found: String,
    },
    /// The index was built from this corpus in another format than the one expected.
    #[error(
        "index `{}` has this corpus in the format {found}, and {expected} is expected here; build the index with `--format {expected}`, or \
         write data.files.format = \"{found}\"",
        index.display()
    )]
    OtherFormat {
        /// The index folder.
        index: PathBuf,
        /// Format of the index.
        found: String,
        /// Format that was expected.
        expected: String,
    },
    /// A file of the index is missing, cut short or inconsistent.
    #[error("index `{}` is damaged: {what}; build it again or restore the folder from a copy", path.display())]
    Damaged {
        /// The index folder.
        path: PathBuf,
        /// The mismatch.
        what: String,
    },
    /// Merging would lose the vectors of the segments.
    #[error("index `{}` holds vectors, which a merge cannot keep; build it again from its corpora", path.display())]
    Vectors {
        /// The index folder.
        path: PathBuf,
    },
    /// The corpus has more passages than an index can hold.
    #[error(
        "the corpus has more than {limit} passages, the most one index holds; split it into shards"
    )]
    TooLarge {
        /// Most passages.
        limit: u64,
    },
    /// The operating system refused a file operation.
    #[error("{action} `{}`; check permissions and free space", path.display())]
    Io {
        /// The action: `create`, `write`, `rename`.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The postings engine failed.
    #[error("postings engine failed to {action} in `{}`", path.display())]
    Engine {
        /// The action.
        action: &'static str,
        /// The index folder, or `memory`.
        path: PathBuf,
        /// The cause.
        #[source]
        source: tantivy::TantivyError,
    },
}

impl IndexError {
    /// Makes the error of a file operation of its cause.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

impl From<IndexError> for RetrieverError {
    fn from(error: IndexError) -> Self {
        Self::Index(error.into())
    }
}

/// The failure of a search whose server did not answer as it should, retries included.
pub(crate) fn remote(error: NetError) -> RetrieverError {
    RetrieverError::Remote(error.into())
}

/// The failure of a search whose client is set up in a way that cannot work.
pub(crate) fn setting(SettingError { key, what }: SettingError) -> RetrieverError {
    RetrieverError::setting(key, what)
}

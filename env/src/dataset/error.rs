//! Failures of reading a data set.

use std::path::PathBuf;

use crate::task::Split;

/// Failures of reading a data set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// The file could not be opened or read.
    #[error("read data set `{}`; check the path and permissions", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The file holds no line.
    #[error("data set `{}` is empty; expected one JSON object per line, a JSON list, or parquet", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A native file holds no task of the wanted split.
    #[error("data set `{}` holds {rows} tasks but none of split {split:?}; ask for a split it holds", path.display())]
    NoSuchSplit {
        /// The file.
        path: PathBuf,
        /// The split asked for.
        split: Split,
        /// Tasks of other splits.
        rows: usize,
    },
    /// A line is not what the format asks for.
    #[error("data set `{}` {unit} {line}: {fault}; {fix}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// `line`, or `row` of a JSON list or a parquet file.
        unit: &'static str,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        fault: String,
        /// What to do about it.
        fix: String,
    },
    /// The file's bytes are not what they promise.
    #[error(transparent)]
    Rows(#[from] forage_retriever::ReadError),
    /// A list of ids cannot be followed.
    #[error("id list `{}` line {line}: {what}", path.display())]
    Ids {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong and the fix.
        what: String,
    },
    /// A file of a BEIR folder cannot be read.
    #[error("BEIR folder `{}`; it holds queries.jsonl and qrels/{{train,dev,test}}.tsv, or both as parquet", path.display())]
    Beir {
        /// The folder.
        path: PathBuf,
        /// Which file and why.
        #[source]
        source: forage_retriever::ReadError,
    },
    /// Judgments of a query that does not exist.
    #[error("BEIR folder `{}` judges query `{id}`, which queries.jsonl does not hold; the files belong together", path.display())]
    Unasked {
        /// The folder.
        path: PathBuf,
        /// The query's id.
        id: String,
    },
    /// Two lines have the same id.
    #[error("data set `{}` has id `{id}` on lines {first} and {second}; make ids unique or remove one line", path.display())]
    DuplicateId {
        /// The file.
        path: PathBuf,
        /// The repeated id.
        id: String,
        /// Line it stands on first, counted from 1.
        first: usize,
        /// Line it stands on again.
        second: usize,
    },
}

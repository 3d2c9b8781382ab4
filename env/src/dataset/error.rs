//! Failures of reading a data set.

use std::path::PathBuf;

use forage_contracts::Split;

/// Failures of reading a data set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// A list of ids could not be opened or read.
    #[error("read id list `{}`; check the path and permissions", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The file holds no row.
    #[error("data set `{}` is empty; expected one JSON object per line, a JSON list, or parquet", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A native file, or a folder of files named after splits, holds no task of the wanted split.
    #[error("data set `{}` holds {rows} tasks but none of split {split:?}; ask for a split it holds", path.display())]
    NoSuchSplit {
        /// The file.
        path: PathBuf,
        /// The split asked for.
        split: Split,
        /// Tasks of other splits.
        rows: usize,
    },
    /// A file cannot be read, a row is not what its format asks for, or two rows have the same id.
    #[error(transparent)]
    Rows(#[from] forage_retriever::ReadError),
    /// A list of ids cannot be followed.
    #[error("id list `{}` line {line}: {what}", path.display())]
    Ids {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The fault and the fix.
        what: String,
    },
    /// A file of a BEIR folder cannot be read.
    #[error("BEIR folder `{}` must hold queries.jsonl and qrels/{{train,dev,test}}.tsv, or both as parquet", path.display())]
    Beir {
        /// The folder.
        path: PathBuf,
        /// The file and the cause.
        #[source]
        source: forage_retriever::ReadError,
    },
    /// A BEIR folder has judgments of other splits alone.
    #[error(
        "BEIR folder `{}` has judgments of `{found}` and none of `{asked}`: add qrels/{asked}.tsv, or, in a config, name the folder in \
         data.files.{found}",
        path.display()
    )]
    Unjudged {
        /// The folder.
        path: PathBuf,
        /// The split that was asked for.
        asked: &'static str,
        /// One that has judgments.
        found: &'static str,
    },
    /// Judgments of a query that does not exist.
    #[error("BEIR folder `{}` judges query `{id}`, which queries.jsonl does not hold; the files belong together", path.display())]
    Unasked {
        /// The folder.
        path: PathBuf,
        /// The query's id.
        id: String,
    },
}

//! Rows of data files, whatever the files are written in: JSON lines (plain or gzip), one JSON list, parquet, tables of text, markdown.

mod files;
mod lines;
mod list;
mod markdown;
mod parquet;
mod reader;
mod table;

pub(crate) use files::{Part, corpus_files};
pub(crate) use lines::each_line;
pub use reader::RowReader;
pub(crate) use reader::is_parquet;

/// Longest record of any file, bytes. The wiki pages people index stay below 1 MiB; a longer line is a file without line
/// ends or one that is not text at all, and reading it whole could take all memory.
const MAX_RECORD_BYTES: u64 = 64 << 20;

//! The files behind a corpus path, and records out of each of them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::list::JsonList;
use super::markdown::MarkdownFile;
use super::parquet::{MAGIC, ParquetRows};
use crate::error::ReadError;
use crate::lines::{LineReader, open_failure};
use crate::record::{Fault, Record};

/// Bytes in which a file shows what it is.
const START_BYTES: u64 = 64;

/// One file of rows as whole JSON objects, read from front to back: what [`Source`] reads, without the choice of fields.
pub(crate) struct RowSource(Source);

impl RowSource {
    /// Opens a file; its first bytes tell parquet, gzip and a JSON list.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        Source::by_bytes(path, ParquetRows::open_whole).map(Self)
    }

    /// Reads the next row; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, ReadError> {
        self.0.advance()
    }

    /// 1-based line or row of the row read last.
    pub(crate) fn number(&self) -> u64 {
        self.0.number()
    }

    /// The row read last.
    pub(crate) fn json(&self) -> Result<Map<String, Value>, ReadError> {
        let text = match &self.0 {
            Source::Parquet(rows) => return Ok(rows.json()),
            Source::Lines(lines) => lines.text()?,
            Source::List(list) => list.text(),
            Source::Markdown(_) => "",
        };
        serde_json::from_str(text).map_err(|cause| {
            let what = if cause.is_data() { "not a JSON object".to_owned() } else { format!("not JSON ({cause})") };
            self.0.fault(Fault { what, fix: "write one JSON object per line, in UTF-8" })
        })
    }
}

/// One file of records, read from front to back.
pub(super) enum Source {
    Lines(LineReader),
    List(JsonList),
    Parquet(Box<ParquetRows>),
    Markdown(MarkdownFile),
}

impl Source {
    /// Opens a file; its first bytes tell parquet, gzip and a JSON list, its name markdown.
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        if Kind::of(path) == Some(Kind::Markdown) {
            return MarkdownFile::open(path).map(Self::Markdown);
        }
        Self::by_bytes(path, ParquetRows::open)
    }

    fn by_bytes(
        path: &Path,
        parquet: impl Fn(&Path, File) -> Result<ParquetRows, ReadError>,
    ) -> Result<Self, ReadError> {
        let mut magic = Vec::with_capacity(START_BYTES as usize);
        let mut file = File::open(path).map_err(|source| open_failure(path, source))?;
        let read = file.by_ref().take(START_BYTES).read_to_end(&mut magic);
        read.map_err(|source| open_failure(path, source))?;
        if magic.starts_with(&MAGIC) {
            Ok(Self::Parquet(Box::new(parquet(path, file)?)))
        } else if JsonList::begins(&magic) {
            JsonList::open(path).map(Self::List)
        } else {
            LineReader::open(path).map(Self::Lines)
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Lines(lines) => lines.path(),
            Self::List(list) => list.path(),
            Self::Parquet(rows) => rows.path(),
            Self::Markdown(file) => file.path(),
        }
    }

    /// Reads the next record; false at the end.
    pub(super) fn advance(&mut self) -> Result<bool, ReadError> {
        match self {
            Self::Lines(lines) => lines.advance(),
            Self::List(list) => list.advance(),
            Self::Parquet(rows) => rows.advance(),
            Self::Markdown(file) => Ok(file.advance()),
        }
    }

    /// The record read last.
    pub(super) fn record(&self) -> Result<Record<'_>, ReadError> {
        match self {
            Self::Lines(lines) => lines.record(),
            Self::List(list) => list.record(),
            Self::Parquet(rows) => rows.record(),
            Self::Markdown(file) => Ok(file.record()),
        }
    }

    /// 1-based line or row of the record read last.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Lines(lines) => lines.line(),
            Self::List(list) => list.number(),
            Self::Parquet(rows) => rows.row(),
            Self::Markdown(_) => 1,
        }
    }

    /// Lines or rows of a file that was read to its end.
    pub(super) fn lines(&self) -> u64 {
        match self {
            Self::Parquet(rows) => rows.row() - 1,
            _ => self.number(),
        }
    }

    /// The error for the record read last.
    pub(super) fn fault(&self, fault: Fault) -> ReadError {
        match self {
            Self::Lines(lines) => lines.fault(fault),
            Self::List(list) => list.fault(fault),
            Self::Parquet(rows) => rows.fault(fault),
            Self::Markdown(file) => file.fault(fault),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lines,
    Parquet,
    Markdown,
}

impl Kind {
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        if name.starts_with(['.', '_']) {
            return None;
        }
        let ends = |end: &str| name.len() > end.len() && name.ends_with(end);
        if ends(".jsonl") || ends(".jsonl.gz") {
            Some(Self::Lines)
        } else if ends(".parquet") {
            Some(Self::Parquet)
        } else {
            ends(".md").then_some(Self::Markdown)
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Lines => ".jsonl",
            Self::Parquet => ".parquet",
            Self::Markdown => ".md",
        }
    }
}

/// The files behind a path, in the order they are read.
///
/// A file stands for itself. A folder stands for its `corpus.jsonl`, `corpus.jsonl.gz` or `corpus.parquet`, the first
/// there is; without one, for all its `.jsonl` and `.jsonl.gz`, its `.parquet` or its `.md` files in the byte order of
/// their names, hidden ones and subfolders aside.
pub(super) fn corpus_files(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let named = ["corpus.jsonl", "corpus.jsonl.gz", "corpus.parquet"].map(|name| path.join(name));
    if let Some(file) = named.into_iter().find(|file| file.exists()) {
        return Ok(vec![file]);
    }
    let fail = |source| open_failure(path, source);
    let mut files = Vec::new();
    let mut kind = None;
    for entry in std::fs::read_dir(path).map_err(fail)? {
        let file = entry.map_err(fail)?.path();
        let Some(found) = Kind::of(&file).filter(|_| file.is_file()) else {
            continue;
        };
        let first = *kind.get_or_insert(found);
        if first != found {
            let [one, other] = if first.name() < found.name() { [first, found] } else { [found, first] };
            return Err(ReadError::MixedFolder { path: path.to_owned(), one: one.name(), other: other.name() });
        }
        files.push(file);
    }
    if files.is_empty() {
        return Err(ReadError::NoCorpus { path: path.to_owned() });
    }
    files.sort_unstable();
    Ok(files)
}

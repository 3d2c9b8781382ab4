//! Rows of published data sets as JSON objects: JSON lines (plain or gzip), one JSON list, or parquet.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::corpus::RowSource;
use crate::error::ReadError;

/// One row and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonRow {
    /// 1-based line, or row of a list or a parquet file.
    pub number: u64,
    /// Its fields in the order of the file, nested ones as they are.
    pub fields: Map<String, Value>,
}

/// Reads the rows of one file from front to back. What a file is shows in its first bytes.
///
/// Yields an error for the first row that cannot be read and ends after it. Of parquet, integers, booleans and text keep
/// their kinds; dates and times become text.
pub struct JsonRows {
    source: RowSource,
    ended: bool,
}

impl JsonRows {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be opened or is not readable parquet file.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Ok(Self { source: RowSource::open(path)?, ended: false })
    }

    /// The files of a path: itself, or the `.parquet` or `.jsonl` files of a folder in the byte order of their names.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub fn files(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
        if !path.is_dir() {
            return Ok(vec![path.to_owned()]);
        }
        let fail = |source| crate::lines::open_failure(path, source);
        let mut files = Vec::new();
        for entry in std::fs::read_dir(path).map_err(fail)? {
            let file = entry.map_err(fail)?.path();
            let name = file.to_string_lossy();
            if [".parquet", ".jsonl", ".jsonl.gz"].iter().any(|end| name.ends_with(end)) {
                files.push(file);
            }
        }
        files.sort_unstable();
        Ok(files)
    }
}

impl Iterator for JsonRows {
    type Item = Result<JsonRow, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let row = match self.source.advance() {
            Ok(true) => self.source.json().map(|fields| Some(JsonRow { number: self.source.number(), fields })),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        self.ended = !matches!(row, Ok(Some(_)));
        row.transpose()
    }
}

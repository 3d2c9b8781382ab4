//! The reader of a file's rows: what the file is written in shows in its first bytes.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use super::files::{Part, is_markdown};
use super::lines::LineReader;
use super::list::JsonList;
use super::markdown::MarkdownFile;
use super::parquet::{MAGIC, ParquetRows};
use super::table::{Table, separator};
use crate::error::ReadError;
use forage_contracts::{Row, RowFault};

/// Bytes in which a file shows what it is written in.
const START_BYTES: u64 = 64;

/// First bytes of packed files that are not read, and what packs them so.
const PACKED: [(&[u8], &str); 5] = [
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh91AY&SY", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"PK\x03\x04", "zip"),
];

/// A file of rows, read from front to back.
pub(super) trait Rows: Send {
    /// Reads the next row; false at the end.
    fn advance(&mut self) -> Result<bool, Stop>;

    /// The row read last.
    fn row(&self) -> Result<Row<'_>, RowFault>;

    /// The place of the row read last.
    fn place(&self) -> Place;
}

/// The reason why reading ends early.
pub(super) enum Stop {
    Fault(RowFault),
    Io(io::Error),
}

impl From<RowFault> for Stop {
    fn from(fault: RowFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for Stop {
    fn from(source: io::Error) -> Self {
        Self::Io(source)
    }
}

/// The place of a row in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The file as a whole.
    File,
    /// A line, from 1.
    Line(u64),
    /// A row of a parquet file or a JSON list, from 1.
    Row(u64),
}

impl Place {
    /// The line or row; a file that is one row has row 1.
    fn number(self) -> u64 {
        match self {
            Self::File => 1,
            Self::Line(number) | Self::Row(number) => number,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => Ok(()),
            Self::Line(number) => write!(formatter, " line {number}"),
            Self::Row(number) => write!(formatter, " row {number}"),
        }
    }
}

/// Reads the rows of one file: JSON lines (plain or gzip), one JSON list, parquet, a table of text (`.tsv` or `.csv`, plain or
/// gzip), or a markdown page.
pub struct RowReader {
    path: PathBuf,
    rows: Box<dyn Rows>,
}

impl RowReader {
    /// Opens a file; its first bytes tell parquet, gzip and a JSON list, its name a table and markdown.
    ///
    /// # Errors
    /// When it cannot be opened or is not what it begins as.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::open_with(path, None, false)
    }

    /// As [`RowReader::open`] for a part of a corpus, without the lists and maps of a parquet file, which stay on disk.
    pub(crate) fn open_part(part: &Part) -> Result<Self, ReadError> {
        Self::open_with(&part.path, part.page.as_deref(), true)
    }

    /// `page` is the id of a page, where that is not the file's name.
    fn open_with(path: &Path, page: Option<&str>, scalars: bool) -> Result<Self, ReadError> {
        let rows = || -> Result<Box<dyn Rows>, Stop> {
            let mut file = File::open(path)?;
            if is_markdown(path) {
                return Ok(Box::new(MarkdownFile::open(path, page, file)?));
            }
            let start = first_bytes(&mut file)?;
            if let Some((_, form)) = PACKED.iter().find(|(begin, _)| start.starts_with(begin)) {
                let what = format!("packed with {form}, which is not read");
                return Err(RowFault::new(what, "unpack it, or pack it with gzip").into());
            }
            Ok(if start.starts_with(&MAGIC) {
                Box::new(ParquetRows::open(file, scalars)?)
            } else if let Some(separator) = separator(path) {
                Box::new(Table::open(file, separator)?)
            } else if JsonList::begins(&start) {
                Box::new(JsonList::open(file)?)
            } else {
                Box::new(LineReader::new(file)?)
            })
        };
        Ok(Self {
            path: path.to_owned(),
            rows: rows().map_err(|stop| stopped(path, Place::File, stop))?,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The line or row read last, from 1; a file that is one row has row 1.
    pub fn number(&self) -> u64 {
        self.rows.place().number()
    }

    /// Reads the next row; none at the end. Nothing can be read after an error.
    ///
    /// # Errors
    /// For a row that cannot be read.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, ReadError> {
        let read = self.rows.advance();
        let place = self.rows.place();
        if !read.map_err(|stop| stopped(&self.path, place, stop))? {
            return Ok(None);
        }
        match self.rows.row() {
            Ok(row) => Ok(Some(row)),
            Err(fault) => Err(stopped(&self.path, place, Stop::Fault(fault))),
        }
    }

    /// The error for a row that does not fit its format: the one read last.
    pub fn fault(&self, fault: RowFault) -> ReadError {
        stopped(&self.path, self.rows.place(), Stop::Fault(fault))
    }
}

/// The error for reading that ended at a place.
pub(super) fn stopped(path: &Path, place: Place, stop: Stop) -> ReadError {
    let path = path.to_owned();
    match stop {
        Stop::Fault(RowFault { what, fix }) => ReadError::Malformed {
            path,
            place: place.to_string().into(),
            what,
            fix,
        },
        Stop::Io(source) => match (place, source.kind()) {
            (Place::Line(line), io::ErrorKind::UnexpectedEof) => {
                ReadError::Truncated { path, line }
            }
            (Place::Line(line), _) => ReadError::Io {
                path,
                line: line + 1,
                source,
            },
            _ => open_failure(&path, source),
        },
    }
}

fn first_bytes(file: &mut File) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(START_BYTES as usize);
    file.by_ref().take(START_BYTES).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start)
}

/// Tells whether a file is parquet.
pub(crate) fn is_parquet(path: &Path) -> Result<bool, ReadError> {
    let read = File::open(path).and_then(|mut file| first_bytes(&mut file));
    let start = read.map_err(|source| open_failure(path, source))?;
    Ok(start.starts_with(&MAGIC))
}

/// The error for a file that could not be opened.
pub(crate) fn open_failure(path: &Path, source: io::Error) -> ReadError {
    let path = path.to_owned();
    if source.kind() == io::ErrorKind::NotFound {
        ReadError::Missing { path }
    } else {
        ReadError::Io {
            path,
            line: 0,
            source,
        }
    }
}

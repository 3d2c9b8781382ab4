//! Line-by-line reading of plain or gzip files, with the line number in every error.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::error::ReadError;
use crate::record::{Fault, Record, parse_json};

const BUFFER_BYTES: usize = 1 << 18;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Longest record of any file, bytes. The wiki pages people index stay below 1 MiB; a longer line is a file without line
/// ends or one that is not text at all, and reading it whole could take all memory.
pub(crate) const MAX_RECORD_BYTES: u64 = 64 << 20;

/// Reads lines that hold something; blank lines are counted and passed over.
pub(crate) struct LineReader {
    path: PathBuf,
    source: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    line: u64,
}

impl LineReader {
    /// Opens a plain or gzip file; which of the two is read off its first bytes, not its name.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        let fail = |source: io::Error| open_failure(path, source);
        let mut file = File::open(path).map_err(fail)?;
        let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
        file.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut magic).map_err(fail)?;
        file.rewind().map_err(fail)?;
        let plain = BufReader::with_capacity(BUFFER_BYTES, file);
        let source: Box<dyn BufRead + Send> = if magic == GZIP_MAGIC {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(plain)))
        } else {
            Box::new(plain)
        };
        Ok(Self { path: path.to_owned(), source, buffer: Vec::new(), line: 0 })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// 1-based number of the line read last; 0 before the first.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Reads the next line that is not blank; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, ReadError> {
        loop {
            self.buffer.clear();
            let read = (&mut self.source).take(MAX_RECORD_BYTES + 1).read_until(b'\n', &mut self.buffer);
            match read {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(source) => return Err(self.read_failure(source)),
            }
            self.line += 1;
            if self.buffer.len() as u64 > MAX_RECORD_BYTES {
                return Err(self.fault(Fault {
                    what: format!("a line of more than {} MiB", MAX_RECORD_BYTES >> 20),
                    fix: "write one record per line, and cut longer texts",
                }));
            }
            if self.line == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
                self.buffer.drain(..3);
            }
            if !self.buffer.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    /// The line read last, without its line end.
    pub(crate) fn text(&self) -> Result<&str, ReadError> {
        std::str::from_utf8(self.buffer.trim_ascii_end()).map_err(|cause| {
            self.fault(Fault {
                what: format!("byte {} is not UTF-8", cause.valid_up_to() + 1),
                fix: "convert the file to UTF-8",
            })
        })
    }

    /// The line read last as a JSON object.
    pub(crate) fn record(&self) -> Result<Record<'_>, ReadError> {
        parse_json(self.text()?).map_err(|fault| self.fault(fault))
    }

    /// The error for a line that does not fit: the one read last.
    pub(crate) fn fault(&self, fault: Fault) -> ReadError {
        let Fault { what, fix } = fault;
        ReadError::Malformed { path: self.path.clone(), line: self.line, what, fix }
    }

    fn read_failure(&self, source: io::Error) -> ReadError {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => ReadError::Truncated { path: self.path.clone(), line: self.line },
            _ => ReadError::Io { path: self.path.clone(), line: self.line + 1, source },
        }
    }
}

/// The error for a file that could not be opened.
pub(crate) fn open_failure(path: &Path, source: io::Error) -> ReadError {
    if source.kind() == io::ErrorKind::NotFound {
        ReadError::Missing { path: path.to_owned() }
    } else {
        ReadError::Io { path: path.to_owned(), line: 0, source }
    }
}

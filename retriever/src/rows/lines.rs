//! Lines of a plain or gzip file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::MAX_RECORD_BYTES;
use super::reader::{Place, Rows, Stop, open_failure, stopped};
use crate::error::ReadError;
use forage_contracts::{Row, RowFault};

const BUFFER_BYTES: usize = 1 << 18;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reads lines that hold something; blank lines are counted and passed over.
pub(super) struct LineReader {
    source: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    line: u64,
}

impl LineReader {
    /// Reads a file from its start; its first bytes tell gzip from plain text, not its name.
    pub(super) fn new(mut file: File) -> io::Result<Self> {
        let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
        file.rewind()?;
        file.by_ref()
            .take(GZIP_MAGIC.len() as u64)
            .read_to_end(&mut magic)?;
        file.rewind()?;
        let plain = BufReader::with_capacity(BUFFER_BYTES, file);
        let source: Box<dyn BufRead + Send> = if magic == GZIP_MAGIC {
            Box::new(BufReader::with_capacity(
                BUFFER_BYTES,
                MultiGzDecoder::new(plain),
            ))
        } else {
            Box::new(plain)
        };
        Ok(Self {
            source,
            buffer: Vec::new(),
            line: 0,
        })
    }

    /// The line read last, without blanks at its end.
    fn text(&self) -> Result<&str, RowFault> {
        self.line().map(str::trim_ascii_end)
    }

    /// The line read last, without its line end.
    pub(super) fn line(&self) -> Result<&str, RowFault> {
        let line = self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        std::str::from_utf8(line).map_err(|cause| not_utf8(&cause))
    }
}

/// Hands every line that is not blank to `take`, with its number.
///
/// # Errors
/// When the file cannot be read, or `take` finds a fault in a line.
pub(crate) fn each_line(
    path: &Path,
    mut take: impl FnMut(u64, &str) -> Result<(), RowFault>,
) -> Result<(), ReadError> {
    let opened = File::open(path).and_then(LineReader::new);
    let mut lines = opened.map_err(|source| open_failure(path, source))?;
    loop {
        let read = lines.advance().and_then(|more| {
            if more {
                take(lines.line, lines.text()?)?;
            }
            Ok(more)
        });
        match read {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(stop) => return Err(stopped(path, lines.place(), stop)),
        }
    }
}

/// The fault of bytes that are not text.
pub(super) fn not_utf8(cause: &std::str::Utf8Error) -> RowFault {
    let what = format!("byte {} is not UTF-8", cause.valid_up_to() + 1);
    RowFault::new(what, "convert the file to UTF-8")
}

impl Rows for LineReader {
    fn advance(&mut self) -> Result<bool, Stop> {
        loop {
            self.buffer.clear();
            let read = (&mut self.source)
                .take(MAX_RECORD_BYTES + 1)
                .read_until(b'\n', &mut self.buffer)?;
            if read == 0 {
                return Ok(false);
            }
            self.line += 1;
            if read as u64 > MAX_RECORD_BYTES {
                let what = format!("a line of more than {} MiB", MAX_RECORD_BYTES >> 20);
                let fix = "write one record per line, and cut longer texts";
                return Err(RowFault::new(what, fix).into());
            }
            if self.line == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
                self.buffer.drain(..3);
            }
            if !self.buffer.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn row(&self) -> Result<Row<'_>, RowFault> {
        Row::parse_json(self.text()?)
    }

    fn place(&self) -> Place {
        Place::Line(self.line)
    }
}

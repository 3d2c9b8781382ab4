//! Line-by-line reading of plain or gzip files, with the line number in every error.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use serde_json::{Map, Value};

use crate::error::ReadError;

const BUFFER_BYTES: usize = 1 << 18;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// One JSON record.
pub(crate) type Object = Map<String, Value>;

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
        let fail = |source: io::Error| {
            if source.kind() == io::ErrorKind::NotFound {
                ReadError::Missing { path: path.to_owned() }
            } else {
                ReadError::Io { path: path.to_owned(), line: 0, source }
            }
        };
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

    /// The next line that is not blank, without its line end, and its 1-based number.
    pub(crate) fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, ReadError> {
        loop {
            self.buffer.clear();
            let read = self.source.read_until(b'\n', &mut self.buffer);
            match read {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(source) => return Err(self.read_failure(source)),
            }
            self.line += 1;
            if self.line == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
                self.buffer.drain(..3);
            }
            if !self.buffer.trim_ascii().is_empty() {
                return Ok(Some((self.line, self.buffer.trim_ascii_end())));
            }
        }
    }

    /// The next line as text.
    pub(crate) fn next_text(&mut self) -> Result<Option<(u64, &str)>, ReadError> {
        let path = self.path.clone();
        let Some((line, bytes)) = self.next_line()? else {
            return Ok(None);
        };
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some((line, text))),
            Err(_) => Err(ReadError::Malformed {
                path,
                line,
                what: "not UTF-8".to_owned(),
                mend: "convert the file to UTF-8",
            }),
        }
    }

    /// The next line as a JSON object.
    pub(crate) fn next_object(&mut self) -> Result<Option<(u64, Object)>, ReadError> {
        let parsed = match self.next_line()? {
            None => return Ok(None),
            Some((line, bytes)) => (line, serde_json::from_slice::<Object>(bytes)),
        };
        match parsed {
            (line, Ok(object)) => Ok(Some((line, object))),
            (line, Err(cause)) => Err(self.malformed(
                line,
                format!("not a JSON object ({cause})"),
                "write one JSON object per line, in UTF-8",
            )),
        }
    }

    pub(crate) fn malformed(&self, line: u64, what: String, mend: &'static str) -> ReadError {
        ReadError::Malformed { path: self.path.clone(), line, what, mend }
    }

    fn read_failure(&self, source: io::Error) -> ReadError {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => ReadError::Truncated { path: self.path.clone(), line: self.line },
            _ => ReadError::Io { path: self.path.clone(), line: self.line + 1, source },
        }
    }
}

/// Takes fields out of one JSON record, naming file, line and field when one does not fit.
pub(crate) struct Record<'r> {
    reader: &'r LineReader,
    line: u64,
    object: Object,
}

impl<'r> Record<'r> {
    pub(crate) fn new(reader: &'r LineReader, line: u64, object: Object) -> Self {
        Self { reader, line, object }
    }

    /// A required id: a non-empty string, or an integer written out.
    pub(crate) fn id(&mut self, field: &str, mend: &'static str) -> Result<String, ReadError> {
        match self.object.remove(field) {
            Some(Value::String(id)) if !id.is_empty() => Ok(id),
            Some(Value::Number(number)) if !number.is_f64() => Ok(number.to_string()),
            Some(other) => Err(self.misfit(field, "a non-empty string", &other, mend)),
            None => Err(self.absent(field, mend)),
        }
    }

    /// A required text, possibly empty.
    pub(crate) fn text(&mut self, field: &str, mend: &'static str) -> Result<String, ReadError> {
        match self.object.remove(field) {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(self.misfit(field, "a string", &other, mend)),
            None => Err(self.absent(field, mend)),
        }
    }

    /// A text that may be absent or null, which both read as empty.
    pub(crate) fn optional_text(&mut self, field: &str, mend: &'static str) -> Result<String, ReadError> {
        match self.object.remove(field) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(self.misfit(field, "a string", &other, mend)),
        }
    }

    fn absent(&self, field: &str, mend: &'static str) -> ReadError {
        self.reader.malformed(self.line, format!("field `{field}` is missing"), mend)
    }

    fn misfit(&self, field: &str, wanted: &str, found: &Value, mend: &'static str) -> ReadError {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "an empty string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        self.reader.malformed(self.line, format!("field `{field}` is {found}, not {wanted}"), mend)
    }
}

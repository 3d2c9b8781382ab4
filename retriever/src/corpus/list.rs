//! A JSON file that holds all records in one list.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

use crate::error::ReadError;
use crate::lines::open_failure;
use crate::record::{Fault, Record, parse_json};

/// Longest list, bytes: it is held in memory as a whole.
const MAX_LIST_BYTES: u64 = 1 << 30;
const MEND: &str = "write one JSON list of objects, or one JSON object per line";

/// `[{...}, {...}]`, as some corpora are published.
pub(super) struct JsonList {
    path: PathBuf,
    text: String,
    /// Where the next record may begin.
    at: usize,
    record: Range<usize>,
    number: u64,
}

impl JsonList {
    /// Whether a file with these first bytes is a list.
    pub(super) fn begins(start: &[u8]) -> bool {
        start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start().first() == Some(&b'[')
    }

    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let fail = |source| open_failure(path, source);
        let unreadable = |what: String, fix| ReadError::Unreadable { path: path.to_owned(), what, fix };
        let mut bytes = Vec::new();
        File::open(path).map_err(fail)?.take(MAX_LIST_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
        if bytes.len() as u64 > MAX_LIST_BYTES {
            let what = format!("a JSON list of more than {} MiB", MAX_LIST_BYTES >> 20);
            return Err(unreadable(what, "write one JSON object per line instead"));
        }
        let text = String::from_utf8(bytes).map_err(|cause| {
            let at = cause.utf8_error().valid_up_to() + 1;
            unreadable(format!("byte {at} is not UTF-8"), "convert the file to UTF-8")
        })?;
        let at = text.find('[').map_or(text.len(), |bracket| bracket + 1);
        Ok(Self { path: path.to_owned(), text, at, record: 0..0, number: 0 })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// 1-based number of the record read last.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Finds the next record; false at the end of the list.
    pub(super) fn advance(&mut self) -> Result<bool, ReadError> {
        self.number += 1;
        let broken = |what: &str| self.fault(Fault { what: what.to_owned(), fix: MEND });
        let mut rest = self.text[self.at..].trim_ascii_start();
        if let Some(after) = rest.strip_prefix(']') {
            if !after.trim_ascii().is_empty() {
                return Err(broken("something follows the end of the list"));
            }
            // So that the end stays the end.
            self.at = self.text.len() - rest.len();
            self.number -= 1;
            return Ok(false);
        }
        if self.number > 1 {
            let Some(after) = rest.strip_prefix(',') else { return Err(broken("no comma after the record before")) };
            rest = after.trim_ascii_start();
        }
        let start = self.text.len() - rest.len();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(_)) => {}
            Some(Err(cause)) => return Err(broken(&format!("not JSON ({cause})"))),
            None => return Err(broken("the list is not closed")),
        }
        let end = start + values.byte_offset();
        self.record = start..end;
        self.at = end;
        Ok(true)
    }

    /// The record read last, as written.
    pub(super) fn text(&self) -> &str {
        &self.text[self.record.clone()]
    }

    pub(super) fn record(&self) -> Result<Record<'_>, ReadError> {
        parse_json(&self.text[self.record.clone()]).map_err(|Fault { what, .. }| self.fault(Fault { what, fix: MEND }))
    }

    pub(super) fn fault(&self, Fault { what, fix }: Fault) -> ReadError {
        ReadError::MalformedRow { path: self.path.clone(), row: self.number, what, fix }
    }
}

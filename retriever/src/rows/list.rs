//! A JSON file that holds all records in one list.

use std::fs::File;
use std::io::{Read, Seek};
use std::ops::Range;

use serde::de::IgnoredAny;

use super::lines::not_utf8;
use super::reader::{Place, Rows, Stop};
use forage_contracts::{Row, RowFault};

/// Longest list, bytes: it is held in memory as a whole.
const MAX_LIST_BYTES: u64 = 1 << 30;
const FIX: &str = "write one JSON list of objects, or one JSON object per line";

/// `[{...}, {...}]`, as some corpora are published.
pub(super) struct JsonList {
    text: String,
    /// The place where the next record may begin.
    at: usize,
    record: Range<usize>,
    number: u64,
    /// The list has been read to its end.
    ended: bool,
}

impl JsonList {
    /// Tells whether a file with these first bytes is a list.
    pub(super) fn begins(start: &[u8]) -> bool {
        start
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(start)
            .trim_ascii_start()
            .first()
            == Some(&b'[')
    }

    pub(super) fn open(file: File) -> Result<Self, Stop> {
        let text = read_text(
            file,
            MAX_LIST_BYTES,
            ("a JSON list", "write one JSON object per line instead"),
        )?;
        let at = text.find('[').map_or(text.len(), |bracket| bracket + 1);
        Ok(Self {
            text,
            at,
            record: 0..0,
            number: 0,
            ended: false,
        })
    }
}

/// The text of a whole file, up to a length; `kind` names what is longer, with the fix.
pub(super) fn read_text(
    mut file: File,
    most: u64,
    (kind, fix): (&str, &'static str),
) -> Result<String, Stop> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!("{kind} of more than {} MiB", most >> 20);
        return Err(RowFault::new(what, fix).into());
    }
    String::from_utf8(bytes).map_err(|cause| not_utf8(&cause.utf8_error()).into())
}

impl Rows for JsonList {
    fn advance(&mut self) -> Result<bool, Stop> {
        if self.ended {
            return Ok(false);
        }
        let broken = |what: &str| Stop::from(RowFault::new(what, FIX));
        let mut rest = self.text[self.at..].trim_ascii_start();
        if let Some(after) = rest.strip_prefix(']') {
            self.ended = true;
            if after.trim_ascii().is_empty() {
                return Ok(false);
            }
            self.number += 1;
            return Err(broken("something follows the end of the list"));
        }
        self.number += 1;
        if self.number > 1 {
            let after = rest.strip_prefix(',');
            rest = after
                .ok_or_else(|| broken("no comma after the record before"))?
                .trim_ascii_start();
        }
        let start = self.text.len() - rest.len();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(_)) => {}
            Some(Err(cause)) => return Err(broken(&format!("not JSON ({cause})"))),
            None => return Err(broken("the list is not closed")),
        }
        self.at = start + values.byte_offset();
        self.record = start..self.at;
        Ok(true)
    }

    fn row(&self) -> Result<Row<'_>, RowFault> {
        Row::parse_json(&self.text[self.record.clone()])
            .map_err(|fault| RowFault::new(fault.what, FIX))
    }

    fn place(&self) -> Place {
        Place::Row(self.number)
    }
}

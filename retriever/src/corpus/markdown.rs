//! A markdown file as one page.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::ReadError;
use crate::lines::{MAX_RECORD_BYTES, open_failure};
use crate::record::{Cell, Fault, Record};

/// One page: its id is the file's name without `.md`; its title the front matter's, else its first first-level heading,
/// else the id. Further `name: value` lines of the front matter become columns.
pub(super) struct MarkdownFile {
    path: PathBuf,
    id: String,
    text: String,
    is_read: bool,
}

impl MarkdownFile {
    pub(super) fn open(path: &Path) -> Result<Self, ReadError> {
        let fail = |source| open_failure(path, source);
        let unreadable = |what: String, fix| ReadError::Unreadable { path: path.to_owned(), what, fix };
        let mut bytes = Vec::new();
        File::open(path).map_err(fail)?.take(MAX_RECORD_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
        if bytes.len() as u64 > MAX_RECORD_BYTES {
            let what = format!("a page of more than {} MiB", MAX_RECORD_BYTES >> 20);
            return Err(unreadable(what, "cut it into several files"));
        }
        let text = String::from_utf8(bytes).map_err(|cause| {
            let at = cause.utf8_error().valid_up_to() + 1;
            unreadable(format!("byte {at} is not UTF-8"), "convert the file to UTF-8")
        })?;
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let id = stem.ok_or_else(|| unreadable("the name is not UTF-8".to_owned(), "rename the file"))?;
        Ok(Self { path: path.to_owned(), id: id.to_owned(), text, is_read: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True once.
    pub(super) fn advance(&mut self) -> bool {
        !std::mem::replace(&mut self.is_read, true)
    }

    pub(super) fn record(&self) -> Record<'_> {
        let text = self.text.strip_prefix('\u{feff}').unwrap_or(&self.text);
        let (mut record, content) = front_matter(text);
        if !record.has("title") {
            let heading = content.lines().find_map(|line| line.strip_prefix("# "));
            record.push("title", text_cell(heading.map_or(self.id.as_str(), str::trim)));
        }
        record.push("id", text_cell(&self.id));
        record.push("content", text_cell(content));
        record
    }

    pub(super) fn fault(&self, Fault { what, fix }: Fault) -> ReadError {
        ReadError::Unreadable { path: self.path.clone(), what, fix }
    }
}

fn text_cell(text: &str) -> Cell<'_> {
    Cell::Text(Cow::Borrowed(text))
}

/// The `name: value` lines between two `---` lines at the top, and what follows them; nothing when they are not closed.
fn front_matter(text: &str) -> (Record<'_>, &str) {
    let mut record = Record::default();
    let Some(mut rest) = text.strip_prefix("---").and_then(after_line_end) else {
        return (record, text);
    };
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        if line.trim_end() == "---" {
            return (record, rest);
        }
        // Indented lines belong to nested values, which are no scalars.
        if let Some((name, value)) = line.split_once(':').filter(|_| !line.starts_with([' ', '\t', '-', '#'])) {
            record.push(name.trim_end(), text_cell(value.trim().trim_matches(['"', '\''])));
        }
    }
    (Record::default(), text)
}

fn after_line_end(text: &str) -> Option<&str> {
    text.strip_prefix("\r\n").or_else(|| text.strip_prefix('\n'))
}

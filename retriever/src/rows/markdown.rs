//! A markdown file as one page.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use super::MAX_RECORD_BYTES;
use super::list::read_text;
use super::reader::{Place, Rows, Stop};
use forage_contracts::{Cell, Page, Row, RowFault};

/// One page: its id is the file's name without its extension, unless another is given; its title the front matter's, else its first
/// first-level heading, else the id. Further `name: value` lines of the front matter become columns.
pub(super) struct MarkdownFile {
    id: String,
    text: String,
    is_read: bool,
}

impl MarkdownFile {
    pub(super) fn open(path: &Path, id: Option<&str>, file: File) -> Result<Self, Stop> {
        let text = read_text(
            file,
            MAX_RECORD_BYTES,
            ("a page", "cut it into several files"),
        )?;
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let id = id.or(stem);
        let id = id.ok_or_else(|| RowFault::new("the name is not UTF-8", "rename the file"))?;
        Ok(Self {
            id: id.to_owned(),
            text,
            is_read: false,
        })
    }
}

impl Rows for MarkdownFile {
    /// True once.
    fn advance(&mut self) -> Result<bool, Stop> {
        Ok(!std::mem::replace(&mut self.is_read, true))
    }

    fn row(&self) -> Result<Row<'_>, RowFault> {
        let text = self.text.strip_prefix('\u{feff}').unwrap_or(&self.text);
        let (mut row, content) = front_matter(text);
        if !row.has("title") {
            let heading = Page::lines(content)
                .filter(|(_, is_code)| !is_code)
                .find_map(|(line, _)| line.strip_prefix("# "));
            row.push(
                "title",
                text_cell(heading.map_or(self.id.as_str(), str::trim)),
            );
        }
        row.push("id", text_cell(&self.id));
        row.push("content", text_cell(content));
        Ok(row)
    }

    fn place(&self) -> Place {
        Place::File
    }
}

fn text_cell(text: &str) -> Cell<'_> {
    Cell::Text(Cow::Borrowed(text))
}

/// The `name: value` lines between two `---` lines at the top, with the text that follows them; nothing when they are not closed.
fn front_matter(text: &str) -> (Row<'_>, &str) {
    let mut row = Row::default();
    let Some(mut rest) = text.strip_prefix("---").and_then(after_line_end) else {
        return (row, text);
    };
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        rest = after;
        if line.trim_end() == "---" {
            return (row, rest);
        }
        // Indented lines belong to nested values, which are not scalars.
        if let Some((name, value)) = line
            .split_once(':')
            .filter(|_| !line.starts_with([' ', '\t', '-', '#']))
        {
            row.push(
                name.trim_end(),
                text_cell(value.trim().trim_matches(['"', '\''])),
            );
        }
    }
    (Row::default(), text)
}

fn after_line_end(text: &str) -> Option<&str> {
    text.strip_prefix("\r\n")
        .or_else(|| text.strip_prefix('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_closed_at_the_end_of_the_file_too() {
        for closed in ["---\nstatus: draft\n---\n", "---\nstatus: draft\n---"] {
            let (row, content) = front_matter(closed);
            assert!(row.has("status"), "{closed}");
            assert_eq!(content, "");
        }
        for open in ["---\nstatus: draft", "---\nstatus: draft\n--- x", "---\n"] {
            let (row, content) = front_matter(open);
            assert!(!row.has("status"));
            assert_eq!(content, open);
        }
    }
}

//! The format of Search-R1 and `FlashRAG`.

use std::borrow::Cow;

use forage_contracts::{CorpusEntry, Passage, Row, RowFault};

const FIX: &str = "Search-R1 rows are {\"id\", \"contents\"} or {\"id\", \"title\", \"text\"}; fix the row or name another \
                   format";

/// `id`, `contents` and optionally `title`; or `id`, `title`, `text`.
///
/// Contents are `"Title"`, a line end, the text. Where a `title` column says otherwise, all of the contents are text.
pub(super) const ENTRY: CorpusEntry = CorpusEntry {
    name: "search-r1",
    about: "id, contents or title and text",
    detect: |row| row.has("contents") || (row.has("id") && row.has("text") && !row.has("content")),
    read,
    whole: None,
};

fn read(mut row: Row<'_>) -> Result<Vec<Passage>, RowFault> {
    let id = row.id("id", FIX)?;
    let given = row.optional_text("title", FIX)?;
    let (title, text) = if !row.has("contents") && row.has("text") {
        (given.into_owned(), row.text("text", FIX)?.into_owned())
    } else {
        let contents = row.text("contents", FIX)?;
        // A row with both repeats its text.
        row.optional_text("text", FIX)?;
        split_contents(&given, contents)
    };
    Ok(vec![Passage {
        id,
        title,
        text,
        fields: row.into_fields(),
    }])
}

/// Title and text of `contents`: the first line is the title, as upstream reads it, unless another one is given; contents of
/// one line are all text. The quotes around a title go, those that are part of it stay: `""Heroes" (album)"`.
pub(crate) fn split_contents(given: &str, contents: Cow<'_, str>) -> (String, String) {
    let Some((line, text)) = contents.split_once('\n') else {
        return (given.to_owned(), contents.into_owned());
    };
    let title = unquoted(line.trim_end_matches('\r'));
    let same = |given: &str| given == title.trim();
    if given.is_empty() || same(given.trim()) || same(unquoted(given.trim())) {
        (title.to_owned(), text.to_owned())
    } else {
        (given.to_owned(), contents.into_owned())
    }
}

/// A text without the pair of quotes around it.
fn unquoted(text: &str) -> &str {
    let inside = text.strip_prefix('"');
    inside
        .and_then(|inside| inside.strip_suffix('"'))
        .unwrap_or(text)
}

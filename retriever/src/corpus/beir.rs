//! The BEIR format.

use forage_contracts::{CorpusEntry, Passage, Row, RowFault};

const FIX: &str =
    "BEIR rows are {\"_id\", \"title\", \"text\"}; fix the row or name another format";

/// `_id`, `title` (optional), `text`.
pub(super) const ENTRY: CorpusEntry = CorpusEntry {
    name: "beir",
    about: "_id, title, text",
    detect: |row| row.has("_id"),
    read,
    whole: None,
};

fn read(mut row: Row<'_>) -> Result<Vec<Passage>, RowFault> {
    let id = row.id("_id", FIX)?;
    let title = row.optional_text("title", FIX)?.into_owned();
    let text = row.text("text", FIX)?.into_owned();
    Ok(vec![Passage {
        id,
        title,
        text,
        fields: row.into_fields(),
    }])
}

//! A corpus format from outside: rows of `key`, `heading` and `note`.

use forage_contracts::{CorpusEntry, Passage};

const FIX: &str = "rows of notes are {\"key\", \"heading\", \"note\"}";

/// The registry's entry.
pub(crate) const ENTRY: CorpusEntry = CorpusEntry {
    name: "notes",
    about: "key, heading, note",
    detect: |row| row.has("note"),
    read: |mut row| {
        let mut passage = Passage::new(
            row.id("key", FIX)?,
            row.optional_text("heading", FIX)?,
            row.text("note", FIX)?,
        );
        passage.fields = row.into_fields(); // what was not taken can be filtered by
        Ok(vec![passage])
    },
    whole: None,
};

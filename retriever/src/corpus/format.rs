//! The door for corpus formats: one entry per format, in one list.

use std::path::Path;

use forage_contracts::{CorpusEntry, Registry};

use super::{beir, pages, search_r1};
use crate::choice::{Choice, Listed};
use crate::error::ReadError;
use crate::rows::{RowReader, corpus_files};

/// A corpus format, chosen by name.
pub type CorpusFormat = Choice<CorpusEntry>;

static FORMATS: Registry<CorpusEntry> = Registry::new(&[
    beir::ENTRY,
    search_r1::ENTRY,
    pages::ENTRY,
    pages::WHOLE_PAGES,
]);

impl Listed for CorpusEntry {
    fn registry() -> &'static Registry<Self> {
        &FORMATS
    }
}

impl CorpusFormat {
    /// BEIR.
    pub const BEIR: Self = Choice(&beir::ENTRY);
    /// Search-R1 and `FlashRAG`.
    pub const SEARCH_R1: Self = Choice(&search_r1::ENTRY);
    /// Wiki pages, cut into passages.
    pub const PAGES: Self = Choice(&pages::ENTRY);
    /// Wiki pages, kept whole.
    pub const WHOLE_PAGES: Self = Choice(&pages::WHOLE_PAGES);

    /// The format that gives one passage per row: pages are not cut.
    #[must_use]
    pub fn whole(self) -> Self {
        self.0.whole.map_or(self, Choice)
    }

    /// Reads the format off the columns of the first row.
    ///
    /// # Errors
    /// When the file cannot be read, is empty, or its first row fits no format.
    pub fn detect(path: &Path) -> Result<Self, ReadError> {
        for file in corpus_files(path)? {
            let mut rows = RowReader::open_part(&file)?;
            if let Some(row) = rows.next_row()? {
                let fits = |entry: &&CorpusEntry| (entry.detect)(&row);
                let undetected = || ReadError::UndetectedFormat {
                    path: file.path.clone(),
                    fields: row.names().collect::<Vec<_>>().join(", "),
                    known: FORMATS.names(),
                };
                let entry = FORMATS.iter().find(fits).ok_or_else(undetected)?;
                return Ok(Choice(entry));
            }
        }
        Err(ReadError::Empty {
            path: path.to_owned(),
            what: "passages",
        })
    }
}

//! Corpora: passages, and the formats that rows of them have.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::registry::Entry;
use crate::row::{Row, RowFault};

/// The unit of retrieval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// Unique within its corpus.
    pub id: String,
    /// May be empty.
    pub title: String,
    /// Body, without the title.
    pub text: String,
    /// Further columns of the corpus, for filters: `page`, `section`, `source`, `year`. Exact values, no analysis.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
}

impl Passage {
    /// Makes a passage from anything that turns into strings.
    pub fn new(id: impl Into<String>, title: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            text: text.into(),
            fields: BTreeMap::new(),
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn with_field(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields.insert(name.into(), value.into());
        self
    }
}

/// A corpus format: a set of columns. Each may be written as JSON lines, plain or gzip, as one JSON list or as parquet, in
/// one file or in a folder of shards; which it is shows in the first bytes of the files.
#[derive(Debug, Clone, Copy)]
pub struct CorpusEntry {
    /// The name used in configs and on the command line.
    pub name: &'static str,
    /// The columns, in a few words.
    pub about: &'static str,
    /// Tells whether a corpus has this format by its first row. Formats are asked in the order of the list, those of plug-ins
    /// after the built-in ones.
    pub detect: fn(&Row<'_>) -> bool,
    /// The passages of one row, in order.
    pub read: fn(Row<'_>) -> Result<Vec<Passage>, RowFault>,
    /// The format that reads the same rows as one passage each, where this one cuts them.
    pub whole: Option<&'static CorpusEntry>,
}

impl Entry for CorpusEntry {
    const KIND: &'static str = "corpus format";

    fn label(&self) -> (&'static str, &'static str) {
        (self.name, self.about)
    }
}

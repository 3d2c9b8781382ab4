//! The door for question formats: one entry per format, in one list.

mod annotated;
mod fields;
mod hotpot_qa;
mod messages;
mod musique;
mod native;
mod nemo_gym;
mod plain;
mod prompt;
mod search_r1;
mod trivia;
mod verl;

use forage_retriever::{Entry, Registry, RowFault};
use serde_json::{Map, Value};

pub use fields::QuestionRow;

use crate::task::Task;

/// A question format: the fields of a row and the task they make. Rows may be JSON lines, one JSON list or parquet.
#[derive(Clone, Copy, Debug)]
pub struct QuestionEntry {
    /// The name used in messages.
    pub name: &'static str,
    /// The fields, in a few words.
    pub about: &'static str,
    /// Tells whether a data set has this format by its first row. Formats are asked in the order of the list, those of
    /// plug-ins after the built-in ones.
    pub detect: fn(&Map<String, Value>) -> bool,
    /// The task of a row.
    pub read: fn(&QuestionRow<'_>) -> Result<Task, RowFault>,
}

static FORMATS: Registry<QuestionEntry> = Registry::new(&[
    native::ENTRY,
    search_r1::ENTRY,
    verl::ENTRY,
    nemo_gym::ENTRY,
    musique::ENTRY,
    hotpot_qa::ENTRY,
    trivia::ENTRY,
    annotated::ENTRY,
    plain::ENTRY,
    prompt::ENTRY,
]);

impl Entry for QuestionEntry {
    const KIND: &'static str = "question format";

    fn label(&self) -> (&'static str, &'static str) {
        (self.name, self.about)
    }

    fn registry() -> &'static Registry<Self> {
        &FORMATS
    }
}

/// The format whose fields a row has.
pub(super) fn detect(row: &Map<String, Value>) -> Result<&'static QuestionEntry, RowFault> {
    if row.contains_key("nl_query") && row.contains_key("boolean_query") {
        return Err(RowFault::new(
            "the rows show queries to imitate and judge no passage",
            "give the file to `forage sft`; questions for query-writer are BEIR folders",
        ));
    }
    let found = FORMATS.iter().find(|entry| (entry.detect)(row));
    found.ok_or_else(|| {
        let fields: Vec<&str> = row.keys().map(String::as_str).collect();
        let known = FORMATS
            .iter()
            .map(|entry| format!("{} ({})", entry.name, entry.about));
        let known = known.collect::<Vec<_>>().join(", ");
        RowFault::new(
            format!("fields [{}] fit no known format", fields.join(", ")),
            format!("write `question` and `answer`, or the fields of another format: {known}"),
        )
    })
}

/// Tells whether a row has a question and its answer.
fn is_answered(row: &Map<String, Value>) -> bool {
    row.contains_key("question") && (row.contains_key("answer") || row.contains_key("answers"))
}

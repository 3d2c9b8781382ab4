//! `question` with `answer` or `answers`, and optionally `id`.

use forage_contracts::{RowFault, Task};

use super::{QuestionEntry, QuestionRow, is_answered};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "plain",
    about: "question with answer or answers",
    detect: is_answered,
    read,
};

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    // With one in the first row the file would be of wiki pages.
    if row.has("filename") {
        return Err(RowFault::new(
            "`filename` is here, and the first row has none",
            "write it in every row, or leave it out of every row",
        ));
    }
    row.task(row.id_or_line()?, row.answers()?)
}

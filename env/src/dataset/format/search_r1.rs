//! Search-R1 and `FlashRAG`: `id`, `question`, `golden_answers`, and optionally `data_source`.

use super::QuestionEntry;

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "search-r1",
    about: "golden_answers",
    detect: |row| row.contains_key("golden_answers"),
    read: |row| row.task(row.id("id")?, row.answers_in("golden_answers")?),
};

//! `question` with `answer` or `answers`, and optionally `id`.

use super::{QuestionEntry, is_answered};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "plain",
    about: "question with answer or answers",
    detect: is_answered,
    read: |row| row.task(row.id_or_line()?, row.answers()?),
};

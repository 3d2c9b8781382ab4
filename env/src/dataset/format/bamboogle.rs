//! `Bamboogle` as published: a table of `Question` and `Answer`.

use super::{QuestionEntry, QuestionRow};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "bamboogle",
    about: "Question, Answer",
    detect: |row| row.contains_key("Question") && row.contains_key("Answer"),
    read: |row: &QuestionRow<'_>| {
        let asked = ("Question", row.text("Question")?);
        row.asked(asked, row.id_or_line()?, row.answers_in("Answer")?)
    },
};

//! `PopQA` as published: `id`, `question`, and `possible_answers`, a list or one written as JSON.

use serde_json::Value;

use super::{QuestionEntry, QuestionRow, json_text};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "popqa",
    about: "question, possible_answers",
    detect: |row| row.contains_key("question") && row.contains_key(FIELD),
    read: |row| {
        let written = row.get(FIELD).and_then(json_text);
        let golds = match written.as_ref().or(row.get(FIELD)) {
            list @ Some(Value::Array(_)) => QuestionRow::list_of(list, FIELD)?,
            _ => row.answers_in(FIELD)?,
        };
        let golds = QuestionRow::not_empty(golds).ok_or_else(|| QuestionRow::no_answer(FIELD))?;
        row.task(row.id_or_line()?, golds)
    },
};

const FIELD: &str = "possible_answers";

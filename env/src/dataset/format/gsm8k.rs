//! GSM8K as published: a `question`, and an `answer` that is the solution, whose last line is `####` and the number.

use forage_contracts::RowFault;
use serde_json::Value;

use super::{QuestionEntry, QuestionRow};

/// Begins the last line of a solution.
const MARK: &str = "\n#### ";

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "gsm8k",
    about: "question, answer ending in #### NUMBER",
    detect: |row| {
        let answer = row.get("answer").and_then(Value::as_str);
        row.contains_key("question") && answer.is_some_and(|answer| answer.contains(MARK))
    },
    read: |row: &QuestionRow<'_>| {
        let solution = row.text("answer")?;
        let (_, number) = solution.rsplit_once(MARK).ok_or_else(|| {
            RowFault::new(
                "`answer` does not end in a line `#### NUMBER`, as that of the first row does",
                "write that line, or the number alone in every row",
            )
        })?;
        row.task(row.id_or_line()?, vec![number.trim().to_owned()])
    },
};

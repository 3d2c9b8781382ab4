//! `SQuAD` and the sets in its form (`XQuAD`, `MLQA`) as the hub has them: `id`, `question`, and `answers` with `text`, a list.

use forage_contracts::{RowFault, Task};
use serde_json::Value;

use super::{QuestionEntry, QuestionRow};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "squad",
    about: "question, answers with text",
    detect: |row| {
        let answers = row.get("answers").and_then(Value::as_object);
        row.contains_key("question") && answers.is_some_and(|answers| answers.contains_key("text"))
    },
    read,
};

const FIELD: &str = "answers.text";

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    let texts = row.get("answers").and_then(|answers| answers.get("text"));
    let golds = QuestionRow::list_of(texts, FIELD)?;
    if golds.is_empty() {
        return Err(RowFault::new(
            format!("`{FIELD}` is empty: the question has no answer in its passage"),
            "leave out such questions, which SQuAD has from version 2 on",
        ));
    }
    let golds = QuestionRow::not_empty(golds).ok_or_else(|| QuestionRow::no_answer(FIELD))?;
    row.task(row.id_or_line()?, golds)
}

//! `TriviaQA` as the hub has it: `question_id`, `question`, and `answer` with `value` and `aliases`.

use forage_contracts::{RowFault, Task};
use serde_json::Value;

use super::{QuestionEntry, QuestionRow};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "triviaqa",
    about: "question, answer with value and aliases",
    detect: |row| row.contains_key("question") && row.get("answer").is_some_and(Value::is_object),
    read,
};

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    let answer = row.get("answer");
    let part = |name: &str| answer.and_then(|answer| answer.get(name));
    let mut golds: Vec<String> = part("value")
        .and_then(QuestionRow::scalar)
        .into_iter()
        .collect();
    if let aliases @ Some(_) = part("aliases").filter(|aliases| !aliases.is_null()) {
        golds.extend(QuestionRow::list_of(aliases, "answer.aliases")?);
    }
    let golds =
        QuestionRow::not_empty(golds).ok_or_else(|| QuestionRow::no_answer("answer.value"))?;
    let id = if row.has("question_id") {
        row.id("question_id")?
    } else {
        row.id_or_line()?
    };
    row.task(id, golds)
}

//! `HotpotQA`-like with evidence: `_id`, `question` or `text`, `answer` or `answers`, and optionally `answer_aliases`, `gold`
//! (passage ids), `decomposition`.

use forage_contracts::{RowFault, Task};
use serde_json::Value;

use super::{QuestionEntry, QuestionRow};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "annotated",
    about: "_id with answer or answers, gold",
    detect: |row| {
        row.contains_key("_id") && (row.contains_key("answer") || row.contains_key("answers"))
    },
    read,
};

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    let mut golds = row.answers()?;
    if row.has("answer_aliases") {
        golds.extend(row.list("answer_aliases")?);
    }
    let golds =
        QuestionRow::not_empty(golds).ok_or_else(|| QuestionRow::no_answer("answer_aliases"))?;
    let mut task = row.task(row.id("_id")?, golds)?;
    if row.has("gold") {
        task.evidence = row.list("gold")?;
    }
    let steps = row.get("decomposition").and_then(Value::as_array);
    let steps = steps.map_or(task.evidence.len(), Vec::len);
    task.hops = u8::try_from(steps).unwrap_or(0);
    Ok(task)
}

//! [`Task`] rows as forage writes them.

use forage_contracts::{RowFault, Task};
use serde_json::Value;

use super::{QuestionEntry, QuestionRow};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "native",
    about: "golds or qrels, as forage writes tasks",
    detect: |row| {
        row.contains_key("golds") || (row.contains_key("qrels") && row.contains_key("question"))
    },
    read,
};

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    let task: Task =
        serde_json::from_value(Value::Object(row.fields.clone())).map_err(|cause| {
            let what = format!("not a task row ({cause})");
            RowFault::new(what, "write the fields of a forage task row")
        })?;
    // An empty list is written on purpose, for rewards that need no answer.
    let is_missing = !row.fields.contains_key("golds") && task.judgments().is_empty();
    if is_missing || task.golds.iter().any(|gold| gold.trim().is_empty()) {
        return Err(QuestionRow::no_answer("golds"));
    }
    Ok(task)
}

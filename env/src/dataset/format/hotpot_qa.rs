//! `HotpotQA` and `2WikiMultihopQA` as published: `_id` or `id`, `question`, `answer`, `supporting_facts`, whose titles are
//! the evidence, and `context`. Facts may be JSON written as text, as the hub's `2WikiMultihopQA` has them.

use forage_contracts::{RowFault, Task};
use serde_json::Value;

use super::{QuestionEntry, QuestionRow, hops, is_answered, json_text};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "hotpotqa",
    about: "question, answer, supporting_facts",
    detect: |row| is_answered(row) && row.contains_key("supporting_facts"),
    read,
};

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    let field = if row.has("_id") { "_id" } else { "id" };
    let mut task = row.task(row.id(field)?, row.answers()?)?;
    task.evidence = QuestionRow::distinct(supporting_titles(row)?);
    task.hops = hops(task.evidence.len());
    Ok(task)
}

/// Titles of `supporting_facts`: `[[title, sentence], ...]` as published, `{"title": [...], "sent_id": [...]}` on the hub.
fn supporting_titles(row: &QuestionRow<'_>) -> Result<Vec<String>, RowFault> {
    let fault = || {
        RowFault::new(
            "`supporting_facts` is not a list of titles with sentences",
            "write [[title, sentence], ...]",
        )
    };
    let facts = row.get("supporting_facts");
    let written = facts.and_then(json_text);
    match written.as_ref().or(facts) {
        Some(Value::Object(facts)) => QuestionRow::list_of(facts.get("title"), "title"),
        Some(Value::Array(facts)) => {
            let title = |fact: &Value| {
                let title = fact.get(0).or_else(|| fact.get("title"));
                title.and_then(QuestionRow::scalar).ok_or_else(fault)
            };
            facts.iter().map(title).collect()
        }
        _ => Err(fault()),
    }
}

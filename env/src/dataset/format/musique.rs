//! `MuSiQue` as published: `id`, `question`, `answer`, `answer_aliases`, `paragraphs`, whose supporting ones are the evidence
//! by title, and `question_decomposition`.

use forage_contracts::{RowFault, Task};
use serde_json::Value;

use super::{QuestionEntry, QuestionRow, hops, is_answered};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "musique",
    about: "question, answer, paragraphs",
    detect: |row| is_answered(row) && row.contains_key("paragraphs"),
    read,
};

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    if row.get("answerable") == Some(&Value::Bool(false)) {
        return Err(RowFault::new(
            "the question has no answer in its paragraphs",
            "use the answerable part of the data set",
        ));
    }
    let mut golds = row.answers()?;
    if row.has("answer_aliases") {
        golds.extend(row.list("answer_aliases")?);
    }
    let golds =
        QuestionRow::not_empty(golds).ok_or_else(|| QuestionRow::no_answer("answer_aliases"))?;
    let mut task = row.task(row.id("id")?, golds)?;
    let array = |field| {
        let array = row.get(field).and_then(Value::as_array);
        array.map_or(&[][..], Vec::as_slice)
    };
    let (paragraphs, steps) = (array("paragraphs"), array("question_decomposition"));
    // In the order of the steps where they say which paragraph they need.
    let needed = steps.iter().filter_map(|step| {
        let index = step.get("paragraph_support_idx")?.as_u64()?;
        let is_needed =
            |paragraph: &&Value| paragraph.get("idx").and_then(Value::as_u64) == Some(index);
        paragraphs.iter().find(is_needed)
    });
    let supporting = paragraphs
        .iter()
        .filter(|paragraph| paragraph.get("is_supporting") == Some(&Value::Bool(true)));
    let titles = needed
        .chain(supporting)
        .filter_map(|paragraph| QuestionRow::scalar(paragraph.get("title")?));
    task.evidence = QuestionRow::distinct(titles.collect());
    task.hops = hops(if steps.is_empty() {
        task.evidence.len()
    } else {
        steps.len()
    });
    Ok(task)
}

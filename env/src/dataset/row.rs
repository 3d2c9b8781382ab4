//! Row formats: which fields a line has and how they become a task.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::task::{Split, Task};

/// Row formats of JSON-lines data sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskFormat {
    /// [`Task`] rows as forage writes them.
    Native,
    /// Search-R1 and `FlashRAG`: `id`, `question`, `golden_answers`, and optionally `data_source`.
    SearchR1,
    /// `HotpotQA`-like with evidence: `_id`, `question` or `text`, `answer` or `answers`, and optionally `answer_aliases`,
    /// `gold` (passage ids), `decomposition`.
    Annotated,
    /// `question` with `answer` or `answers`, and optionally `id`.
    Plain,
}

/// What is wrong with a line and how to mend it.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) what: String,
    pub(super) mend: String,
}

impl Fault {
    pub(super) fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what: what.into(), mend: mend.into() }
    }
}

type Row = Map<String, Value>;

impl TaskFormat {
    /// The format whose fields a row has.
    pub(super) fn detect(row: &Row) -> Result<Self, Fault> {
        let has = |field: &str| row.contains_key(field);
        let answer = has("answer") || has("answers");
        if has("golds") || (has("qrels") && has("question")) {
            return Ok(Self::Native);
        }
        if has("golden_answers") {
            return Ok(Self::SearchR1);
        }
        if has("_id") && answer {
            return Ok(Self::Annotated);
        }
        if has("question") && answer {
            return Ok(Self::Plain);
        }
        let fields: Vec<&str> = row.keys().map(String::as_str).collect();
        Err(Fault::new(
            format!("fields [{}] fit no known format", fields.join(", ")),
            "write `question` and `answer`, or the fields of a published format: `golds` (forage), `golden_answers` \
             (Search-R1), `_id` with `answer` or `answers` (HotpotQA-like)",
        ))
    }
}

/// Makes the task of a row on line `line`.
pub(super) fn task_from(format: TaskFormat, row: Row, line: usize, source: &str, split: Split) -> Result<Task, Fault> {
    match format {
        TaskFormat::Native => native(row),
        TaskFormat::SearchR1 => {
            let golds = strings(&row, "golden_answers")?;
            common(&row, id(&row, "id")?, golds, source, split)
        }
        TaskFormat::Annotated => annotated(&row, source, split),
        TaskFormat::Plain => {
            let id = if row.contains_key("id") { id(&row, "id")? } else { format!("line-{line}") };
            common(&row, id, answers(&row)?, source, split)
        }
    }
}

fn native(row: Row) -> Result<Task, Fault> {
    let task: Task = serde_json::from_value(Value::Object(row))
        .map_err(|e| Fault::new(format!("not a task row ({e})"), "write the fields of a forage task row"))?;
    if task.golds.is_empty() && task.judgments().is_empty() {
        return Err(no_answer("golds"));
    }
    Ok(task)
}

fn annotated(row: &Row, source: &str, split: Split) -> Result<Task, Fault> {
    let mut golds = answers(row)?;
    if row.contains_key("answer_aliases") {
        golds.extend(list(row, "answer_aliases")?);
    }
    let mut task = common(row, id(row, "_id")?, golds, source, split)?;
    if row.contains_key("gold") {
        task.evidence = list(row, "gold")?;
    }
    let steps = row.get("decomposition").and_then(Value::as_array).map_or(task.evidence.len(), Vec::len);
    task.hops = u8::try_from(steps).unwrap_or(0);
    Ok(task)
}

/// The fields every format but ours shares.
fn common(row: &Row, id: String, golds: Vec<String>, source: &str, split: Split) -> Result<Task, Fault> {
    let field = if row.contains_key("question") { "question" } else { "text" };
    let question = string(row, field)?;
    if question.trim().is_empty() {
        return Err(Fault::new(format!("`{field}` is empty"), "write the question's text"));
    }
    let data_source = match row.get("data_source") {
        None | Some(Value::Null) => source.to_owned(),
        Some(_) => string(row, "data_source")?,
    };
    let mut distinct: Vec<String> = Vec::with_capacity(golds.len());
    for gold in golds {
        if !distinct.contains(&gold) {
            distinct.push(gold);
        }
    }
    Ok(Task {
        id,
        question,
        golds: distinct,
        evidence: vec![],
        qrels: BTreeMap::new(),
        hops: 0,
        oracle: vec![],
        data_source,
        split,
    })
}

fn answers(row: &Row) -> Result<Vec<String>, Fault> {
    let field = if row.contains_key("answer") { "answer" } else { "answers" };
    strings(row, field)
}

/// One or more answers under `field`: a string, a number, or a list of them. Never empty.
fn strings(row: &Row, field: &str) -> Result<Vec<String>, Fault> {
    let found = match row.get(field) {
        Some(Value::Array(_)) => list(row, field)?,
        _ => vec![string(row, field)?],
    };
    if found.is_empty() || found.iter().any(|answer| answer.trim().is_empty()) {
        return Err(no_answer(field));
    }
    Ok(found)
}

fn list(row: &Row, field: &str) -> Result<Vec<String>, Fault> {
    let mend = "write a list of strings";
    let Some(Value::Array(items)) = row.get(field) else {
        return Err(Fault::new(format!("`{field}` is not a list"), mend));
    };
    items.iter().map(|item| scalar(item).ok_or_else(|| Fault::new(format!("`{field}` holds {item}"), mend))).collect()
}

fn string(row: &Row, field: &str) -> Result<String, Fault> {
    let mend = format!("write `{field}` as a string");
    let Some(value) = row.get(field) else {
        return Err(Fault::new(format!("`{field}` is missing"), mend));
    };
    scalar(value).ok_or_else(|| Fault::new(format!("`{field}` is {value}"), mend))
}

fn id(row: &Row, field: &str) -> Result<String, Fault> {
    let found = string(row, field)?;
    if found.is_empty() { Err(Fault::new(format!("`{field}` is empty"), "write a unique id")) } else { Ok(found) }
}

/// A string, or a number in its written form.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn no_answer(field: &str) -> Fault {
    Fault::new(format!("`{field}` has no answer or an empty one"), "write at least one answer, none of them empty")
}

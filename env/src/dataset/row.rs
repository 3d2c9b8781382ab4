//! Row formats: which fields a line has and how they become a task.

mod published;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::task::{Split, Task};

/// Row formats of data sets.
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
    /// `HotpotQA` and `2WikiMultihopQA` as published: `_id` or `id`, `question`, `answer`, `supporting_facts`, whose titles are
    /// the evidence, and `context`.
    HotpotQa,
    /// `MuSiQue` as published: `id`, `question`, `answer`, `answer_aliases`, `paragraphs`, whose supporting ones are the
    /// evidence by title, and `question_decomposition`.
    Musique,
    /// Questions about wiki pages: `question`, `answer` and the page's `filename`, which is the evidence.
    Trivia,
    /// verl and `SkyRL`: `prompt` (messages), `data_source`, and `ground_truth.target` in `reward_model` or `reward_spec`.
    Verl,
    /// `NeMo` Gym: `responses_create_params` with the input, and a field with the answer.
    NemoGym,
    /// TRL, verifiers and Spurious Rewards: `prompt` (text or messages), and a field with the answer.
    Prompt,
    /// `question` with `answer` or `answers`, and optionally `id`.
    Plain,
}

/// What is wrong with a line and how to fix it.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) what: String,
    pub(super) fix: String,
}

impl Fault {
    pub(super) fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
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
        if has("nl_query") && has("boolean_query") {
            return Err(Fault::new(
                "the rows show queries to imitate and judge no passage",
                "give the file to `forage sft`; questions for query-writer are BEIR folders",
            ));
        }
        let question = has("question") && answer;
        let published = [
            (has("reward_model") || has("reward_spec"), Self::Verl),
            (has("responses_create_params"), Self::NemoGym),
            (question && has("paragraphs"), Self::Musique),
            (question && has("supporting_facts"), Self::HotpotQa),
            (question && has("filename"), Self::Trivia),
            (has("_id") && answer, Self::Annotated),
            (question, Self::Plain),
            (has("prompt"), Self::Prompt),
        ];
        if let Some((_, format)) = published.into_iter().find(|(fits, _)| *fits) {
            return Ok(format);
        }
        let fields: Vec<&str> = row.keys().map(String::as_str).collect();
        Err(Fault::new(
            format!("fields [{}] fit no known format", fields.join(", ")),
            "write `question` and `answer`, or the fields of a published format: `golds` (forage), `golden_answers` \
             (Search-R1), `_id` with `answer` or `answers` (HotpotQA-like), `prompt` with an answer (TRL)",
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
        TaskFormat::HotpotQa => published::hotpot_qa(&row, source, split),
        TaskFormat::Musique => published::musique(&row, source, split),
        TaskFormat::Trivia => published::trivia(&row, id_or_line(&row, line)?, source, split),
        TaskFormat::Verl => published::verl(&row, id_or_line(&row, line)?, source, split),
        TaskFormat::NemoGym => published::nemo_gym(&row, id_or_line(&row, line)?, source, split),
        TaskFormat::Prompt => published::prompt(&row, id_or_line(&row, line)?, source, split),
        TaskFormat::Plain => common(&row, id_or_line(&row, line)?, answers(&row)?, source, split),
    }
}

/// The row's id, or where it stands.
fn id_or_line(row: &Row, line: usize) -> Result<String, Fault> {
    match row.get("id") {
        None | Some(Value::Null) => Ok(format!("line-{line}")),
        Some(_) => id(row, "id"),
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
    asked(row, (field, string(row, field)?), id, golds, (source, split))
}

/// A task with this question, which stands in `field`.
fn asked(
    row: &Row,
    (field, question): (&str, String),
    id: String,
    golds: Vec<String>,
    (source, split): (&str, Split),
) -> Result<Task, Fault> {
    if question.trim().is_empty() {
        return Err(Fault::new(format!("`{field}` is empty"), "write the question's text"));
    }
    let data_source = match row.get("data_source") {
        None | Some(Value::Null) => source.to_owned(),
        // verl's preparation puts the name of the recipe before the data set's.
        Some(_) => string(row, "data_source")?.trim_start_matches("searchR1_").to_owned(),
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
    let fix = "write a list of strings";
    let Some(Value::Array(items)) = row.get(field) else {
        return Err(Fault::new(format!("`{field}` is not a list"), fix));
    };
    items.iter().map(|item| scalar(item).ok_or_else(|| Fault::new(format!("`{field}` holds {item}"), fix))).collect()
}

fn string(row: &Row, field: &str) -> Result<String, Fault> {
    let fix = format!("write `{field}` as a string");
    let Some(value) = row.get(field) else {
        return Err(Fault::new(format!("`{field}` is missing"), fix));
    };
    scalar(value).ok_or_else(|| Fault::new(format!("`{field}` is {value}"), fix))
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

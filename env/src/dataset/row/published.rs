//! Rows as their publishers write them.

use serde_json::{Map, Value};

use super::{Fault, Row, answers, asked, common, id, list, scalar, string, strings};
use crate::task::{Split, Task};

/// Fields that hold the answer in rows with a prompt, the first there is.
const ANSWERS: [&str; 9] = [
    "answer",
    "answers",
    "expected_answer",
    "golden_answers",
    "ground_truth",
    "solution",
    "target",
    "label",
    "reference",
];

pub(super) fn hotpot_qa(row: &Row, source: &str, split: Split) -> Result<Task, Fault> {
    let field = if row.contains_key("_id") { "_id" } else { "id" };
    let mut task = common(row, id(row, field)?, answers(row)?, source, split)?;
    task.evidence = distinct(supporting_titles(row)?);
    task.hops = hops(task.evidence.len());
    Ok(task)
}

/// Titles of `supporting_facts`: `[[title, sentence], ...]` as published, `{"title": [...], "sent_id": [...]}` on the hub.
fn supporting_titles(row: &Row) -> Result<Vec<String>, Fault> {
    let fault =
        || Fault::new("`supporting_facts` is not a list of titles with sentences", "write [[title, sentence], ...]");
    match row.get("supporting_facts") {
        Some(Value::Object(facts)) => list(facts, "title"),
        Some(Value::Array(facts)) => {
            let title = |fact: &Value| fact.get(0).or_else(|| fact.get("title")).and_then(scalar).ok_or_else(fault);
            facts.iter().map(title).collect()
        }
        _ => Err(fault()),
    }
}

pub(super) fn musique(row: &Row, source: &str, split: Split) -> Result<Task, Fault> {
    if row.get("answerable") == Some(&Value::Bool(false)) {
        return Err(Fault::new(
            "the question has no answer in its paragraphs",
            "use the answerable part of the data set",
        ));
    }
    let mut golds = answers(row)?;
    if row.get("answer_aliases").is_some_and(|aliases| !aliases.is_null()) {
        golds.extend(list(row, "answer_aliases")?);
    }
    let mut task = common(row, id(row, "id")?, golds, source, split)?;
    let paragraphs = row.get("paragraphs").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let steps = row.get("question_decomposition").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    // In the order of the steps where they say which paragraph they need.
    let needed = steps.iter().filter_map(|step| {
        let index = step.get("paragraph_support_idx")?.as_u64()?;
        paragraphs.iter().find(|paragraph| paragraph.get("idx").and_then(Value::as_u64) == Some(index))
    });
    let supporting = paragraphs.iter().filter(|paragraph| paragraph.get("is_supporting") == Some(&Value::Bool(true)));
    let titles = needed.chain(supporting).filter_map(|paragraph| scalar(paragraph.get("title")?));
    task.evidence = distinct(titles.collect());
    task.hops = hops(if steps.is_empty() { task.evidence.len() } else { steps.len() });
    Ok(task)
}

pub(super) fn trivia(row: &Row, id: String, source: &str, split: Split) -> Result<Task, Fault> {
    let mut task = common(row, id, answers(row)?, source, split)?;
    let file = string(row, "filename")?;
    let name = file.rsplit(['/', '\\']).next().unwrap_or_default();
    let page = [".md", ".txt", ".json"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    if page.is_empty() {
        return Err(Fault::new("`filename` is empty", "write the page that the question is about"));
    }
    task.evidence = vec![page.to_owned()];
    task.hops = 1;
    Ok(task)
}

pub(super) fn verl(row: &Row, id: String, source: &str, split: Split) -> Result<Task, Fault> {
    let field = if row.contains_key("reward_model") { "reward_model" } else { "reward_spec" };
    let truth = row.get(field).and_then(|model| model.get("ground_truth"));
    let truth = truth.ok_or_else(|| no_truth(&format!("{field}.ground_truth")))?;
    let golds = match truth.get("target") {
        Some(target) => texts(target).ok_or_else(|| no_truth(&format!("{field}.ground_truth.target")))?,
        None => texts(truth).ok_or_else(|| no_truth(&format!("{field}.ground_truth")))?,
    };
    let extra = row.get("extra_info").and_then(|extra| extra.get("question")).and_then(scalar);
    let question = match (extra, row.get("question").and_then(scalar)) {
        (_, Some(question)) | (Some(question), None) => question,
        (None, None) => {
            let prompt = last_user(row.get("prompt"), "prompt")?;
            prompt.rsplit_once("Question:").map_or(prompt.as_str(), |(_, question)| question).trim().to_owned()
        }
    };
    asked(row, ("prompt", question), id, golds, (source, split))
}

pub(super) fn nemo_gym(row: &Row, id: String, source: &str, split: Split) -> Result<Task, Fault> {
    let input = row.get("responses_create_params").and_then(|params| params.get("input"));
    let question = last_user(input, "responses_create_params.input")?;
    asked(row, ("responses_create_params.input", question), id, answer_of(row)?, (source, split))
}

pub(super) fn prompt(row: &Row, id: String, source: &str, split: Split) -> Result<Task, Fault> {
    let question = last_user(row.get("prompt"), "prompt")?;
    let mut task = asked(row, ("prompt", question), id, answer_of(row)?, (source, split))?;
    // Spurious Rewards and verifiers name the set in columns of their own.
    let named = ["source", "task"].into_iter().find_map(|field| row.get(field)?.as_str());
    if let Some(named) = named.filter(|named| !named.is_empty() && !row.contains_key("data_source")) {
        named.clone_into(&mut task.data_source);
    }
    Ok(task)
}

/// The answer of a row with a prompt: a column, or one in `info`, which may be JSON as text.
fn answer_of(row: &Row) -> Result<Vec<String>, Fault> {
    if let Some(field) = ANSWERS.iter().find(|field| row.get(**field).is_some_and(|value| !value.is_null())) {
        return strings(row, field);
    }
    let info: Option<Map<String, Value>> = match row.get("info") {
        Some(Value::Object(info)) => Some(info.clone()),
        Some(Value::String(text)) => serde_json::from_str(text).ok(),
        _ => None,
    };
    if let Some((info, field)) =
        info.and_then(|info| ANSWERS.iter().find(|field| info.contains_key(**field)).map(|field| (info, *field)))
    {
        return strings(&info, field);
    }
    let fix = "name the column of the answer `answer`";
    Err(Fault::new(format!("there is no answer: none of the columns {}", ANSWERS.join(", ")), fix))
}

/// The text of a prompt: itself, or the last message of the user. Contents may be lists of parts with `text`.
fn last_user(prompt: Option<&Value>, field: &str) -> Result<String, Fault> {
    let fault =
        || Fault::new(format!("`{field}` holds no text of a user"), "write text, or messages with role and content");
    match prompt {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(messages)) => {
            let user = |message: &&Value| message.get("role").and_then(Value::as_str) == Some("user");
            let content = messages.iter().rev().find(user).and_then(|message| message.get("content"));
            match content.ok_or_else(fault)? {
                Value::String(text) => Ok(text.clone()),
                Value::Array(parts) => {
                    let parts = parts.iter().filter_map(|part| part.get("text")?.as_str());
                    let text = parts.collect::<String>();
                    if text.is_empty() { Err(fault()) } else { Ok(text) }
                }
                _ => Err(fault()),
            }
        }
        _ => Err(fault()),
    }
}

/// One or more texts, none of them empty.
fn texts(value: &Value) -> Option<Vec<String>> {
    let found = match value {
        Value::Array(items) => items.iter().map(scalar).collect::<Option<Vec<_>>>()?,
        value => vec![scalar(value)?],
    };
    let all = !found.is_empty() && found.iter().all(|text| !text.trim().is_empty());
    all.then_some(found)
}

fn no_truth(field: &str) -> Fault {
    Fault::new(format!("`{field}` has no answer or an empty one"), "write a text or a list of texts there")
}

fn distinct(items: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::with_capacity(items.len());
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

fn hops(count: usize) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}

//! Prompts that are messages, and the answers beside them.

use forage_contracts::RowFault;
use serde_json::{Map, Value};

use super::QuestionRow;

/// Fields that hold the answer in rows with a prompt, the first there is.
pub(super) const ANSWERS: [&str; 9] = [
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

/// The answer of a row with a prompt: a column, or one in `info`, which may be JSON as text.
pub(super) fn answer_of(row: &QuestionRow<'_>) -> Result<Vec<String>, RowFault> {
    if let Some(field) = ANSWERS.iter().find(|field| row.has(field)) {
        return row.answers_in(field);
    }
    let info: Option<Map<String, Value>> = match row.get("info") {
        Some(Value::Object(info)) => Some(info.clone()),
        Some(Value::String(text)) => serde_json::from_str(text).ok(),
        _ => None,
    };
    let info = QuestionRow {
        fields: info.unwrap_or_default(),
        ..row.clone()
    };
    if let Some(field) = ANSWERS.iter().find(|field| info.has(field)) {
        return info.answers_in(field);
    }
    let none_of = ANSWERS.join(", ");
    Err(RowFault::new(
        format!("there is no answer: none of the columns {none_of}"),
        "name the column of the answer `answer`",
    ))
}

/// The text of a prompt: itself, or the last message of the user. Contents may be lists of parts with `text`.
pub(super) fn last_user(prompt: Option<&Value>, field: &str) -> Result<String, RowFault> {
    let text = match prompt {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(messages)) => {
            let is_user =
                |message: &&Value| message.get("role").and_then(Value::as_str) == Some("user");
            let message = messages.iter().rev().find(is_user);
            message
                .and_then(|message| message.get("content"))
                .and_then(content)
        }
        _ => None,
    };
    text.ok_or_else(|| {
        RowFault::new(
            format!("`{field}` holds no text of a user"),
            "write text, or messages with role and content",
        )
    })
}

/// The text of a message.
fn content(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let parts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            let text = parts.collect::<String>();
            (!text.is_empty()).then_some(text)
        }
        _ => None,
    }
}

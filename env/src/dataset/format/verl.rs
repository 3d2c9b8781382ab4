//! verl and `SkyRL`: `prompt` (messages), `data_source`, and `ground_truth.target` in `reward_model` or `reward_spec`.

use forage_contracts::{RowFault, Task};
use serde_json::Value;

use super::messages::last_user;
use super::{QuestionEntry, QuestionRow};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "verl",
    about: "prompt, reward_model or reward_spec",
    detect: |row| row.contains_key("reward_model") || row.contains_key("reward_spec"),
    read,
};

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    let is_spec = !row.has("reward_model") && row.has("reward_spec");
    let field = if is_spec {
        "reward_spec"
    } else {
        "reward_model"
    };
    let place = format!("{field}.ground_truth");
    let truth = row.get(field).and_then(|model| model.get("ground_truth"));
    let truth = truth.ok_or_else(|| QuestionRow::no_answer(&place))?;
    let (truth, place) = match truth.get("target") {
        Some(target) => (target, format!("{place}.target")),
        None => (truth, place),
    };
    let golds = match truth {
        Value::Array(_) => QuestionRow::list_of(Some(truth), &place)?,
        Value::Null => Vec::new(),
        value => vec![QuestionRow::scalar(value).ok_or_else(|| {
            RowFault::new(
                format!("`{place}` is {value}"),
                format!("write `{place}` as a string"),
            )
        })?],
    };
    let golds = QuestionRow::not_empty(golds).ok_or_else(|| QuestionRow::no_answer(&place))?;
    let extra = row
        .get("extra_info")
        .and_then(|extra| extra.get("question"));
    let asked = row.get("question").and_then(QuestionRow::scalar);
    let question = if let Some(question) = asked.or_else(|| extra.and_then(QuestionRow::scalar)) {
        question
    } else {
        let prompt = last_user(row.get("prompt"), "prompt")?;
        let question = prompt.rsplit_once("Question:");
        let question = question.map_or(prompt.as_str(), |(_, question)| question);
        question.trim().to_owned()
    };
    row.asked(("prompt", question), row.id_or_line()?, golds)
}

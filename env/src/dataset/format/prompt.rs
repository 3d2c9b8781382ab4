//! TRL, verifiers and Spurious Rewards: `prompt` (text or messages), and a field with the answer.

use forage_contracts::{RowFault, Task};

use super::messages::{answer_of, last_user};
use super::{QuestionEntry, QuestionRow};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "prompt",
    about: "prompt with an answer, as TRL has it",
    detect: |row| row.contains_key("prompt"),
    read,
};

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    let question = last_user(row.get("prompt"), "prompt")?;
    let mut task = row.asked(("prompt", question), row.id_or_line()?, answer_of(row)?)?;
    // Spurious Rewards and verifiers name the set in columns of their own.
    let named = ["source", "task"]
        .into_iter()
        .find_map(|field| row.get(field)?.as_str());
    if let Some(named) = named.filter(|named| !named.is_empty() && !row.has("data_source")) {
        named.clone_into(&mut task.data_source);
    }
    Ok(task)
}

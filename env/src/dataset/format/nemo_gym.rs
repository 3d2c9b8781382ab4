//! `NeMo` Gym: `responses_create_params` with the input, and a field with the answer.

use forage_contracts::{RowFault, Task};

use super::messages::{answer_of, last_user};
use super::{QuestionEntry, QuestionRow};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "nemo-gym",
    about: "responses_create_params with an answer",
    detect: |row| row.contains_key("responses_create_params"),
    read,
};

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    let field = "responses_create_params.input";
    let input = row
        .get("responses_create_params")
        .and_then(|params| params.get("input"));
    let question = last_user(input, field)?;
    row.asked((field, question), row.id_or_line()?, answer_of(row)?)
}

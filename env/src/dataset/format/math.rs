//! Problems of mathematics as MATH-500, AMC and AIME are published: `problem` and `answer`, in some files with capitals, and an id under
//! one of several names. What else a row has (`solution`, `subject`, `level`, `url`) is not read.

use forage_contracts::{RowFault, Task};

use super::{QuestionEntry, QuestionRow};
use crate::reward::controls::boxed;

/// Fields that name a problem, the first there is.
const IDS: [&str; 3] = ["unique_id", "ID", "problem_idx"];

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "math",
    about: "problem, answer",
    detect: |row| {
        let has = |fields: [&str; 2]| fields.iter().all(|field| row.contains_key(*field));
        has(["problem", "answer"]) || has(["Problem", "Answer"])
    },
    read,
};

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    let [problem, answer] = if row.has("Problem") {
        ["Problem", "Answer"]
    } else {
        ["problem", "answer"]
    };
    let id = match IDS.into_iter().find(|field| row.has(field)) {
        Some(field) => row.id(field)?,
        None => row.id_or_line()?,
    };
    let golds = row.answers_in(answer)?;
    let fits = |gold: &str| boxed(&["\\boxed{", gold, "}"].concat()) == Some(gold);
    if let Some(gold) = golds.iter().find(|gold| !fits(gold)) {
        return Err(RowFault::new(
            format!("`{answer}` has `{gold}`, which no closed \\boxed{{}} holds"),
            "write what stands in the box of the solution, every brace closed",
        ));
    }
    row.asked((problem, row.text(problem)?), id, golds)
}

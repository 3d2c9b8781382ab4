//! Questions about wiki pages: `question`, `answer` and the page's `filename`, which is the evidence.

use forage_contracts::{RowFault, Task};

use super::{QuestionEntry, QuestionRow, is_answered};

pub(super) const ENTRY: QuestionEntry = QuestionEntry {
    name: "trivia",
    about: "question, answer, filename",
    detect: |row| is_answered(row) && row.contains_key("filename"),
    read,
};

fn read(row: &QuestionRow<'_>) -> Result<Task, RowFault> {
    let mut task = row.task(row.id_or_line()?, row.answers()?)?;
    let file = row.text("filename")?;
    let name = file.rsplit(['/', '\\']).next().unwrap_or_default();
    let page = [".md", ".markdown", ".txt", ".json"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    if page.is_empty() {
        return Err(RowFault::new(
            "`filename` is empty",
            "write the page that the question is about",
        ));
    }
    task.evidence = vec![page.to_owned()];
    task.hops = 1;
    Ok(task)
}

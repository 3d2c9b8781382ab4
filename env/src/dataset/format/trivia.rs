//! Questions about wiki pages: `question`, `answer` and the page's `filename`, which is the evidence: `velm`, or with its folders
//! `./guide/index`.

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
    let file = row.text("filename").map_err(|RowFault { what, fix }| {
        RowFault::new(what, format!("{fix}, or leave it out of every row"))
    })?;
    let page = [".md", ".markdown", ".txt", ".json"]
        .iter()
        .find_map(|end| file.strip_suffix(end))
        .unwrap_or(&file)
        .replace('\\', "/");
    let name = page.rsplit('/').next().unwrap_or_default();
    if name.is_empty() {
        return Err(RowFault::new(
            "`filename` is empty",
            "write the page that the question is about",
        ));
    }
    // Whether a page in a folder is called after its name or its path, only the pages tell.
    task.evidence = vec![if page == name {
        page
    } else {
        format!("./{page}")
    }];
    Ok(task)
}

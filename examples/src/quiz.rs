//! A question format from outside: rows of `ask`, `accept` and `look_up`, the query that a perfect searcher would send.

use forage_contracts::OracleHop;
use forage_contracts::question::QuestionEntry;

/// The registry's entry.
pub(crate) const ENTRY: QuestionEntry = QuestionEntry {
    name: "quiz",
    about: "ask, accept, look_up",
    detect: |row| row.contains_key("ask"),
    read: |row| {
        let question = ("ask", row.text("ask")?);
        let mut task = row.asked(question, row.id_or_line()?, row.answers_in("accept")?)?;
        task.oracle = vec![OracleHop {
            query: row.text("look_up")?,
            finding: task.golds[0].clone(),
        }];
        Ok(task)
    },
};

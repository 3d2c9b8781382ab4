//! The oracle: knows which queries to send, and answers from what it reads.

use std::collections::HashMap;
use std::sync::Arc;

use super::engine::{Script, Scripted, View, Written};
use super::read;
use crate::policy::PolicyError;
use crate::task::Task;
use crate::tokenizer::Tokenizer;

/// What the oracle writes around its actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OracleStyle {
    /// The action alone: `<search>Q</search>`, `<answer>A</answer>`.
    Terse,
    /// A short thought between think tags before each action.
    #[default]
    Plain,
}

/// Sends the known query of each hop, checks that the finding was shown, and answers with the last finding.
///
/// When a finding is not in what it read, it answers with the title of the best passage instead: its score says what a
/// perfect searcher can reach with the retriever at hand. A task without known queries is searched by its question.
pub struct OracleScript {
    tasks: HashMap<String, Arc<Task>>,
    style: OracleStyle,
}

/// [`OracleScript`] as a policy.
pub type Oracle = Scripted<OracleScript>;

impl Scripted<OracleScript> {
    /// An oracle for `tasks`, which it recognises by their questions.
    pub fn new(tokenizer: Arc<dyn Tokenizer>, tasks: impl IntoIterator<Item = Arc<Task>>, style: OracleStyle) -> Self {
        let tasks = tasks.into_iter().map(|task| (task.question.trim().to_owned(), task)).collect();
        Self::with_script(OracleScript { tasks, style }, tokenizer)
    }
}

impl OracleScript {
    fn task(&self, prompt: &str) -> Result<&Task, PolicyError> {
        let question = read::question(prompt);
        let contained = || {
            let known = self.tasks.iter().filter(|(question, _)| prompt.contains(question.as_str()));
            known.max_by_key(|(question, _)| question.len()).map(|(_, task)| task)
        };
        self.tasks
            .get(question)
            .or_else(contained)
            .map(AsRef::as_ref)
            .ok_or_else(|| PolicyError::BadRequest(format!("the oracle does not know the question `{question}`")))
    }

    fn search(&self, thought: String, query: &str) -> Written {
        Written::Search { thought: self.thought(thought), query: query.to_owned() }
    }

    fn answer(&self, answer: &str) -> Written {
        Written::Answer { thought: self.thought(format!("It is {answer}.")), answer: answer.to_owned() }
    }

    fn thought(&self, thought: String) -> String {
        if self.style == OracleStyle::Plain { thought } else { String::new() }
    }

    /// The next turn of a task with known queries.
    fn follow(&self, task: &Task, view: &View<'_>) -> Written {
        let hop = view.shown.len().min(task.oracle.len());
        let found = hop.checked_sub(1).map(|last| task.oracle[last].finding.as_str());
        if let Some(found) = found
            && !last_information(view).contains(found)
        {
            return self.answer(guess(view));
        }
        match (task.oracle.get(hop), found) {
            (Some(next), _) if !view.must_answer => {
                let thought = found.map_or_else(|| "I need to search.".to_owned(), |found| format!("{found}. Next."));
                self.search(thought, &next.query)
            }
            (None, Some(found)) => self.answer(found),
            _ => self.answer(guess(view)),
        }
    }

    /// The next turn of a task without known queries.
    fn by_question(&self, task: &Task, view: &View<'_>) -> Written {
        if view.shown.is_empty() && !view.must_answer {
            return self.search("I need to search.".to_owned(), task.question.trim());
        }
        let read = last_information(view);
        let gold = task.golds.iter().find(|gold| !gold.is_empty() && read.contains(gold.as_str()));
        self.answer(gold.map_or_else(|| guess(view), String::as_str))
    }
}

fn last_information<'a>(view: &View<'a>) -> &'a str {
    view.shown.last().and_then(|shown| read::information(shown)).unwrap_or_default()
}

/// The title of the best passage last read.
fn guess<'a>(view: &View<'a>) -> &'a str {
    let mut blocks = view.shown.iter().rev().filter_map(|shown| read::information(shown));
    blocks.find_map(|block| read::titles(block).next()).unwrap_or("unknown")
}

impl Script for OracleScript {
    fn write(&self, view: &View<'_>) -> Result<Written, PolicyError> {
        let task = self.task(view.prompt)?;
        Ok(if task.oracle.is_empty() { self.by_question(task, view) } else { self.follow(task, view) })
    }
}

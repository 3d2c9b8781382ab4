//! The oracle: knows which queries to send or programs to write, and answers from what it reads.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::engine::{Script, Scripted, View, Written};
use super::program::{self, Manner};
use super::query;
use super::read;
use crate::code_search::{self, PYTHON_CLOSE};
use crate::environment::{EnvSpec, Outcome};
use crate::policy::PolicyError;
use crate::registry;
use crate::seed::Seed;
use crate::task::Task;
use crate::tokenizer::Tokenizer;

/// A name (words that begin with a capital) or a number, not at the start of a sentence.
static NAME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b[a-z]+,? ((?:[A-Z][\w']+)(?: [A-Z][\w']+)*|\d+)").expect("a valid pattern"));

/// How a policy reaches pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Means {
    /// Queries between search tags.
    #[default]
    Search,
    /// Programs between python tags.
    Code,
    /// One query in boolean syntax.
    Query,
}

impl Means {
    /// What an environment executes.
    pub fn of(spec: &EnvSpec) -> Self {
        match spec.outcome {
            Outcome::Query => Self::Query,
            Outcome::Answer if spec.stop.iter().any(|stop| stop == PYTHON_CLOSE) => Self::Code,
            Outcome::Answer => Self::Search,
        }
    }

    /// What the environment of this name executes by default; an unknown one searches.
    pub fn of_environment(name: &str) -> Self {
        match registry::find(name) {
            Ok(entry) if entry.id == code_search::ENTRY.id => Self::Code,
            Ok(entry) if entry.outcome == Outcome::Query => Self::Query,
            Ok(_) | Err(_) => Self::Search,
        }
    }
}

/// What the oracle writes around its actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OracleStyle {
    /// The action alone: `<search>Q</search>`, `<answer>A</answer>`; programs are as short as they can be.
    Terse,
    /// A short thought between think tags before each action; programs check what they find.
    #[default]
    Plain,
}

/// How often a demonstrator is hasty instead of careful. Whether it is depends on the question alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Haste {
    /// Share of questions it answers without a search, with a name from the question. Its queries name the relation alone.
    pub guess: f64,
    /// Share of questions it answers after the first search, with the first name or number it reads. Its programs print
    /// the first sentence of the page, whatever was asked; its queries are the words of the name alone.
    pub skim: f64,
    /// Share of questions for which its program forgets to print, and it gives up, or its turn holds no query. Means
    /// nothing with search tags.
    pub silent: f64,
    /// Share of questions for which its program does not run, and it gives up, or its query has to be repaired. Means
    /// nothing with search tags.
    pub broken: f64,
}

/// How one question is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conduct {
    Careful,
    Guess,
    Skim,
    Silent,
    Undefined,
    Malformed,
}

impl Conduct {
    fn manner(self) -> Manner {
        match self {
            Self::Careful | Self::Guess => Manner::Careful,
            Self::Skim => Manner::Skimming,
            Self::Silent => Manner::Silent,
            Self::Undefined => Manner::Undefined,
            Self::Malformed => Manner::Malformed,
        }
    }
}

impl Haste {
    /// Nothing but careful play.
    pub const NONE: Self = Self { guess: 0.0, skim: 0.0, silent: 0.0, broken: 0.0 };

    fn conduct(self, question: &str) -> Conduct {
        let hash = Seed::root(0).child(question, &[]).0;
        let mut share = hash as f64 / u64::MAX as f64;
        let shares = [
            (self.guess, Conduct::Guess),
            (self.skim, Conduct::Skim),
            (self.silent, Conduct::Silent),
            (self.broken / 2.0, Conduct::Undefined),
            (self.broken / 2.0, Conduct::Malformed),
        ];
        for (least, conduct) in shares {
            if share < least {
                return conduct;
            }
            share -= least;
        }
        Conduct::Careful
    }
}

/// Sends the known query of each hop, or a program that looks for its answer, checks that the finding was shown, and answers with the last finding.
///
/// Where one query is all there is to write, it writes the names of all hops as phrases, each with what is asked of it.
/// When a finding is not in what it read, it answers with the title of the best passage instead: its score says what a
/// perfect searcher can reach with the retriever at hand. A task without known queries is searched by its question.
pub struct OracleScript {
    tasks: HashMap<String, Arc<Task>>,
    means: Means,
    style: OracleStyle,
    haste: Haste,
}

/// [`OracleScript`] as a policy.
pub type Oracle = Scripted<OracleScript>;

impl Scripted<OracleScript> {
    /// An oracle for `tasks`, which it recognises by their questions, that searches.
    pub fn new(tokenizer: Arc<dyn Tokenizer>, tasks: impl IntoIterator<Item = Arc<Task>>, style: OracleStyle) -> Self {
        Self::hasty(tokenizer, tasks, Means::Search, style, Haste::NONE)
    }

    /// An oracle that is careful only some of the time: what it shows is the protocol, not how to be right.
    pub fn hasty(
        tokenizer: Arc<dyn Tokenizer>,
        tasks: impl IntoIterator<Item = Arc<Task>>,
        means: Means,
        style: OracleStyle,
        haste: Haste,
    ) -> Self {
        let tasks = tasks.into_iter().map(|task| (task.question.trim().to_owned(), task)).collect();
        Self::with_script(OracleScript { tasks, means, style, haste }, tokenizer)
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

    /// Looks for the fact that `query` asks for.
    fn search(&self, thought: String, query: &str, conduct: Conduct) -> Written {
        let thought = self.thought(thought);
        if self.means != Means::Code {
            return Written::Search { thought, query: query.to_owned() };
        }
        let (name, keyword) = program::name_and_keyword(query);
        let code = match self.style {
            OracleStyle::Terse => program::short(name, keyword, conduct.manner()),
            OracleStyle::Plain => program::thorough(name, keyword),
        };
        Written::Program { thought, code }
    }

    fn answer(&self, answer: &str) -> Written {
        Written::Answer { thought: self.thought(format!("It is {answer}.")), answer: answer.to_owned() }
    }

    fn thought(&self, thought: String) -> String {
        if self.style == OracleStyle::Plain { thought } else { String::new() }
    }

    /// The hasty answer, when it is time for one.
    fn rush(&self, task: &Task, view: &View<'_>, conduct: Conduct) -> Option<Written> {
        let names = |text: &str, not_in: &str| {
            let found = NAME.captures_iter(text).filter_map(|found| Some(found.get(1)?.as_str().to_owned()));
            found.filter(|name| !not_in.contains(name.as_str())).collect::<Vec<_>>()
        };
        match (conduct, view.shown.last()) {
            (Conduct::Guess, None) => {
                Some(self.answer(names(&task.question, "").last().map_or("unknown", String::as_str)))
            }
            (Conduct::Skim, Some(_)) => {
                let read = names(last_read(view), &task.question);
                Some(self.answer(read.first().map_or_else(|| guess(view), String::as_str)))
            }
            _ => None,
        }
    }

    /// The next turn of a task with known queries.
    fn follow(&self, task: &Task, view: &View<'_>, conduct: Conduct) -> Written {
        let hop = view.shown.len().min(task.oracle.len());
        let found = hop.checked_sub(1).map(|last| task.oracle[last].finding.as_str());
        if let Some(found) = found
            && !last_read(view).contains(found)
        {
            return self.answer(guess(view));
        }
        match (task.oracle.get(hop), found) {
            (Some(next), _) if !view.must_answer => {
                let thought = found.map_or_else(|| "I need to search.".to_owned(), |found| format!("{found}. Next."));
                self.search(thought, &next.query, conduct)
            }
            (None, Some(found)) => self.answer(found),
            _ => self.answer(guess(view)),
        }
    }

    /// The next turn of a task without known queries.
    fn by_question(&self, task: &Task, view: &View<'_>) -> Written {
        let question = task.question.trim();
        if view.shown.is_empty() && !view.must_answer {
            let thought = self.thought("I need to search.".to_owned());
            return match self.means {
                Means::Search | Means::Query => Written::Search { thought, query: question.to_owned() },
                Means::Code => Written::Program { thought, code: program::by_question(question) },
            };
        }
        let read = last_read(view);
        let gold = task.golds.iter().find(|gold| !gold.is_empty() && read.contains(gold.as_str()));
        self.answer(gold.map_or_else(|| guess(view), String::as_str))
    }
}

/// What the last search or program showed.
fn last_read<'a>(view: &View<'a>) -> &'a str {
    view.shown.last().and_then(|shown| read::information(shown).or_else(|| read::output(shown))).unwrap_or_default()
}

/// The title of the best passage last read; programs leave none.
fn guess<'a>(view: &View<'a>) -> &'a str {
    let mut blocks = view.shown.iter().rev().filter_map(|shown| read::information(shown));
    blocks.find_map(|block| read::titles(block).next()).unwrap_or("unknown")
}

impl Script for OracleScript {
    fn write(&self, view: &View<'_>) -> Result<Written, PolicyError> {
        let task = self.task(view.prompt)?;
        let conduct = self.haste.conduct(&task.question);
        if self.means == Means::Query {
            return Ok(query::written(task, conduct, self.style));
        }
        if let Some(rushed) = self.rush(task, view, conduct) {
            return Ok(rushed);
        }
        Ok(if task.oracle.is_empty() { self.by_question(task, view) } else { self.follow(task, view, conduct) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn haste_has_its_shares_and_depends_on_the_question() {
        let haste = Haste { guess: 0.2, skim: 0.25, silent: 0.1, broken: 0.2 };
        let count = |conduct| (0..4000).filter(|i| haste.conduct(&format!("Who is {i}?")) == conduct).count();
        for (conduct, share) in [
            (Conduct::Guess, 0.2),
            (Conduct::Skim, 0.25),
            (Conduct::Silent, 0.1),
            (Conduct::Undefined, 0.1),
            (Conduct::Malformed, 0.1),
            (Conduct::Careful, 0.25),
        ] {
            assert!((count(conduct) as f64 / 4000.0 - share).abs() < 0.03, "{conduct:?}");
        }
        assert_eq!(haste.conduct("Who?"), haste.conduct("Who?"));
        assert_eq!(Haste::NONE.conduct("Who?"), Conduct::Careful);
    }

    #[test]
    fn names_and_numbers_are_found_inside_sentences() {
        let text = "Pana Zanga: The occupation of Pana Zanga is sculptor. She had a mentor called Fomel Navi, in 1807.";
        let found: Vec<&str> = NAME.captures_iter(text).filter_map(|name| Some(name.get(1)?.as_str())).collect();
        assert_eq!(found, ["Pana Zanga", "Fomel Navi", "1807"]);
    }
}

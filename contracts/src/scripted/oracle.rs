//! The oracle: knows which queries to send, and answers from what it reads.

use std::collections::HashMap;
use std::sync::Arc;

use super::engine::{Script, Scripted, View};
use super::{Cast, read};
use crate::policy::PolicyError;
use crate::seed::Seed;
use crate::tag::Tag;
use crate::task::Task;

/// Names (words that begin with a capital) and numbers, each after a word in lower case, so not at the start of a sentence.
fn names(text: &str) -> Vec<&str> {
    let (mut found, mut taken) = (Vec::new(), 0);
    for (space, _) in text.match_indices(' ') {
        if space < taken || !follows_word(&text[..space]) {
            continue;
        }
        let rest = &text[space + 1..];
        let length = match name_length(rest) {
            0 => leading(rest, |letter| letter.is_ascii_digit()),
            length => length,
        };
        if length > 0 {
            found.push(&rest[..length]);
            taken = space + 1 + length;
        }
    }
    found
}

/// Whether a text ends with a whole word in lower case, maybe with a comma after it.
fn follows_word(text: &str) -> bool {
    let text = text.strip_suffix(',').unwrap_or(text);
    let before = text.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    before.len() < text.len() && !before.ends_with(in_word)
}

/// Bytes of the words at the start of a text that begin with a capital and have a second letter.
fn name_length(text: &str) -> usize {
    let mut length = 0;
    loop {
        let gap = usize::from(length > 0);
        let Some(word) = text[length..].strip_prefix(&" "[..gap]) else {
            return length;
        };
        if !word.starts_with(|letter: char| letter.is_ascii_uppercase()) {
            return length;
        }
        match leading(&word[1..], |letter| in_word(letter) || letter == '\'') {
            0 => return length,
            more => length += gap + 1 + more,
        }
    }
}

fn in_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Bytes of the letters at the start of a text that are of a kind.
fn leading(text: &str, of_kind: impl Fn(char) -> bool) -> usize {
    text.find(|letter| !of_kind(letter)).unwrap_or(text.len())
}

/// The text that the oracle writes around its actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OracleStyle {
    /// The action alone: `<search>Q</search>`, `<answer>A</answer>`; programs are as short as they can be.
    Terse,
    /// The same with a space before queries and answers in tags, `<answer> A</answer>`. Where a word's token holds the space before the
    /// word, they have the tokens that they have inside a sentence, so a policy can copy them from what it reads.
    Spaced,
    /// A short thought between think tags before each action; programs check what they find.
    #[default]
    Plain,
}

impl OracleStyle {
    /// A query or an answer as it is written between two tags.
    pub fn between_tags(self, content: &str) -> String {
        let space = if self == Self::Spaced { " " } else { "" };
        [space, content].concat()
    }
}

/// The rate at which a demonstrator is hasty instead of careful. Whether it is depends on the question alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Haste {
    /// Share of questions it answers without a search, with a name from the question. Its queries name the relation alone.
    pub guess: f64,
    /// Share of questions it answers after the first search, with the first name or number it reads. Its programs print
    /// the first sentence of the page, whatever was asked; its queries are the words of the name alone.
    pub skim: f64,
    /// Share of questions it answers with the finding of the first hop, though they ask for more hops: of one hop it is right. Means
    /// nothing where an episode is one turn.
    #[serde(skip_serializing_if = "is_zero")]
    pub early: f64,
    /// Share of questions for which its program forgets to print, and it gives up, or its turn holds no query. Means
    /// nothing with search tags.
    pub silent: f64,
    /// Share of questions for which its program does not run, and it gives up, or its query has to be repaired. Means
    /// nothing with search tags.
    pub broken: f64,
    /// Share of questions answered at once, and right, where a careful demonstrator writes down the steps of a solution first. It is drawn
    /// apart from the other shares, and so is `code`. Means nothing where something is searched.
    #[serde(skip_serializing_if = "is_zero")]
    pub direct: f64,
    /// Share of questions whose steps are written as code that nothing runs, in place of words. Means nothing where something is searched.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: f64,
}

/// Shares that are not written leave the digests of runs of earlier versions as they were.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(share: &f64) -> bool {
    share.to_bits() == 0
}

/// The way one question is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// As well as the solution allows.
    Careful,
    /// With an answer from the question, without a search.
    Guess,
    /// With what is read first.
    Skim,
    /// With what the first hop finds.
    Early,
    /// Without showing what was found.
    Silent,
    /// By a name that is not defined.
    Undefined,
    /// With broken syntax.
    Malformed,
}

impl Haste {
    /// Nothing but careful play.
    pub const NONE: Self = Self {
        guess: 0.0,
        skim: 0.0,
        early: 0.0,
        silent: 0.0,
        broken: 0.0,
        direct: 0.0,
        code: 0.0,
    };

    /// The way a question is played.
    pub fn conduct(self, question: &str) -> Conduct {
        let hash = Seed::root(0).child(question, &[]).0;
        let mut share = hash as f64 / u64::MAX as f64;
        let shares = [
            (self.guess, Conduct::Guess),
            (self.skim, Conduct::Skim),
            (self.silent, Conduct::Silent),
            (self.broken / 2.0, Conduct::Undefined),
            (self.broken / 2.0, Conduct::Malformed),
            // Last, so that the others play the questions that they played before there was this one.
            (self.early, Conduct::Early),
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

/// Tasks that a script recognises by their questions.
struct Known(HashMap<String, Arc<Task>>);

impl Known {
    fn new(tasks: impl IntoIterator<Item = Arc<Task>>) -> Self {
        Self(
            tasks
                .into_iter()
                .map(|task| (task.question.trim().to_owned(), task))
                .collect(),
        )
    }

    /// The task of a prompt. Of questions that contain each other, the longest is the one that was asked.
    ///
    /// # Errors
    /// When the prompt asks none of the questions.
    fn task(&self, prompt: &str) -> Result<&Task, PolicyError> {
        let question = read::question(prompt);
        let contained = || {
            let known = self
                .0
                .iter()
                .filter(|(question, _)| prompt.contains(question.as_str()));
            // Of equally long ones the same in every process.
            known
                .max_by_key(|(question, _)| (question.len(), *question))
                .map(|(_, task)| task)
        };
        self.0
            .get(question)
            .or_else(contained)
            .map(AsRef::as_ref)
            .ok_or_else(|| {
                PolicyError::BadRequest(format!(
                    "the oracle does not know the question `{question}`"
                ))
            })
    }
}

/// The actions of an environment's oracle, and the text that it reads: the turns of [`Scripted::oracle`].
#[derive(Clone, Copy, Debug)]
pub struct Hand {
    /// The turn that looks for the fact a query asks for, after a thought.
    pub search: fn(thought: &str, query: &str, style: OracleStyle, conduct: Conduct) -> String,
    /// The turn that looks for a question of which no solution is known, after a thought.
    pub by_question: fn(thought: &str, question: &str, style: OracleStyle) -> String,
    /// The part of an observation that the policy reads.
    pub read: fn(observation: &str) -> Option<&str>,
}

/// A script that knows the task of its episode.
struct Knowing<W> {
    known: Known,
    style: OracleStyle,
    haste: Haste,
    write: W,
}

impl<W> Script for Knowing<W>
where
    W: Fn(&Task, &View<'_>, OracleStyle, Conduct) -> Result<String, PolicyError> + Send + Sync,
{
    fn write(&self, view: &View<'_>) -> Result<String, PolicyError> {
        let task = self.known.task(view.prompt)?;
        let conduct = self.haste.conduct(&task.question);
        (self.write)(task, view, self.style, conduct)
    }
}

impl Scripted {
    /// Plays the tasks of `cast`, which it recognises by their questions: `write` makes a turn of the task, of what the script sees, and
    /// of the cast's style and its haste with this question.
    pub fn knowing<W>(cast: Cast, write: W) -> Self
    where
        W: Fn(&Task, &View<'_>, OracleStyle, Conduct) -> Result<String, PolicyError>
            + Send
            + Sync
            + 'static,
    {
        let script = Knowing {
            known: Known::new(cast.tasks),
            style: cast.style,
            haste: cast.haste,
            write,
        };
        Self::with_script(script, cast.tokenizer)
    }

    /// An oracle for the tasks of `cast` that acts by `hand`. With haste it is careful only some of the time: what it shows is
    /// the protocol, not how to be right.
    pub fn oracle(cast: Cast, hand: Hand) -> Self {
        Self::knowing(cast, move |task, view, style, conduct| {
            Ok(Oracle { hand, style }.turn(task, view, conduct))
        })
    }

    /// Plays the tasks of `cast`, whose style and haste mean nothing here, by a function of the task and the observations so far.
    pub fn solution(cast: Cast, next: fn(task: &Task, shown: &[String]) -> String) -> Self {
        Self::knowing(cast, move |task, view, _, _| Ok(next(task, view.shown)))
    }
}

/// Sends the known query of each hop, checks that the finding was shown, and answers with the last finding.
///
/// When a finding is not in what it read, it answers with the title of the best passage instead: its score says what a
/// perfect searcher can reach with the retriever at hand. A task without known queries is searched by its question.
struct Oracle {
    hand: Hand,
    style: OracleStyle,
}

impl Oracle {
    fn turn(&self, task: &Task, view: &View<'_>, conduct: Conduct) -> String {
        if let Some(rushed) = self.rush(task, view, conduct) {
            rushed
        } else if task.oracle.is_empty() {
            self.by_question(task, view)
        } else {
            self.follow(task, view, conduct)
        }
    }

    fn answer(&self, answer: &str) -> String {
        Tag::turn(
            &self.thought(format!("It is {answer}.")),
            Tag::Answer.both(),
            &self.style.between_tags(answer),
        )
    }

    fn thought(&self, thought: String) -> String {
        if self.style == OracleStyle::Plain {
            thought
        } else {
            String::new()
        }
    }

    /// What was read last.
    fn last_read<'a>(&self, view: &View<'a>) -> &'a str {
        view.shown
            .last()
            .and_then(|shown| (self.hand.read)(shown))
            .unwrap_or_default()
    }

    /// The hasty answer, when it is time for one.
    fn rush(&self, task: &Task, view: &View<'_>, conduct: Conduct) -> Option<String> {
        match (conduct, view.shown.last()) {
            (Conduct::Guess, None) => {
                Some(self.answer(names(&task.question).last().unwrap_or(&"unknown")))
            }
            (Conduct::Skim, Some(_)) => {
                let mut read = names(self.last_read(view)).into_iter();
                let new = read.find(|name| !task.question.contains(name));
                Some(self.answer(new.unwrap_or_else(|| guess(view))))
            }
            _ => None,
        }
    }

    /// The next turn of a task with known queries.
    fn follow(&self, task: &Task, view: &View<'_>, conduct: Conduct) -> String {
        let hop = view.shown.len().min(task.oracle.len());
        let found = hop
            .checked_sub(1)
            .map(|last| task.oracle[last].finding.as_str());
        if let Some(found) = found
            && !self.last_read(view).contains(found)
        {
            return self.answer(guess(view));
        }
        match (task.oracle.get(hop), found) {
            (Some(_), Some(found)) if conduct == Conduct::Early => self.answer(found),
            (Some(next), _) if !view.must_answer => {
                let thought = found.map_or_else(
                    || "I need to search.".to_owned(),
                    |found| format!("{found}. Next."),
                );
                (self.hand.search)(&self.thought(thought), &next.query, self.style, conduct)
            }
            (None, Some(found)) => self.answer(found),
            _ => self.answer(guess(view)),
        }
    }

    /// The next turn of a task without known queries.
    fn by_question(&self, task: &Task, view: &View<'_>) -> String {
        if view.shown.is_empty() && !view.must_answer {
            let thought = self.thought("I need to search.".to_owned());
            return (self.hand.by_question)(&thought, task.question.trim(), self.style);
        }
        let read = self.last_read(view);
        let gold = task
            .golds
            .iter()
            .find(|gold| !gold.is_empty() && read.contains(gold.as_str()));
        self.answer(gold.map_or_else(|| guess(view), String::as_str))
    }
}

/// The title of the best passage last read; programs leave none.
fn guess<'a>(view: &View<'a>) -> &'a str {
    let mut blocks = view
        .shown
        .iter()
        .rev()
        .filter_map(|shown| Tag::Information.inside(shown));
    blocks
        .find_map(|block| read::titles(block).next())
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_questions_in_a_prompt_the_longest_is_asked_and_of_equally_long_ones_always_the_same() {
        let task = |question: &str| Arc::new(Task::new(question, question));
        // A map's order differs from one to the next.
        for _ in 0..20 {
            let known = Known::new(["A?", "Who is A?", "Who is B?"].map(task));
            let asked = |prompt: &str| Some(known.task(prompt).ok()?.question.as_str());
            assert_eq!(asked("Who is A? Tell me."), Some("Who is A?"));
            assert_eq!(asked("Who is B? Who is A? Tell me."), Some("Who is B?"));
            assert_eq!(asked("What? Tell me."), None);
        }
    }

    #[test]
    fn haste_has_its_shares_and_depends_on_the_question() {
        let haste = Haste {
            guess: 0.2,
            skim: 0.25,
            early: 0.1,
            silent: 0.1,
            broken: 0.2,
            ..Haste::NONE
        };
        let count = |conduct| {
            (0..4000)
                .filter(|i| haste.conduct(&format!("Who is {i}?")) == conduct)
                .count()
        };
        for (conduct, share) in [
            (Conduct::Guess, 0.2),
            (Conduct::Skim, 0.25),
            (Conduct::Silent, 0.1),
            (Conduct::Undefined, 0.1),
            (Conduct::Malformed, 0.1),
            (Conduct::Early, 0.1),
            (Conduct::Careful, 0.15),
        ] {
            assert!(
                (count(conduct) as f64 / 4000.0 - share).abs() < 0.03,
                "{conduct:?}"
            );
        }
        assert_eq!(haste.conduct("Who?"), haste.conduct("Who?"));
        assert_eq!(Haste::NONE.conduct("Who?"), Conduct::Careful);
    }

    #[test]
    fn names_and_numbers_are_found_inside_sentences() {
        let text = "Pana Zanga: The occupation of Pana Zanga is sculptor. She had a mentor called Fomel Navi, in 1807.";
        assert_eq!(names(text), ["Pana Zanga", "Fomel Navi", "1807"]);
        let odd = "See, A or Jo's B, xA by 12th of éa Bo, then 'tis Élan in 7";
        assert_eq!(names(odd), ["Jo's", "12", "7"]);
    }
}

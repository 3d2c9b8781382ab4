//! What is asked about a window of passages, how it is shown, and what is read from the answer.

use forage_contracts::Tag;
use forage_contracts::retriever::Hit;
use serde::{Deserialize, Serialize};

use crate::protocol::last_closed;

/// What the policy is asked about the passages of a turn, and so what it writes between answer tags.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// A score from 0 to 10 for one passage at a time.
    Pointwise,
    /// The better one of two passages.
    Pairwise,
    /// The best passage of a window.
    Setwise,
    /// The order of a window, `[2] > [1] > [3]`.
    #[default]
    Listwise,
    /// Scores from 0 to 10 for all passages of a window, `[1] 7, [2] 0`.
    Groupwise,
}

/// The highest score.
pub(super) const TOP: f64 = 10.0;

/// The line above the passages of a turn.
pub(super) const HEADER: &str = "Passages:";

/// A fault in what a turn says of its window. The turn is used as far as it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// No block between answer tags is closed.
    NoAnswer,
    /// A name that no passage of the window has.
    Unknown,
    /// A passage named or scored again, or a second pick.
    Extra,
    /// A passage that was left out.
    Missing,
    /// A score below 0 or above 10, taken as the nearer of the two.
    Range,
}

/// What a turn says of its window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// The passages, as places of the window, best first: those that were named, then the others in the order in which they
    /// were shown. As shown where scores are given.
    pub order: Vec<usize>,
    /// A score by place, where scores are given; `None` for a passage without one.
    pub scores: Vec<Option<f64>>,
    /// One for everything that was mended.
    pub faults: Vec<Fault>,
    /// Whether a passage was named or scored.
    pub says_something: bool,
}

impl Form {
    pub(crate) const ALL: [Self; 5] = [
        Self::Pointwise,
        Self::Pairwise,
        Self::Setwise,
        Self::Listwise,
        Self::Groupwise,
    ];

    /// Whether passages get scores, by which they are sorted at the end.
    pub(super) fn is_scored(self) -> bool {
        matches!(self, Self::Pointwise | Self::Groupwise)
    }

    /// Whether one passage is picked per turn.
    pub(super) fn picks(self) -> bool {
        matches!(self, Self::Pairwise | Self::Setwise)
    }

    /// The line below the passages of a turn.
    pub(super) fn request(self) -> &'static str {
        match self {
            Self::Pointwise => {
                "Score the passage from 0 (no help) to 10 (answers the question), as in <answer>7</answer>."
            }
            Self::Pairwise => {
                "Which of the two passages answers the question better? Write its number, as in <answer>[2]</answer>."
            }
            Self::Setwise => {
                "Which passage answers the question best? Write its number, as in <answer>[2]</answer>."
            }
            Self::Listwise => {
                "Put all of these passages in order, the best first, as in <answer>[2] > [1] > [3]</answer>."
            }
            Self::Groupwise => {
                "Score each passage from 0 (no help) to 10 (answers the question), as in <answer>[1] 7, [2] 0</answer>."
            }
        }
    }

    /// Passages as the policy reads them, one a line, with what is asked about them.
    pub(super) fn show<'a>(
        self,
        hits: impl Iterator<Item = &'a Hit>,
        words: usize,
        ids: bool,
    ) -> String {
        let line = |(number, hit): (usize, &Hit)| {
            let id = if ids {
                format!(" ({})", hit.id)
            } else {
                String::new()
            };
            let title = match one_line(&hit.title, usize::MAX) {
                title if title.is_empty() => title,
                title => format!(" {title}:"),
            };
            format!("[{number}]{id}{title} {}", one_line(&hit.text, words))
        };
        let mut lines = vec![HEADER.to_owned()];
        lines.extend((1..).zip(hits).map(line));
        lines.push(self.request().to_owned());
        lines.join("\n")
    }

    /// Reads a turn about a window of passages with these ids. A passage is named by its number in the window, from 1, or by
    /// its id; a number goes before an id.
    pub(crate) fn read(self, turn: &str, ids: &[&str]) -> Verdict {
        let [open, close] = Tag::Answer.both();
        let unread = Verdict {
            order: (0..ids.len()).collect(),
            scores: vec![None; if self.is_scored() { ids.len() } else { 0 }],
            ..Verdict::default()
        };
        let Some(answer) = last_closed(turn, open, close) else {
            return Verdict {
                faults: vec![Fault::NoAnswer],
                ..unread
            };
        };
        match self {
            Self::Pointwise => alone(answer, unread),
            Self::Groupwise => scored(answer, ids, unread),
            Self::Pairwise | Self::Setwise => ordered(answer, ids, 1),
            Self::Listwise => ordered(answer, ids, ids.len()),
        }
    }
}

/// The first words of a text on one line.
fn one_line(text: &str, most: usize) -> String {
    let mut words = text.split_whitespace();
    let mut kept: Vec<&str> = words.by_ref().take(most).collect();
    if words.next().is_some() {
        kept.push("...");
    }
    kept.join(" ")
}

/// The place of a named passage.
fn place(name: &str, ids: &[&str]) -> Option<usize> {
    let number = name.parse::<usize>().ok();
    let numbered = number.filter(|number| (1..=ids.len()).contains(number));
    let named = || ids.iter().position(|id| *id == name);
    numbered.map(|number| number - 1).or_else(named)
}

/// Reads names, of which `wanted` are asked for; brackets do not matter, and any other word between separators is an
/// unknown name.
fn ordered(answer: &str, ids: &[&str], wanted: usize) -> Verdict {
    let wanted = wanted.min(ids.len());
    let (mut order, mut faults) = (Vec::with_capacity(ids.len()), Vec::new());
    let names = answer.split(['[', ']', '>', ',', ';', '\n']).map(str::trim);
    for name in names.filter(|name| !name.is_empty()) {
        match place(name, ids) {
            None => faults.push(Fault::Unknown),
            Some(place) if order.len() == wanted || order.contains(&place) => {
                faults.push(Fault::Extra);
            }
            Some(place) => order.push(place),
        }
    }
    faults.extend(vec![Fault::Missing; wanted - order.len()]);
    let says_something = !order.is_empty();
    for place in 0..ids.len() {
        if !order.contains(&place) {
            order.push(place);
        }
    }
    Verdict {
        order,
        scores: Vec::new(),
        faults,
        says_something,
    }
}

/// The first number of a text.
fn number(text: &str) -> Option<f64> {
    let numbers =
        text.split(|letter: char| !letter.is_ascii_digit() && !['.', '-'].contains(&letter));
    numbers
        .into_iter()
        .find_map(|number| number.trim_end_matches('.').parse().ok())
}

/// Takes a score into the scale.
fn within(score: f64, faults: &mut Vec<Fault>) -> f64 {
    if !(0.0..=TOP).contains(&score) {
        faults.push(Fault::Range);
    }
    score.clamp(0.0, TOP)
}

/// Reads the score of a passage that is shown alone.
fn alone(answer: &str, mut verdict: Verdict) -> Verdict {
    if let Some(score) = verdict.scores.first_mut() {
        match number(answer) {
            Some(found) => {
                *score = Some(within(found, &mut verdict.faults));
                verdict.says_something = true;
            }
            None => verdict.faults.push(Fault::Missing),
        }
    }
    verdict
}

/// Reads scores, each behind its passage's name in brackets; what stands between them does not matter.
fn scored(answer: &str, ids: &[&str], mut verdict: Verdict) -> Verdict {
    for part in answer.split('[').skip(1) {
        let named = part.split_once(']');
        match named.and_then(|(name, rest)| Some((place(name.trim(), ids)?, rest))) {
            None => verdict.faults.push(Fault::Unknown),
            Some((place, _)) if verdict.scores[place].is_some() => {
                verdict.faults.push(Fault::Extra);
            }
            Some((place, rest)) => {
                verdict.scores[place] =
                    number(rest).map(|score| within(score, &mut verdict.faults));
            }
        }
    }
    let missing = verdict
        .scores
        .iter()
        .filter(|score| score.is_none())
        .count();
    verdict.faults.extend(vec![Fault::Missing; missing]);
    verdict.says_something = missing < ids.len();
    verdict
}

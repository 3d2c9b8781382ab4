//! From the words, phrases and values of a query to its leaves, within the limits on their number.

use std::ops::Range;

use super::super::lexer::is_plain;
use super::super::{Leaf, MAX_DEPTH, MAX_PREFIXES, MAX_TERMS, Node, Part};
use super::{Operand, Parser};
use crate::analyzer::{TermStream, is_one_word};

impl Parser<'_> {
    /// Takes `count` from the terms a query may have.
    fn afford(&mut self, count: usize, at: &Range<usize>) -> bool {
        if self.terms + count <= MAX_TERMS {
            self.terms += count;
            return true;
        }
        if !self.full {
            self.full = true;
            self.issues.add(
                at.clone(),
                format!("the query has more than {MAX_TERMS} words; those beyond are ignored"),
            );
        }
        false
    }

    fn leaf(&mut self, leaf: Leaf, terms: usize, at: Range<usize>) -> Operand {
        if self.afford(terms, &at) {
            Operand::Node(Node::leaf(leaf))
        } else {
            Operand::Nothing(at, false)
        }
    }

    fn exact(&mut self, field: &str, value: &str, at: Range<usize>) -> Operand {
        let (field, value) = (field.to_owned(), value.to_owned());
        self.leaf(Leaf::Exact { field, value }, 1, at)
    }

    pub(super) fn word(&mut self, run: &str, field: Option<&str>, at: Range<usize>) -> Operand {
        let part = match part_of(field) {
            Ok(part) => part,
            Err(name) => {
                if run.ends_with('*') {
                    self.issues
                        .add(at.clone(), "`*` in the value of a field is taken literally");
                }
                return self.exact(name, run, at);
            }
        };
        if run.contains('*') {
            return self.prefix(run, part, at);
        }
        self.text(run, part, 0, at, field.is_some())
    }

    fn prefix(&mut self, run: &str, part: Part, at: Range<usize>) -> Operand {
        let word = run.trim_end_matches('*');
        if word.len() < run.len() && is_one_word(word) && is_plain(word) {
            if self.prefixes < MAX_PREFIXES {
                self.prefixes += 1;
                return self.leaf(
                    Leaf::Prefix {
                        part,
                        text: word.to_owned(),
                    },
                    1,
                    at,
                );
            }
            self.issues.add(
                at.clone(),
                format!("more than {MAX_PREFIXES} words with `*`; taken without it"),
            );
        } else {
            self.issues.add(
                at.clone(),
                "`*` only works at the end of a single word; ignored",
            );
        }
        self.text(run, part, 0, at, false)
    }

    pub(super) fn phrase(
        &mut self,
        content: &str,
        field: Option<&str>,
        slop: u32,
        at: Range<usize>,
    ) -> Operand {
        match part_of(field) {
            Ok(part) => self.text(content, part, slop, at, true),
            Err(name) => {
                if slop > 0 {
                    self.issues.add(
                        at.clone(),
                        "`~` does not work on the value of this field; ignored",
                    );
                }
                self.exact(name, content, at)
            }
        }
    }

    /// A word for one term, a phrase for several. `report` says whether a text without a term is worth an issue.
    fn text(
        &mut self,
        text: &str,
        part: Part,
        slop: u32,
        at: Range<usize>,
        report: bool,
    ) -> Operand {
        let Some((text, terms)) = settled(text) else {
            return Operand::Nothing(at, report);
        };
        self.leaf(leaf_of(text, terms, part, slop), terms, at)
    }

    pub(super) fn words(&mut self, run: &str, depth: usize, at: Range<usize>) -> Operand {
        if depth == MAX_DEPTH {
            // No parentheses are left to hold them together.
            return self.text(run, Part::Anywhere, 0, at, false);
        }
        // The colon parts words here, which it would not do for the analyzer between letters.
        let mut pieces = Vec::new();
        for piece in run.split(':') {
            let mut stream = TermStream::new(piece);
            while let Some(located) = stream.next_located() {
                // A term among others may be several alone: where words part depends on the characters before.
                pieces.extend(settled(&piece[located.range()]));
            }
        }
        let mut nodes = Vec::new();
        for (word, terms) in pieces {
            if self.afford(terms, &at) {
                nodes.push(Node::leaf(leaf_of(word, terms, Part::Anywhere, 0)));
            }
        }
        if nodes.is_empty() {
            Operand::Nothing(at, false)
        } else {
            Operand::Words(nodes)
        }
    }
}

/// A word for one term, a phrase for several.
fn leaf_of(text: &str, terms: usize, part: Part, slop: u32) -> Leaf {
    let text = text.to_owned();
    if terms == 1 {
        Leaf::Word { part, text }
    } else {
        Leaf::Phrase { part, text, slop }
    }
}

/// Cuts a text to the part from its first to its last term, and counts its terms. Without its surroundings a word may
/// end earlier, so this is done until nothing changes.
fn settled(text: &str) -> Option<(&str, usize)> {
    let mut text = text;
    loop {
        let mut stream = TermStream::new(text);
        let first = stream.next_located()?.range();
        let (mut end, mut terms) = (first.end, 1);
        while let Some(located) = stream.next_located() {
            (end, terms) = (located.end, terms + 1);
        }
        let core = &text[first.start..end];
        if core.len() == text.len() {
            return Some((core, terms));
        }
        text = core;
    }
}

/// The part a field restricts words to, or the name of a field with exact values.
fn part_of(field: Option<&str>) -> Result<Part, &str> {
    match field {
        None => Ok(Part::Anywhere),
        Some("title") => Ok(Part::Title),
        Some("text") => Ok(Part::Text),
        Some(name) => Err(name),
    }
}

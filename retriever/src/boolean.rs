//! Boolean mode: a small query language over passages, for those who ask for it.
//!
//! Terms, `AND` / `OR` / `NOT` (also `&&`, `||`, `!`), `+must`, `-mustnot`, parentheses, `"phrases"`, `"phrases"~slop`,
//! `field:value`, `prefix*` and `^boost`. Parsing never fails: whatever cannot be meant literally is repaired, and every
//! repair is reported as a [`ParseIssue`], so that a model that wrote the query can read how it was taken.

#[cfg(test)]
mod display;
mod eval;
mod lexer;
mod parser;
mod phrase;
mod plan;
mod shape;
mod window;

use std::ops::Range;

use forage_contracts::retriever::Fingerprint;

pub(crate) use eval::MODE;
pub(crate) use parser::parse_with;
pub use shape::QueryShape;

/// Most terms of a query; every word of a phrase counts.
pub(crate) const MAX_TERMS: usize = 256;
/// Most `prefix*` terms of a query, each of which may stand for many index terms.
pub(crate) const MAX_PREFIXES: usize = 16;
/// Parentheses deeper than this are read as if they were not there.
pub(crate) const MAX_DEPTH: usize = 32;
/// Largest boost, alone or multiplied up through nested groups.
pub(crate) const MAX_BOOST: f32 = 1000.0;
/// Issues reported one by one.
pub(crate) const MAX_ISSUES: usize = 64;

/// The fingerprint of boolean mode over what `bm25` ranks.
pub(crate) fn boolean_fingerprint(bm25: &Fingerprint) -> Fingerprint {
    Fingerprint::of(&format!("boolean 3\n{}\n", bm25.0))
}

/// A parsed boolean query.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BooleanQuery {
    /// `None` when nothing is left to look for; such a query matches no passage.
    pub(crate) root: Option<Node>,
}

/// A part of a query with its weight.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// Multiplies scores; in `[0, MAX_BOOST]`.
    pub(crate) boost: f32,
}

impl Node {
    pub(crate) fn leaf(leaf: Leaf) -> Self {
        Self {
            kind: Kind::Leaf(leaf),
            boost: 1.0,
        }
    }

    pub(crate) fn group(clauses: Vec<Clause>) -> Self {
        Self {
            kind: Kind::Group(clauses),
            boost: 1.0,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Leaf(Leaf),
    /// At least one clause; never a single one that is not negated.
    Group(Vec<Clause>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Clause {
    pub(crate) occur: Occur,
    pub(crate) node: Node,
}

/// The part of a clause in its group. A group with a `Must` matches where all of those do, and the `Should` only add to
/// the score; without one, at least one `Should` must match; with neither, everything but the `MustNot` matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occur {
    Must,
    Should,
    MustNot,
}

impl Occur {
    pub(crate) fn clause(self, node: Node) -> Clause {
        Clause { occur: self, node }
    }
}

/// The part of a passage that a word or phrase is looked for in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Anywhere,
    Title,
    Text,
}

impl Part {
    /// The positions of a passage that belong to the part; `text` is that of the first word of its text.
    fn positions(self, text: u32) -> Range<u32> {
        match self {
            Self::Anywhere => 0..u32::MAX,
            Self::Title => 0..text,
            Self::Text => text..u32::MAX,
        }
    }

    /// The number of these positions that belong to it.
    fn count(self, positions: &[u32], text: u32) -> u32 {
        let within = self.positions(text);
        let inside = positions
            .iter()
            .filter(|position| within.contains(*position));
        inside.count() as u32
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Leaf {
    /// A word with exactly one term.
    Word { part: Part, text: String },
    /// The beginning of words, as written.
    Prefix { part: Part, text: String },
    /// Text of two or more terms.
    Phrase { part: Part, text: String, slop: u32 },
    /// A field, `id` included, with exactly this value.
    Exact { field: String, value: String },
}

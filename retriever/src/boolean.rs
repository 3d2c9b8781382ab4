//! Boolean mode: a small query language over passages, for those who ask for it.
//!
//! Terms, `AND` / `OR` / `NOT` (also `&&`, `||`, `!`), `+must`, `-mustnot`, parentheses, `"phrases"`, `"phrases"~slop`,
//! `field:value`, `prefix*` and `^boost`. Parsing never fails: whatever cannot be meant literally is repaired, and every
//! repair is reported as a [`ParseIssue`], so that a model that wrote the query can be told what was done with it.

mod display;
mod eval;
mod lexer;
mod parser;
mod plan;
mod shape;
mod verify;
mod window;

use std::ops::Range;

pub use eval::{BooleanAnswer, BooleanRetriever, BooleanSearch};
pub(crate) use parser::parse_with;
pub use shape::QueryShape;

/// Most bytes of a query that are read.
pub(crate) const MAX_QUERY_BYTES: usize = 64 << 10;
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

/// Something in a query that was not taken as written.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ParseIssue {
    /// Bytes of the query text it is about, at character boundaries.
    pub at: Range<usize>,
    /// What was found and what was done, in plain words.
    pub message: String,
}

/// A parsed boolean query. `Display` prints its canonical form, which parses to the same query without an issue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BooleanQuery {
    /// `None` when nothing is left to look for.
    pub(crate) root: Option<Node>,
}

impl BooleanQuery {
    /// Whether the query asks for nothing; it matches no passage.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }
}

/// Parses a query in boolean syntax; every well-formed `name:` is taken as a field.
///
/// [`crate::Bm25Retriever::search_boolean`] knows which fields the index has and takes the others as words.
///
/// ```
/// use forage_retriever::parse_boolean;
///
/// let (query, issues) = parse_boolean("(tides || tidal) && moon NOT mars");
/// assert_eq!(query.to_string(), "(tides OR tidal) AND moon -mars");
/// assert!(issues.is_empty());
///
/// let (query, issues) = parse_boolean("\"new moon AND");
/// assert_eq!(query.to_string(), "\"new moon\"");
/// assert_eq!(issues[0].message, "the quote is never closed; taken as a phrase up to the end");
/// ```
pub fn parse_boolean(text: &str) -> (BooleanQuery, Vec<ParseIssue>) {
    parse_with(text, &|_| true)
}

/// A part of a query with its weight.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// Multiplies scores; in `[0, MAX_BOOST]`.
    pub(crate) boost: f32,
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

/// What a clause means to its group. A group with a `Must` matches where all of those do, and the `Should` only add to
/// the score; without one, at least one `Should` must match; with neither, everything but the `MustNot` matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occur {
    Must,
    Should,
    MustNot,
}

/// Where a word or phrase has to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Anywhere,
    Title,
    Text,
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

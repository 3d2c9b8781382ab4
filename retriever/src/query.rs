//! What is asked and what is answered.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Restricts a search to passages whose fields have given values.
///
/// Every named field must have one of its values (exact, case-sensitive). `id` and `title` are fields of every passage;
/// the others are those the corpus gave, see [`crate::Passage::fields`]. An empty filter keeps everything; a field
/// without values, or one that no passage has, keeps nothing. Written in JSON as `{"page": ["p1", "p2"]}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Filter(pub BTreeMap<String, Vec<String>>);

impl Filter {
    /// Whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One query: any text, taken as a bag of words. No character in it has a meaning of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Query {
    /// As the policy wrote it.
    pub text: String,
    /// Passages to consider.
    #[serde(default, skip_serializing_if = "Filter::is_empty")]
    pub filter: Filter,
}

impl Query {
    /// Makes a query of a text, over all passages.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), filter: Filter::default() }
    }

    /// The same query over fewer passages.
    #[must_use]
    pub fn filtered(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }
}

/// One retrieved passage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    /// External id of the passage.
    pub id: String,
    /// Higher is better; the scale is the retriever's own.
    pub score: f32,
    /// May be empty.
    pub title: String,
    /// Body, without the title.
    pub text: String,
}

/// How passages are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Bag of words, ranked as Lucene does.
    Bm25,
    /// AND, OR, NOT, phrases and fields, ranked by BM25.
    Boolean,
    /// Nearest vectors.
    Dense,
    /// BM25 and dense together.
    Hybrid,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Bm25, Self::Boolean, Self::Dense, Self::Hybrid];

    /// The name used in requests, configs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bm25 => "bm25",
            Self::Boolean => "boolean",
            Self::Dense => "dense",
            Self::Hybrid => "hybrid",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| format!("unknown mode `{name}`; use one of: bm25, boolean, dense, hybrid"))
    }
}

/// What exact BM25 needs to know of a whole collection when only a part of it is at hand. Statistics of parts add up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// Passages with at least one term: Lucene's `docCount`, the N of its formulas.
    pub passages: u64,
    /// Terms over all passages, repeats counted: Lucene's `sumTotalTermFreq`.
    pub tokens: u64,
    /// Passages that hold a term, for every analysed term that was asked about.
    pub frequencies: BTreeMap<String, u64>,
}

impl Statistics {
    /// Adds those of another, disjoint part of the collection.
    pub fn add(&mut self, other: &Self) {
        self.passages += other.passages;
        self.tokens += other.tokens;
        for (term, frequency) in &other.frequencies {
            *self.frequencies.entry(term.clone()).or_default() += frequency;
        }
    }
}

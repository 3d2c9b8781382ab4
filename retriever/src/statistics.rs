//! The statistics of a collection.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The numbers of a whole collection that exact BM25 needs when only a part of it is at hand. Statistics of parts add up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Statistics {
    /// Passages with at least one term: Lucene's `docCount`, the N of its formulas.
    pub passages: u64,
    /// Terms over all passages, repeats counted: Lucene's `sumTotalTermFreq`.
    pub tokens: u64,
    /// Passages that hold a term, for every analysed term that was asked about.
    pub frequencies: BTreeMap<String, u64>,
}

impl Statistics {
    /// Adds those of another, disjoint part of the collection.
    pub(crate) fn add(&mut self, other: &Self) {
        self.passages += other.passages;
        self.tokens += other.tokens;
        for (term, frequency) in &other.frequencies {
            *self.frequencies.entry(term.clone()).or_default() += frequency;
        }
    }
}

//! Queries, filters and hits.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use super::cancel::CancelFlag;

/// Restricts a search to passages whose fields have given values.
///
/// Every named field must have one of its values (exact, case-sensitive). `id` and `title` are fields of every passage;
/// the others are those the corpus gave, see [`crate::corpus::Passage::fields`]. An empty filter keeps everything; a field
/// without values, or one that no passage has, keeps nothing. Written in JSON as `{"page": ["p1", "p2"]}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Filter(pub BTreeMap<String, Vec<String>>);

impl Filter {
    /// Tells whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One query: any text, taken as a bag of words. No character in it has a meaning of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Query {
    /// As the policy wrote it.
    pub text: String,
    /// Passages to consider. Shared, because one request has one filter for many queries.
    #[serde(
        default,
        skip_serializing_if = "Filter::is_empty",
        serialize_with = "Filter::serialize",
        deserialize_with = "shared"
    )]
    pub filter: Arc<Filter>,
    /// Ends the search when nobody waits for it any more.
    #[serde(skip)]
    pub cancel: CancelFlag,
}

impl Query {
    /// Most bytes of a query text: boolean mode reads no more of one, this program's servers refuse longer ones, and environments
    /// should not send longer ones to any backend.
    pub const MAX_BYTES: usize = 64 << 10;

    /// Makes a query of a text, over all passages.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            filter: Arc::default(),
            cancel: CancelFlag::default(),
        }
    }

    /// The same query over fewer passages.
    #[must_use]
    pub fn filtered(mut self, filter: impl Into<Arc<Filter>>) -> Self {
        self.filter = filter.into();
        self
    }
}

fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Filter>, D::Error> {
    Filter::deserialize(deserializer).map(Arc::new)
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

impl Hit {
    /// The order of lists: score descending, then id ascending.
    pub fn rank(&self, other: &Self) -> Ordering {
        let scores = other.score.total_cmp(&self.score);
        scores.then_with(|| self.id.cmp(&other.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_filter_is_written_as_one_alone() {
        for text in [r#"{"text":"a"}"#, r#"{"text":"a","filter":{"page":["p"]}}"#] {
            let query: Query = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&query).unwrap(), text);
        }
    }
}

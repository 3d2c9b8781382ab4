//! What is recorded of a turn whose query was the goal.

use forage_retriever::{ParseIssue, QueryShape};
use serde::{Deserialize, Serialize};

/// A query that was written to be judged by what it finds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryTurn {
    /// The query as parsed; not empty.
    pub query: String,
    /// Ids of what it found, best first.
    pub found: Vec<String>,
    /// What had to be repaired before it could be run. Empty: its syntax is valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<ParseIssue>,
    /// Ids of the best passages for the question's own keywords: what the query has to beat.
    pub keywords_found: Vec<String>,
    /// Words between reasoning tags.
    pub reasoning_words: usize,
}

impl QueryTurn {
    /// Whether the query could be run as it was written.
    pub fn is_valid(&self) -> bool {
        self.repairs.is_empty()
    }

    /// The parts of the query.
    pub fn shape(&self) -> QueryShape {
        QueryShape::of(&self.query)
    }
}

//! Boolean mode: queries with operators.

use std::ops::Range;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Hit, Query, RetrieverError};

/// Something in a query that was not taken as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParseIssue {
    /// Bytes of the query text it is about, at character boundaries.
    pub at: Range<usize>,
    /// The finding and the repair, in plain words.
    pub message: String,
}

/// Hits of a boolean query and its repairs.
#[derive(Debug, Clone, PartialEq)]
pub struct BooleanAnswer {
    /// Best first, ties by id.
    pub hits: Vec<Hit>,
    /// In the order of the text.
    pub issues: Vec<ParseIssue>,
}

/// Boolean mode with the repairs of each query.
#[async_trait]
pub trait BooleanSearch: Send + Sync {
    /// The best `k` passages that a query in boolean syntax matches, and its repairs. Words without operators
    /// rank as the bag of words does.
    ///
    /// # Errors
    /// Only faults of the infrastructure; never because of the query.
    async fn answer(&self, query: &Query, k: usize) -> Result<BooleanAnswer, RetrieverError>;
}

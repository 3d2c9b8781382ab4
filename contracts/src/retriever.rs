//! Retrievers: what environments search through, and the entry of one that brings its own passages.

mod boolean;
mod cancel;
mod encoder;
mod entry;
mod error;
mod query;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use boolean::{BooleanAnswer, BooleanSearch, ParseIssue};
pub use cancel::CancelFlag;
pub use encoder::{Encoder, TextKind};
pub use entry::{RetrieverEntry, RetrieverSettings};
pub use error::RetrieverError;
pub use query::{Filter, Hit, Query};

/// Names everything that decides a ranking: corpus, analyzer, BM25 constants. 64 hex digits.
///
/// Equal fingerprints give equal hits for equal queries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fingerprint(pub String);

impl Fingerprint {
    /// The digest of a text that names everything.
    pub fn of(named: &str) -> Self {
        Self(blake3::hash(named.as_bytes()).to_hex().to_string())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Finds the best passages for queries.
///
/// Contract: one list per query, in the order of the queries; at most `k` hits each, fewer when fewer passages match; no
/// id twice in a list; sorted by score descending, equal scores by id ascending (byte order), also at the cut; the same
/// answer for the same query as long as [`Retriever::fingerprint`] is the same.
#[async_trait]
pub trait Retriever: Send + Sync {
    /// Names everything that decides the answers.
    fn fingerprint(&self) -> Fingerprint;

    /// The best `k` passages for each query.
    ///
    /// # Errors
    /// Only faults of the infrastructure; a query without a match is an empty list.
    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError>;

    /// Boolean mode over the same passages; `None` where queries can only be text.
    fn boolean(self: Arc<Self>) -> Option<Arc<dyn BooleanSearch>> {
        None
    }
}

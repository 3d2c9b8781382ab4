//! A retriever for runs without passages.

use crate::error::RetrieverError;
use crate::index::Fingerprint;
use crate::query::{Hit, Query};
use crate::retriever::Retriever;

/// Stands where environments that search nothing are given a retriever; a query is an error.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPassages;

#[async_trait::async_trait]
impl Retriever for NoPassages {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint("no passages".to_owned())
    }

    async fn search(&self, queries: &[Query], _k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        if queries.is_empty() {
            Ok(Vec::new())
        } else {
            Err(RetrieverError::NoPassages)
        }
    }
}

//! A retriever for runs without passages.

use forage_contracts::retriever::{Fingerprint, Hit, Query, Retriever, RetrieverError};

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

//! Vectors as a reranker: any text can be scored, without an index.

use std::sync::Arc;

use forage_contracts::retriever::{Encoder, Hit, RetrieverError, TextKind};

use super::{contents, encode_checked, kernel};
use crate::rerank::Reranker;

/// Scores by the inner product of the vectors of query and passage.
struct ByVectors(Arc<dyn Encoder>);

impl dyn Reranker {
    /// Scores passages as a dense index of this encoder would, up to rounding.
    pub fn by_vectors(encoder: Arc<dyn Encoder>) -> Arc<dyn Reranker> {
        Arc::new(ByVectors(encoder))
    }
}

impl Reranker for ByVectors {
    fn identity(&self) -> String {
        format!("vectors {}", self.0.identity())
    }

    fn score(&self, query: &str, passages: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        let encoder = self.0.as_ref();
        let query = encode_checked(encoder, TextKind::Query, &[query])?;
        let rows = encode_checked(encoder, TextKind::Passage, passages)?;
        let rows = rows.chunks_exact(encoder.dimension());
        Ok(rows.map(|row| kernel::product(&query, row)).collect())
    }

    fn passage(&self, hit: &Hit) -> String {
        contents(&hit.title, &hit.text)
    }
}

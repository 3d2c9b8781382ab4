//! Remote searches by vectors: what servers of them have in common.

use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::retriever::{
    Encoder, Filter, Fingerprint, Hit, Query, Retriever, RetrieverError, TextKind,
};
use forage_net::{Client, Fault, Request};
use serde::de::DeserializeOwned;

use super::hits::{arrange, keeps_nothing};
use super::search_r1::in_batches;
use crate::error::remote;

/// A collection on a server, and how it is asked.
pub(super) trait Collection: Send + Sync {
    /// The answer to a request.
    type Answer: DeserializeOwned + Send;

    /// Asks for the best `k` records for each of these vectors, of those that pass the filter.
    fn request(&self, vectors: &[Vec<f32>], filter: &Filter, k: usize) -> Request;

    /// The hits of each query, in the order of the queries.
    ///
    /// # Errors
    /// The mismatch, in words.
    fn hits(&self, answer: Self::Answer) -> Result<Vec<Vec<Hit>>, Fault>;

    /// Names server, collection and how it is asked.
    fn fingerprint(&self, base: &str, encoder: &str) -> Fingerprint;
}

/// Searches a collection with the vectors of an encoder.
pub(super) struct VectorRetriever<C> {
    pub(super) http: Client,
    pub(super) batch_queries: usize,
    pub(super) encoder: Arc<dyn Encoder>,
    pub(super) collection: C,
}

impl<C: Collection> VectorRetriever<C> {
    /// The queries have one filter.
    async fn ask(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let filter = &*queries[0].filter;
        if keeps_nothing(filter) {
            return Ok(vec![Vec::new(); queries.len()]);
        }
        let vectors = encode(&self.encoder, queries).await?;
        let take = |answer| {
            let mut lists = self.collection.hits(answer)?;
            if lists.len() != queries.len() {
                let what = format!("{} results for {} searches", lists.len(), queries.len());
                return Err(what.into());
            }
            for hits in &mut lists {
                arrange(hits, k);
            }
            Ok(lists)
        };
        let request = self.collection.request(&vectors, filter, k);
        self.http.call(request, take).await.map_err(remote)
    }
}

#[async_trait]
impl<C: Collection> Retriever for VectorRetriever<C> {
    fn fingerprint(&self) -> Fingerprint {
        let encoder = self.encoder.identity();
        self.collection.fingerprint(self.http.base(), &encoder)
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        in_batches(queries, k, self.batch_queries, |batch| self.ask(batch, k)).await
    }
}

/// Refuses a collection whose vectors have another length than the encoder's.
pub(super) fn check_dimension(
    collection: &str,
    size: &serde_json::Value,
    encoder: &dyn Encoder,
) -> Result<(), RetrieverError> {
    let dimension = encoder.dimension();
    if size.as_u64() == Some(dimension as u64) {
        return Ok(());
    }
    let what = format!(
        "`{collection}` has vectors of {size} numbers, the encoder makes {dimension}; use the model it was made with"
    );
    Err(RetrieverError::setting("collection", what))
}

/// One vector per query, encoded on a thread that may block.
pub(super) async fn encode(
    encoder: &Arc<dyn Encoder>,
    queries: &[Query],
) -> Result<Vec<Vec<f32>>, RetrieverError> {
    let texts: Vec<String> = queries.iter().map(|query| query.text.clone()).collect();
    let model = Arc::clone(encoder);
    let encoded = tokio::task::spawn_blocking(move || {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        model.encode(TextKind::Query, &texts)
    });
    let vectors = encoded.await.map_err(|_| RetrieverError::Stopped)??;
    let dimension = encoder.dimension();
    let fault = |what: String| RetrieverError::Model {
        model: encoder.identity(),
        what,
    };
    if vectors.len() != queries.len() * dimension {
        return Err(fault(format!(
            "{} numbers for {} vectors of {dimension}",
            vectors.len(),
            queries.len()
        )));
    }
    if vectors.iter().any(|number| !number.is_finite()) {
        return Err(fault("a number of a query vector is not finite".to_owned()));
    }
    Ok(vectors
        .chunks_exact(dimension.max(1))
        .map(<[f32]>::to_vec)
        .collect())
}

/// The encoder a vector search cannot do without.
pub(super) fn required(
    encoder: Option<Arc<dyn Encoder>>,
    kind: &str,
) -> Result<Arc<dyn Encoder>, RetrieverError> {
    let what =
        "searches by vectors and needs an encoder; name the model the vectors were made with";
    encoder.ok_or_else(|| RetrieverError::setting("kind", format!("`{kind}` {what}")))
}

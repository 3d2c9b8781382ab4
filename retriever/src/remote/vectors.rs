//! Query vectors for remote vector searches.

use std::sync::Arc;

use forage_contracts::retriever::{Encoder, Query, RetrieverError, TextKind};

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

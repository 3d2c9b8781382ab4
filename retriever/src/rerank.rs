//! A second, slower look at the first hits.

use std::sync::Arc;

use forage_contracts::retriever::{CancelFlag, Fingerprint, Hit, Query, Retriever, RetrieverError};
use tokio::runtime::Handle;

/// Passages scored between two looks at the flag of the query: a model takes up to a second for them.
const SCORED_AT_ONCE: usize = 64;

/// Scores query and passage together, as a cross-encoder does.
pub trait Reranker: Send + Sync {
    /// Names the model and everything that decides its scores: part of the fingerprint.
    fn identity(&self) -> String;

    /// One score per passage, higher is better, finite; the scale is the model's own. Blocks the calling thread.
    ///
    /// # Errors
    /// [`RetrieverError::Model`] when the model fails.
    fn score(&self, query: &str, passages: &[&str]) -> Result<Vec<f32>, RetrieverError>;

    /// The text of a passage as the model reads it: by default `(Title: "title") text`, or the text alone where there is no
    /// title, as the reranking server of Search-R1 writes the passages of its corpus.
    fn passage(&self, hit: &Hit) -> String {
        if hit.title.is_empty() {
            hit.text.clone()
        } else {
            format!("(Title: \"{}\") {}", hit.title, hit.text)
        }
    }
}

impl dyn Reranker + '_ {
    /// One finite score per hit, whatever score it has.
    ///
    /// # Errors
    /// [`RetrieverError::Model`] when the model fails, or gives other scores than these.
    pub fn score_hits(&self, query: &str, hits: &[Hit]) -> Result<Vec<f32>, RetrieverError> {
        let passages: Vec<String> = hits.iter().map(|hit| self.passage(hit)).collect();
        scores(self, query, &passages, &CancelFlag::default())
    }
}

/// Orders the first hits of a retriever anew.
pub struct RerankedRetriever {
    first: Arc<dyn Retriever>,
    reranker: Arc<dyn Reranker>,
    depth: usize,
}

impl RerankedRetriever {
    /// Scores the best `depth` hits of `first`; the best `k` where more are asked for. The model reads what
    /// [`Reranker::passage`] says.
    pub fn new(first: Arc<dyn Retriever>, reranker: Arc<dyn Reranker>, depth: usize) -> Self {
        Self {
            first,
            reranker,
            depth,
        }
    }
}

#[async_trait::async_trait]
impl Retriever for RerankedRetriever {
    fn fingerprint(&self) -> Fingerprint {
        let Self {
            first,
            reranker,
            depth,
        } = self;
        let named = format!(
            "reranked\ndepth={depth}\nmodel={}\n{}\n",
            reranker.identity(),
            first.fingerprint()
        );
        Fingerprint::of(&named)
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let lists = self.first.search(queries, self.depth.max(k)).await?;
        let queries = queries.to_vec();
        let reranker = Arc::clone(&self.reranker);
        let rerank = move || {
            let pairs = queries.iter().zip(lists);
            let reranked = pairs.map(|(query, hits)| reorder(reranker.as_ref(), query, hits, k));
            reranked.collect::<Result<Vec<_>, _>>()
        };
        match Handle::try_current() {
            // A panic of the model ends its task alone.
            Ok(runtime) => runtime
                .spawn_blocking(rerank)
                .await
                .map_err(|_| RetrieverError::Stopped)?,
            Err(_) => rerank(),
        }
    }
}

/// The best `k` of the hits by the reranker's scores, ties by id.
pub(crate) fn reorder(
    reranker: &dyn Reranker,
    query: &Query,
    mut hits: Vec<Hit>,
    k: usize,
) -> Result<Vec<Hit>, RetrieverError> {
    let passages: Vec<String> = hits.iter().map(|hit| reranker.passage(hit)).collect();
    let scores = scores(reranker, &query.text, &passages, &query.cancel)?;
    for (hit, score) in hits.iter_mut().zip(scores) {
        hit.score = score;
    }
    hits.sort_by(Hit::rank);
    hits.truncate(k);
    Ok(hits)
}

/// One finite score per passage, unless nobody waits for them any more.
pub(crate) fn scores(
    reranker: &dyn Reranker,
    query: &str,
    passages: &[String],
    cancel: &CancelFlag,
) -> Result<Vec<f32>, RetrieverError> {
    let mut all = Vec::with_capacity(passages.len());
    for some in passages.chunks(SCORED_AT_ONCE) {
        cancel.check()?;
        all.extend(scores_at_once(reranker, query, some)?);
    }
    Ok(all)
}

fn scores_at_once(
    reranker: &dyn Reranker,
    query: &str,
    passages: &[String],
) -> Result<Vec<f32>, RetrieverError> {
    let texts: Vec<&str> = passages.iter().map(String::as_str).collect();
    let scores = reranker.score(query, &texts)?;
    let fault = |what: String| RetrieverError::Model {
        model: reranker.identity(),
        what,
    };
    if scores.len() != texts.len() {
        return Err(fault(format!(
            "it gave {} scores for {} passages",
            scores.len(),
            texts.len()
        )));
    }
    if let Some((place, score)) = scores
        .iter()
        .enumerate()
        .find(|(_, score)| !score.is_finite())
    {
        return Err(fault(format!(
            "it gave {score} for passage {place} of the query `{query}`"
        )));
    }
    // Adding zero turns -0 into 0, so that equal scores are equal to the bit.
    Ok(scores.into_iter().map(|score| score + 0.0).collect())
}

#[cfg(test)]
mod tests;

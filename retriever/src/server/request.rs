//! Request bodies: what they may hold, and what is wrong with those that do not fit.
//!
//! Bodies are checked as `FastAPI` and pydantic check those of the Python servers, and refused in the same words, so that
//! a client's error handling meets what it knows: every fault is listed with its place (`loc`), and unknown keys are
//! ignored. Numbers may also come as integral floats or decimal strings, booleans as 0, 1 or words, as pydantic allows.

mod fields;
mod problem;

use std::sync::Arc;

use forage_contracts::retriever::{Filter, Query};
use serde_json::Value;

use crate::mode::Mode;
use crate::statistics::Statistics;
use fields::Fields;
pub(crate) use problem::{Place, Problem};

/// Passages asked for per request at most, over all its queries.
const MAX_PASSAGES: usize = 250_000;
/// What `FlashRAG`'s dialect gives when `top_n` is absent.
const FLASHRAG_TOPN: usize = 10;
/// What Search-R1's reranking server retrieves before it reranks when `topk_retrieval` is absent.
const RERANK_CANDIDATES: usize = 10;

/// What requests may ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Passages per query when the request names no number.
    pub topk: usize,
    /// Most passages per query.
    pub max_topk: usize,
    /// Most queries.
    pub max_queries: usize,
    /// Most bytes in one query text.
    pub max_query_bytes: usize,
}

/// How the answer is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `{"result": [[{"document": {..}, "score": f}]]}`.
    Scored,
    /// `{"result": [[{..}]]}`.
    Bare,
    /// `{"results": [{"doc_id", .., "score": f}]}` for the only query.
    Results,
    /// `FlashRAG`: `[[{..}]]`, with scores `[[[{..}]], [[f]]]`; for a single query without the outer list.
    FlashRag {
        /// Whether scores come beside the documents.
        scores: bool,
        /// Whether there is one query, not a list.
        single: bool,
    },
}

/// A request for passages.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RetrieveRequest {
    /// In the order of the answer.
    pub queries: Vec<Query>,
    /// Passages per query.
    pub k: usize,
    /// The number to retrieve and score anew before the best `k` are taken; `None` for no reranking.
    pub candidates: Option<usize>,
    /// Layout of the answer.
    pub shape: Shape,
    /// `None` for the server's own.
    pub mode: Option<Mode>,
    /// Collection statistics to rank with, when this server holds one shard of a collection.
    pub statistics: Option<Statistics>,
    /// Whether each document comes with an excerpt.
    pub snippets: bool,
}

/// A request to score given documents.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RerankRequest {
    /// One per list of documents.
    pub queries: Vec<String>,
    /// Texts as the model reads them, `(Title: "T") text`.
    pub documents: Vec<Vec<String>>,
    /// Documents per query in the answer.
    pub k: usize,
    /// Whether scores come with the documents.
    pub scores: bool,
}

impl RetrieveRequest {
    /// Reads the body of `POST /retrieve`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn parse(body: &[u8], limits: &Limits) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::read(body)?;
        let single = !fields.has("queries") && fields.has("query");
        let texts = if single {
            fields
                .text("query", limits.max_query_bytes)
                .into_iter()
                .collect()
        } else {
            fields.texts("queries", limits)
        };
        let scores = fields.flag("return_scores");
        let shape = match (single, scores) {
            // minisearch-r1 knows no `return_scores`; SkyRL, which also sends one `query`, always sends it.
            (true, None) => Shape::Results,
            (_, Some(true)) => Shape::Scored,
            _ => Shape::Bare,
        };
        let topk = fields.count("topk", limits.max_topk);
        let retrieved = fields.count("topk_retrieval", limits.max_topk);
        let reranked = fields.count("topk_rerank", limits.max_topk);
        let (k, candidates) = if retrieved.is_some() || reranked.is_some() {
            let k = reranked.or(topk).unwrap_or(limits.topk);
            (k, Some(retrieved.unwrap_or(RERANK_CANDIDATES).max(k)))
        } else {
            (topk.unwrap_or(limits.topk), None)
        };
        let mode = fields.mode("mode");
        let filter = fields.filter("filter");
        let statistics = fields.statistics("statistics");
        let snippets = fields.flag("snippets").unwrap_or(false);
        fields.limit_passages(texts.len(), candidates.unwrap_or(k), MAX_PASSAGES);
        fields.finish()?;
        let queries = queries(texts, filter);
        Ok(Self {
            queries,
            k,
            candidates,
            shape,
            mode,
            statistics,
            snippets,
        })
    }

    /// Reads the body of `POST /search` and `POST /batch_search`, where `query` is a text or a list of texts.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn parse_flashrag(
        body: &[u8],
        limits: &Limits,
        batch: bool,
    ) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::read(body)?;
        let single = !batch && !matches!(fields.get("query"), Some(Value::Array(_)));
        let texts = if single {
            fields
                .text("query", limits.max_query_bytes)
                .into_iter()
                .collect()
        } else {
            fields.texts("query", limits)
        };
        let k = fields
            .count("top_n", limits.max_topk)
            .unwrap_or(FLASHRAG_TOPN.min(limits.max_topk));
        let scores = fields.flag("return_score").unwrap_or(false);
        let mode = fields.mode("mode");
        let filter = fields.filter("filter");
        fields.limit_passages(texts.len(), k, MAX_PASSAGES);
        fields.finish()?;
        let queries = queries(texts, filter);
        let shape = Shape::FlashRag { scores, single };
        Ok(Self {
            queries,
            k,
            candidates: None,
            shape,
            mode,
            statistics: None,
            snippets: false,
        })
    }
}

impl RerankRequest {
    /// Reads the body of `POST /rerank`. A document is a text, `{"contents"}`, or `{"document": {"contents"}}`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn parse(body: &[u8], limits: &Limits) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::read(body)?;
        let queries = fields.texts("queries", limits);
        let documents = fields.documents("documents", queries.len(), limits.max_topk);
        let k = fields
            .count("rerank_topk", limits.max_topk)
            .unwrap_or(limits.topk);
        let scores = fields.flag("return_scores").unwrap_or(false);
        fields.limit_passages(documents.iter().map(Vec::len).sum(), 1, MAX_PASSAGES);
        fields.finish()?;
        Ok(Self {
            queries,
            documents,
            k,
            scores,
        })
    }
}

/// Reads the body of `POST /statistics`: the texts to be ranked.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn parse_statistics(body: &[u8], limits: &Limits) -> Result<Vec<String>, Vec<Problem>> {
    let mut fields = Fields::read(body)?;
    let texts = fields.texts("queries", limits);
    fields.finish()?;
    Ok(texts)
}

fn queries(texts: Vec<String>, filter: Option<Filter>) -> Vec<Query> {
    let filter = Arc::new(filter.unwrap_or_default());
    let query = |text: String| Query::new(text).filtered(Arc::clone(&filter));
    texts.into_iter().map(query).collect()
}

#[cfg(test)]
mod tests;

//! The trait environments search through, and BM25 behind it.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bm25::{Bm25Params, Scorer, Scratch};
use crate::corpus::Passage;
use crate::error::{IndexError, RetrieverError};
use crate::index::{Fingerprint, Index};

/// One query: any text, taken as a bag of words. No character in it has a meaning of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Query {
    /// As the policy wrote it.
    pub text: String,
}

impl Query {
    /// Makes a query of a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

/// One retrieved passage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    /// External id of the passage.
    pub id: String,
    /// Higher is better; the scale is the retriever's own.
    pub score: f32,
    /// May be empty.
    pub title: String,
    /// Body, without the title.
    pub text: String,
}

/// Finds the best passages for queries.
///
/// Contract: one list per query, in the order of the queries; at most `k` hits each, fewer when fewer passages match; no
/// id twice in a list; sorted by score descending, equal scores by id ascending (byte order), also at the cut; the same
/// answer for the same query as long as [`Retriever::fingerprint`] is the same.
#[async_trait::async_trait]
pub trait Retriever: Send + Sync {
    /// Names everything that decides the answers.
    fn fingerprint(&self) -> Fingerprint;

    /// The best `k` passages for each query.
    ///
    /// # Errors
    /// Only faults of the infrastructure; a query without a match is an empty list.
    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError>;
}

thread_local! {
    /// Buffers of the searching thread: a query allocates little more than its answer, and no lock is taken.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// BM25 over an index, equal to Lucene's. A query takes microseconds, so searches run on the calling thread.
pub struct Bm25Retriever {
    index: Arc<Index>,
    params: Bm25Params,
    scorer: Scorer,
}

impl Bm25Retriever {
    /// Searches with the constants the index was built for.
    pub fn new(index: Arc<Index>) -> Self {
        let params = index.manifest().bm25;
        Self { scorer: index.scorer(params), params, index }
    }

    /// Searches with other constants. Exact too, but prunes less: term bounds are stored for the index's own.
    ///
    /// # Errors
    /// [`IndexError::Constants`] when they are out of range.
    pub fn with_params(index: Arc<Index>, params: Bm25Params) -> Result<Self, IndexError> {
        let params = params.validate()?;
        Ok(Self { scorer: index.scorer(params), params, index })
    }

    /// Opens an index folder and searches it with the constants it was built for.
    ///
    /// # Errors
    /// As [`Index::open`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, IndexError> {
        Ok(Self::new(Arc::new(Index::open(folder)?)))
    }

    /// Indexes passages in memory, with the default constants.
    ///
    /// # Errors
    /// No passages, or two with one id.
    // By value: the caller has no use for the passages once they are indexed.
    #[allow(clippy::needless_pass_by_value, reason = "callers hand over a corpus they made")]
    pub fn in_memory(passages: Vec<Passage>) -> Result<Self, IndexError> {
        Ok(Self::new(Arc::new(Index::in_memory(&passages, Bm25Params::default())?)))
    }

    /// The index searched.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// The constants in use.
    pub fn params(&self) -> Bm25Params {
        self.params
    }

    /// Ordinals and scores of the best `k` passages, best first, ties by external id.
    ///
    /// # Errors
    /// [`RetrieverError`] when postings cannot be read.
    pub fn search_ids(&self, text: &str, k: usize) -> Result<Vec<(u32, f32)>, RetrieverError> {
        SCRATCH.with_borrow_mut(|scratch| self.index.top(&self.scorer, self.params, text, k, scratch))
    }

    /// The best `k` passages with their text, on the calling thread.
    ///
    /// # Errors
    /// [`RetrieverError`] when postings or passages cannot be read.
    pub fn search_one(&self, text: &str, k: usize) -> Result<Vec<Hit>, RetrieverError> {
        let ranked = self.search_ids(text, k)?;
        let mut hits = Vec::with_capacity(ranked.len());
        for (ordinal, score) in ranked {
            let document = self.index.document(ordinal)?;
            hits.push(Hit {
                id: document.id.to_owned(),
                score,
                title: document.title.to_owned(),
                text: document.text.to_owned(),
            });
        }
        Ok(hits)
    }
}

#[async_trait::async_trait]
impl Retriever for Bm25Retriever {
    fn fingerprint(&self) -> Fingerprint {
        let manifest = self.index.manifest();
        Fingerprint::of_bm25(&manifest.corpus_digest, &manifest.analyzer, self.params)
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        queries.iter().map(|query| self.search_one(&query.text, k)).collect()
    }
}

//! The trait environments search through, and BM25 behind it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use forage_contracts::Passage;
use forage_contracts::retriever::{
    BooleanSearch, Fingerprint, Hit, Query, Retriever, RetrieverError,
};
use rayon::prelude::*;

use crate::bm25::{Bag, Bm25Params, Scratch, Totals};
use crate::error::IndexError;
use crate::index::{Index, Ranking, guarded};
use crate::mode::ModeEntry;
use crate::rerank::Reranker;
use crate::statistics::Statistics;

/// Bag of words, ranked as Lucene does.
pub(crate) const BM25: ModeEntry = ModeEntry {
    name: "bm25",
    about: "bag of words, ranked as Lucene does",
    needs_encoder: false,
    open: |searched| Ok(Arc::new(Bm25Retriever::new(Arc::clone(searched.index)))),
};

thread_local! {
    /// Buffers of the searching thread: a query allocates little more than its answer, and no lock is taken.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// BM25 over an index, equal to Lucene's.
///
/// A query takes microseconds, so one query runs on the calling thread; several are spread over the global rayon pool.
pub struct Bm25Retriever {
    index: Arc<Index>,
    params: Bm25Params,
    ranking: Ranking,
}

impl Bm25Retriever {
    /// Searches with the constants the index was built for.
    pub fn new(index: Arc<Index>) -> Self {
        let params = index.manifest().bm25;
        Self {
            ranking: index.ranking(index.totals(), params),
            params,
            index,
        }
    }

    /// Searches with other constants. Exact too, but prunes less: term bounds are stored for the index's own.
    ///
    /// # Errors
    /// [`IndexError::Constants`] when they are out of range.
    pub fn with_params(index: Arc<Index>, params: Bm25Params) -> Result<Self, IndexError> {
        let params = params.validate()?;
        Ok(Self {
            ranking: index.ranking(index.totals(), params),
            params,
            index,
        })
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
    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers hand over a corpus they made"
    )]
    pub fn in_memory(passages: Vec<Passage>) -> Result<Self, IndexError> {
        Ok(Self::new(Arc::new(Index::in_memory(
            &passages,
            Bm25Params::default(),
        )?)))
    }

    /// The index searched.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// The constants in use.
    pub(crate) fn params(&self) -> Bm25Params {
        self.params
    }

    /// Ordinals and scores of the best `k` passages, best first, ties by external id.
    ///
    /// # Errors
    /// [`RetrieverError`] when postings cannot be read, or the query's flag was set.
    pub fn search_ids(&self, query: &Query, k: usize) -> Result<Vec<(u32, f32)>, RetrieverError> {
        self.rank(&self.ranking, query, None, k)
    }

    /// The best `k` passages with their text, on the calling thread.
    ///
    /// # Errors
    /// [`RetrieverError`] when postings or passages cannot be read.
    pub fn search_one(&self, text: &str, k: usize) -> Result<Vec<Hit>, RetrieverError> {
        self.hits(&self.search_ids(&Query::new(text), k)?)
    }

    /// As [`Self::search_one`], over the passages that pass the query's filter. The filter changes no score.
    pub(crate) fn search_query(&self, query: &Query, k: usize) -> Result<Vec<Hit>, RetrieverError> {
        self.hits(&self.search_ids(query, k)?)
    }

    /// The best `k` passages of every query, in the order of the queries: [`Retriever::search`] without the future.
    ///
    /// # Errors
    /// [`RetrieverError`] when postings or passages cannot be read.
    pub fn search_many(
        &self,
        queries: &[Query],
        k: usize,
    ) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        if queries.len() > 1 && rayon::current_num_threads() > 1 {
            queries
                .par_iter()
                .map(|query| self.search_query(query, k))
                .collect()
        } else {
            queries
                .iter()
                .map(|query| self.search_query(query, k))
                .collect()
        }
    }

    /// The best `k` passages as if this index were part of a collection with these statistics, which hold those of this
    /// index too (see [`Index::statistics`]): the lists of all parts, merged by score, then id, are the list of the whole
    /// collection. A term that `statistics` does not name has the frequency it has here.
    ///
    /// # Errors
    /// [`RetrieverError::Statistics`] when they count less than this index alone; [`RetrieverError`] when postings or
    /// passages cannot be read.
    pub(crate) fn search_with(
        &self,
        query: &Query,
        k: usize,
        statistics: &Statistics,
    ) -> Result<Vec<Hit>, RetrieverError> {
        self.check_statistics(statistics)?;
        let totals = Totals {
            docs: statistics.passages,
            tokens: statistics.tokens,
        };
        let ranking = self.index.ranking(totals, self.params);
        self.hits(&self.rank(&ranking, query, Some(&statistics.frequencies), k)?)
    }

    /// A score that no passage exceeds, whatever its text: the sum of the weights of the query's terms.
    ///
    /// # Errors
    /// [`RetrieverError::Postings`] when the dictionary cannot be read.
    pub fn ceiling(&self, query: &str) -> Result<f32, RetrieverError> {
        Ok(self.weights(query)?.iter().map(|(_, weight)| weight).sum())
    }

    /// The terms of a query with their weights in this collection.
    fn weights(&self, query: &str) -> Result<Vec<(String, f32)>, RetrieverError> {
        let frequencies = self.index.statistics(&[query])?.frequencies;
        let mut bag = Bag::default();
        bag.fill(query);
        let weights = bag.terms().map(|(term, times)| {
            let held = frequencies.get(term).copied().unwrap_or(0);
            let idf = self.ranking.scorer().idf(held);
            (term.to_owned(), times as f32 * idf)
        });
        Ok(weights.collect())
    }

    fn check_statistics(&self, statistics: &Statistics) -> Result<(), RetrieverError> {
        let own = self.index.totals();
        let what = if statistics.passages < own.docs {
            format!(
                "{} passages, this index alone has {}",
                statistics.passages, own.docs
            )
        } else if statistics.tokens < own.tokens {
            format!(
                "{} tokens, this index alone has {}",
                statistics.tokens, own.tokens
            )
        } else if let Some((term, frequency)) = statistics
            .frequencies
            .iter()
            .find(|entry| *entry.1 > statistics.passages)
        {
            format!(
                "`{term}` in {frequency} of {} passages",
                statistics.passages
            )
        } else {
            return Ok(());
        };
        Err(RetrieverError::Statistics {
            path: self.index.place().to_owned(),
            what,
        })
    }

    fn rank(
        &self,
        ranking: &Ranking,
        query: &Query,
        frequencies: Option<&BTreeMap<String, u64>>,
        k: usize,
    ) -> Result<Vec<(u32, f32)>, RetrieverError> {
        SCRATCH.with_borrow_mut(|scratch| {
            let search = || self.index.top(ranking, query, frequencies, k, scratch);
            let found = guarded(self.index.place(), search);
            if found.is_err() {
                // A search that broke off leaves half of its work behind.
                *scratch = Scratch::default();
            }
            found
        })
    }

    pub(crate) fn ranking(&self) -> &Ranking {
        &self.ranking
    }

    pub(crate) fn hits(&self, ranked: &[(u32, f32)]) -> Result<Vec<Hit>, RetrieverError> {
        let mut hits = Vec::with_capacity(ranked.len());
        for &(ordinal, score) in ranked {
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
        let (contents, analyzer) = (&manifest.contents_digest, &manifest.analyzer);
        self.params.fingerprint(contents, analyzer)
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let started = Instant::now();
        let lists = self.search_many(queries, k)?;
        let us = started.elapsed().as_micros() as u64;
        tracing::trace!(queries = queries.len(), k, us, "search");
        Ok(lists)
    }

    fn boolean(self: Arc<Self>) -> Option<Arc<dyn BooleanSearch>> {
        Some(self)
    }
}

/// Scores passages that need not be in the index, with the statistics of its collection.
impl Reranker for Bm25Retriever {
    fn identity(&self) -> String {
        format!("bm25 {}", self.fingerprint())
    }

    fn score(&self, query: &str, passages: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        let weights = self.weights(query)?;
        let mut bag = Bag::default();
        let score = |passage: &&str| {
            bag.fill(passage);
            self.ranking.scorer().score_bag(&weights, &bag)
        };
        Ok(passages.iter().map(score).collect())
    }

    fn passage(&self, hit: &Hit) -> String {
        format!("{} {}", hit.title, hit.text)
    }
}

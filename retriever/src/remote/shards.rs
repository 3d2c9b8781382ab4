//! One corpus over several servers, searched as if it were in one index.
//!
//! BM25 depends on how often a term occurs in the whole corpus and how long its passages are on average, so ranking each
//! part by itself and merging would give other scores. Here every query makes two rounds: the parts report their numbers
//! (`Statistics`), the sums go back with the query, and every part scores with them. The merged list has the
//! passages, the order and the scores of one index over everything.
//!
//! A part that does not answer fails the search: fewer passages are never passed off as the answer.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::retriever::{
    Encoder, Fingerprint, Hit, Query, Retriever, RetrieverEntry, RetrieverError, RetrieverSettings,
};
use forage_net::{Client, HttpOptions, Request, Url};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::hits::{arrange, fingerprint};
use super::search_r1::{Info, forage_http, in_batches, info};
use super::wire::{RetrieveAnswer, RetrieveRequest};
use crate::error::remote;
use crate::mode::Mode;
use crate::statistics::Statistics;

/// A part of a collection that can be ranked with the numbers of the whole.
#[async_trait]
pub(crate) trait Shard: Send + Sync {
    /// Its address, for messages.
    fn name(&self) -> &str;

    /// Names what decides its answers.
    fn fingerprint(&self) -> Fingerprint;

    /// Its own numbers for the terms of all the queries.
    ///
    /// # Errors
    /// As [`Retriever::search`].
    async fn statistics(&self, queries: &[Query]) -> Result<Statistics, RetrieverError>;

    /// The best `k` of its passages for each query, scored with `whole` in place of its own numbers. The queries have one
    /// filter.
    ///
    /// # Errors
    /// As [`Retriever::search`].
    async fn search_with(
        &self,
        queries: &[Query],
        k: usize,
        whole: &Statistics,
    ) -> Result<Vec<Vec<Hit>>, RetrieverError>;
}

/// Servers over the parts of one corpus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShardsOptions {
    /// One address per part.
    urls: Vec<String>,
    /// Most queries in one request.
    #[serde(default = "super::spec::batch_queries")]
    batch_queries: usize,
    /// Limits and credentials, the same for every server; `concurrency` counts per server.
    #[serde(default)]
    http: HttpOptions,
}

/// Several servers of this crate over the parts of one corpus.
pub(super) const ENTRY: RetrieverEntry = RetrieverEntry::new::<ShardsOptions>(
    "shards",
    "several servers of this program, each over a part of a corpus",
)
.described(|| schemars::schema_for!(ShardsOptions).into());

#[async_trait]
impl RetrieverSettings for ShardsOptions {
    async fn open(
        self: Box<Self>,
        _encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Arc<dyn Retriever>, RetrieverError> {
        Ok(Arc::new(ShardedRetriever::connect(*self).await?))
    }
}

/// BM25 over all parts together.
pub(crate) struct ShardedRetriever {
    shards: Vec<Arc<dyn Shard>>,
    batch_queries: usize,
    fingerprint: Fingerprint,
}

impl ShardedRetriever {
    /// Asks every server what it serves.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] when the servers do not make up one collection, [`RetrieverError::Remote`] when one
    /// does not answer.
    pub(super) async fn connect(options: ShardsOptions) -> Result<Self, RetrieverError> {
        let shards = options
            .urls
            .iter()
            .map(|url| ForageShard::connect(url, options.http.clone()));
        let shards = try_join_all(shards).await?;
        if let [first, others @ ..] = shards.as_slice()
            && let Some(other) = others.iter().find(|other| !first.ranks_like(other))
        {
            let what = format!(
                "`{}` and `{}` have other analyzers or BM25 constants; build their indexes alike",
                first.name(),
                other.name()
            );
            return Err(urls_setting(what));
        }
        let shards = shards
            .into_iter()
            .map(|shard| Arc::new(shard) as Arc<dyn Shard>)
            .collect();
        Self::new(shards, options.batch_queries)
    }

    /// Searches these parts; `batch_queries` is the most queries asked about at once.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] for no part, or the same one twice.
    pub(crate) fn new(
        shards: Vec<Arc<dyn Shard>>,
        batch_queries: usize,
    ) -> Result<Self, RetrieverError> {
        let batch_queries = super::spec::at_least_one("batch_queries", batch_queries)?;
        let mut named: Vec<_> = shards
            .iter()
            .map(|shard| (shard.fingerprint().0, shard.name()))
            .collect();
        if named.is_empty() {
            return Err(urls_setting(
                "is empty; give one address per part of the corpus".to_owned(),
            ));
        }
        // Sorted: the answer does not depend on the order in which the parts are named.
        named.sort_unstable();
        if let Some(pair) = named.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let what = format!(
                "`{}` and `{}` serve the same passages; name each part once",
                pair[0].1, pair[1].1
            );
            return Err(urls_setting(what));
        }
        let parts: Vec<&str> = named
            .iter()
            .map(|(fingerprint, _)| fingerprint.as_str())
            .collect();
        let fingerprint = fingerprint("shards", &parts);
        Ok(Self {
            shards,
            batch_queries,
            fingerprint,
        })
    }

    async fn ask(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let parts = try_join_all(self.shards.iter().map(|shard| shard.statistics(queries))).await?;
        let mut whole = Statistics::default();
        for part in &parts {
            whole.add(part);
        }
        let found = try_join_all(
            self.shards
                .iter()
                .map(|shard| shard.search_with(queries, k, &whole)),
        )
        .await?;
        self.merge(found, queries.len(), k)
    }

    /// `found` holds one list per query from every shard.
    fn merge(
        &self,
        found: Vec<Vec<Vec<Hit>>>,
        queries: usize,
        k: usize,
    ) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let mut merged = vec![Vec::new(); queries];
        let mut homes: Vec<HashMap<String, usize>> = vec![HashMap::new(); queries];
        for (shard, lists) in found.into_iter().enumerate() {
            for (query, hits) in lists.into_iter().enumerate() {
                for hit in &hits {
                    if let Some(other) = homes[query].insert(hit.id.clone(), shard) {
                        return Err(urls_setting(format!(
                            "passage `{}` is in `{}` and in `{}`; the parts of a corpus must not overlap",
                            hit.id,
                            self.shards[other].name(),
                            self.shards[shard].name()
                        )));
                    }
                }
                merged[query].extend(hits);
            }
        }
        for hits in &mut merged {
            arrange(hits, k);
        }
        Ok(merged)
    }
}

#[async_trait]
impl Retriever for ShardedRetriever {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        in_batches(queries, k, self.batch_queries, |batch| self.ask(batch, k)).await
    }
}

/// A server of this crate that holds a part.
struct ForageShard {
    http: Client,
    retrieve: Url,
    statistics: Url,
    info: Info,
    fingerprint: Fingerprint,
}

impl ForageShard {
    /// Asks the server what it serves.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] when it is not a server of this crate, [`RetrieverError::Remote`] when it does not answer.
    async fn connect(url: &str, options: HttpOptions) -> Result<Self, RetrieverError> {
        let http = forage_http(url, options)?;
        let info = info(&http).await?;
        let Some((fingerprint, info)) =
            info.and_then(|info| Some((info.fingerprint_of(Some(Mode::BM25))?, info)))
        else {
            let what = format!(
                "`{url}` does not say what it ranks by BM25; shards must be servers of this program"
            );
            return Err(urls_setting(what));
        };
        let (retrieve, statistics) = (http.url(&["retrieve"]), http.url(&["statistics"]));
        Ok(Self {
            http,
            retrieve,
            statistics,
            info,
            fingerprint,
        })
    }

    fn ranks_like(&self, other: &Self) -> bool {
        self.info.analyzer == other.info.analyzer && self.info.bm25 == other.info.bm25
    }
}

#[async_trait]
impl Shard for ForageShard {
    fn name(&self) -> &str {
        self.http.base()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    async fn statistics(&self, queries: &[Query]) -> Result<Statistics, RetrieverError> {
        let texts: Vec<&str> = queries.iter().map(|query| query.text.as_str()).collect();
        let request = Request::json(self.statistics.clone(), &json!({ "queries": texts }));
        self.http.call(request, Ok).await.map_err(remote)
    }

    async fn search_with(
        &self,
        queries: &[Query],
        k: usize,
        whole: &Statistics,
    ) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let mut request = RetrieveRequest::new(queries, k, Some(Mode::BM25));
        request.statistics = Some(whole);
        let take = |answer: RetrieveAnswer| answer.into_hits(queries.len(), k);
        let request = Request::json(self.retrieve.clone(), &request);
        self.http.call(request, take).await.map_err(remote)
    }
}

fn urls_setting(what: String) -> RetrieverError {
    RetrieverError::setting("urls", what)
}

#[cfg(test)]
mod tests;

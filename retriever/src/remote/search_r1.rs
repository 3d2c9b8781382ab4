//! A server that speaks the Search-R1 protocol, ours or another.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hits::fingerprint;
use super::http::{Http, HttpOptions, KeyHeader};
use super::wire::{RetrieveAnswer, RetrieveRequest};
use crate::error::{RemoteFault, RetrieverError};
use crate::index::Fingerprint;
use crate::query::{Hit, Mode, Query};
use crate::retriever::Retriever;

/// A server and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchR1Options {
    /// Address; it may end in `/retrieve`, as Search-R1's own settings have it.
    pub url: String,
    /// Most queries in one request.
    #[serde(default = "super::spec::batch_queries")]
    pub batch_queries: usize,
    /// How a server of this crate is to search. None: its own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Limits and credentials; an API key goes into the header `x-api-key`.
    #[serde(default)]
    pub http: HttpOptions,
}

/// Searches through `POST /retrieve` as Search-R1, slime, verl and `SkyRL` do.
///
/// It reads documents with or without an id (made from title and text where there is none) and with or without a score
/// (then the first of a list gets 1, the second 1/2, the third 1/3: the order is all that is known).
///
/// A server of this crate says through `GET /info` what it serves: its fingerprint becomes this one's, and filters are
/// passed on to it. Of any other server the contents cannot be known and a query with a filter is
/// [`RetrieverError::Unsupported`].
pub struct SearchR1Client {
    http: Http,
    retrieve: Url,
    batch_queries: usize,
    mode: Option<Mode>,
    fingerprint: Fingerprint,
    ours: bool,
}

impl SearchR1Client {
    /// Asks the server what it is.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] for options that cannot work, [`RetrieverError::Remote`] when nobody answers.
    pub async fn connect(options: SearchR1Options) -> Result<Self, RetrieverError> {
        let batch_queries = super::spec::at_least_one("batch_queries", options.batch_queries)?;
        let http = forage_http(&options.url, options.http)?;
        let served = match info(&http).await?.filter(|info| info.fingerprint.is_some()) {
            None => None,
            Some(info) => Some(info.fingerprint_of(options.mode).ok_or_else(|| RetrieverError::Setting {
                key: "mode".to_owned(),
                what: format!("the server has only {}", info.modes().join(", ")),
            })?),
        };
        let ours = served.is_some();
        if !ours && options.mode.is_some() {
            let what = format!("`{}` is not a server of this program and has no modes; leave it out", options.url);
            return Err(RetrieverError::Setting { key: "mode".to_owned(), what });
        }
        let fingerprint = served.unwrap_or_else(|| fingerprint("search-r1", &[http.base()]));
        let retrieve = http.url(&["retrieve"]);
        Ok(Self { http, retrieve, batch_queries, mode: options.mode, fingerprint, ours })
    }

    /// Whether the server is one of this crate.
    pub fn is_forage_server(&self) -> bool {
        self.ours
    }

    async fn ask(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let request = RetrieveRequest::new(queries, k, self.mode);
        let take = |answer: RetrieveAnswer| answer.into_hits(queries.len(), k);
        self.http.post(&self.retrieve, &request, take).await
    }
}

#[async_trait::async_trait]
impl Retriever for SearchR1Client {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        if k == 0 {
            // To the protocol 0 means the server's default.
            return Ok(vec![Vec::new(); queries.len()]);
        }
        if !self.ours && queries.iter().any(|query| !query.filter.is_empty()) {
            return Err(RetrieverError::Unsupported {
                retriever: format!("the Search-R1 server at {}", self.http.base()),
                what: "filter passages",
            });
        }
        let requests = batches(queries, self.batch_queries).map(|batch| self.ask(batch, k));
        Ok(try_join_all(requests).await?.into_iter().flatten().collect())
    }
}

/// Runs of queries with one filter, of at most `most` each: a request carries one filter.
pub(super) fn batches(queries: &[Query], most: usize) -> impl Iterator<Item = &[Query]> {
    queries.chunk_by(|one, other| one.filter == other.filter).flat_map(move |same| same.chunks(most))
}

/// What a server of this crate says of itself; any page may hold more.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Info {
    /// Of its default mode. Foreign servers have none.
    fingerprint: Option<Fingerprint>,
    /// By mode.
    #[serde(default)]
    fingerprints: BTreeMap<String, Fingerprint>,
    pub(super) analyzer: Option<Value>,
    pub(super) bm25: Option<Value>,
}

impl Info {
    /// What decides the answers in this mode; none when the server does not have it.
    pub(super) fn fingerprint_of(&self, mode: Option<Mode>) -> Option<Fingerprint> {
        match mode {
            None => self.fingerprint.clone(),
            Some(mode) => self.fingerprints.get(serde_json::to_value(mode).ok()?.as_str()?).cloned(),
        }
    }

    fn modes(&self) -> Vec<&str> {
        self.fingerprints.keys().map(String::as_str).collect()
    }
}

/// Calls to a server that speaks the protocol.
pub(super) fn forage_http(url: &str, options: HttpOptions) -> Result<Http, RetrieverError> {
    let base = url.trim_end_matches('/').trim_end_matches("/retrieve");
    Http::new(base, options, KeyHeader::Named("x-api-key"))
}

/// What `GET /info` says; none when the server has no such page.
pub(super) async fn info(http: &Http) -> Result<Option<Info>, RetrieverError> {
    match http.get(&http.url(&["info"]), Ok).await {
        Ok(info) => Ok(Some(info)),
        // Foreign servers answer 404, or 405 where every path is a POST; some answer any path with a page of text.
        Err(RetrieverError::Remote {
            fault: RemoteFault::Status { status: 404 | 405 | 501, .. } | RemoteFault::Protocol(_),
            ..
        }) => Ok(None),
        Err(other) => Err(other),
    }
}

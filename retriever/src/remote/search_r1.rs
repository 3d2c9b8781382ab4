//! A server that speaks the Search-R1 protocol, of this crate or another.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use forage_contracts::retriever::{
    Encoder, Fingerprint, Hit, Query, Retriever, RetrieverEntry, RetrieverError, RetrieverSettings,
};
use forage_net::{Client, Fault, HttpOptions, KeyHeader, NetError, Refusal, Request, Url};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hits::fingerprint;
use super::wire::{RetrieveAnswer, RetrieveRequest};
use crate::error::{remote, setting};
use crate::mode::Mode;

/// Characters of a refused query that the error shows.
const SHOWN_CHARS: usize = 80;

/// A server and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchR1Options {
    /// Address; it may end in `/retrieve`, as Search-R1's own settings have it.
    url: String,
    /// Most queries in one request.
    #[serde(default = "super::spec::batch_queries")]
    batch_queries: usize,
    /// The mode in which a server of this crate searches. None: its own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    /// Limits and credentials; an API key goes into the header `x-api-key`.
    #[serde(default)]
    http: HttpOptions,
}

/// A server that speaks the Search-R1 protocol.
pub(super) const ENTRY: RetrieverEntry = RetrieverEntry::new::<SearchR1Options>(
    "search-r1",
    "servers of the Search-R1 protocol, this program's among them",
)
.described(|| schemars::schema_for!(SearchR1Options).into());

#[async_trait]
impl RetrieverSettings for SearchR1Options {
    async fn open(
        self: Box<Self>,
        _encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Arc<dyn Retriever>, RetrieverError> {
        Ok(Arc::new(SearchR1Client::connect(*self).await?))
    }
}

/// Searches through `POST /retrieve` as Search-R1, slime, verl and `SkyRL` do.
///
/// It reads documents with or without an id (made from title and text where there is none) and with or without a score
/// (then the first of a list gets 1, the second 1/2, the third 1/3: the order is all that is known).
///
/// A server of this crate says through `GET /info` what it serves: its fingerprint becomes this one's, and filters are
/// passed on to it. Of any other server the contents cannot be known and a query with a filter is
/// [`RetrieverError::Unsupported`].
pub(super) struct SearchR1Client {
    http: Client,
    retrieve: Url,
    batch_queries: usize,
    mode: Option<Mode>,
    fingerprint: Fingerprint,
    is_forage: bool,
}

impl SearchR1Client {
    /// Asks the server what it is.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] for options that cannot work, [`RetrieverError::Remote`] when the server does not answer.
    pub(super) async fn connect(options: SearchR1Options) -> Result<Self, RetrieverError> {
        let batch_queries = super::spec::at_least_one("batch_queries", options.batch_queries)?;
        let http = forage_http(&options.url, options.http)?;
        let served = match info(&http).await?.filter(|info| info.fingerprint.is_some()) {
            None => None,
            Some(info) => Some(info.fingerprint_of(options.mode).ok_or_else(|| {
                let modes = info.modes().join(", ");
                RetrieverError::setting("mode", format!("the server has only {modes}"))
            })?),
        };
        let is_forage = served.is_some();
        if !is_forage && options.mode.is_some() {
            let what = format!(
                "`{}` is not a server of this program and has no modes; leave it out",
                options.url
            );
            return Err(RetrieverError::setting("mode", what));
        }
        let fingerprint = served.unwrap_or_else(|| fingerprint("search-r1", &[http.base()]));
        let retrieve = http.url(&["retrieve"]);
        Ok(Self {
            http,
            retrieve,
            batch_queries,
            mode: options.mode,
            fingerprint,
            is_forage,
        })
    }

    async fn ask(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let request = RetrieveRequest::new(queries, k, self.mode);
        let take = |answer: RetrieveAnswer| answer.into_hits(queries.len(), k);
        let request = Request::json(self.retrieve.clone(), &request);
        self.http.call(request, take).await.map_err(remote)
    }
}

#[async_trait]
impl Retriever for SearchR1Client {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        if k > 0 && !self.is_forage && queries.iter().any(|query| !query.filter.is_empty()) {
            return Err(RetrieverError::Unsupported {
                retriever: format!("the Search-R1 server at {}", self.http.base()),
                what: "filter passages",
            });
        }
        in_batches(queries, k, self.batch_queries, |batch| self.ask(batch, k)).await
    }
}

/// Asks for the best `k` passages of runs of queries with one filter, of at most `most` each, at the same time: a request
/// carries one filter.
pub(super) async fn in_batches<'q, F>(
    queries: &'q [Query],
    k: usize,
    most: usize,
    ask: impl Fn(&'q [Query]) -> F,
) -> Result<Vec<Vec<Hit>>, RetrieverError>
where
    F: Future<Output = Result<Vec<Vec<Hit>>, RetrieverError>>,
{
    if k == 0 {
        // To some servers 0 means their default.
        return Ok(vec![Vec::new(); queries.len()]);
    }
    let alike = queries.chunk_by(|one, other| one.filter == other.filter);
    let batches = alike.flat_map(|alike| alike.chunks(most));
    let lists = try_join_all(batches.map(|batch| ask_apart(batch, &ask))).await?;
    Ok(lists.into_iter().flatten().collect())
}

/// Asks for a batch. One that is refused is halved until the query that is to blame stands alone: the refusal is its own when
/// the server takes another query, else the server is at fault.
async fn ask_apart<'q, F>(
    batch: &'q [Query],
    ask: &impl Fn(&'q [Query]) -> F,
) -> Result<Vec<Vec<Hit>>, RetrieverError>
where
    F: Future<Output = Result<Vec<Vec<Hit>>, RetrieverError>>,
{
    /// A query that every server takes.
    static HARMLESS: LazyLock<[Query; 1]> = LazyLock::new(|| [Query::new("water")]);
    let mut open = vec![batch];
    let mut lists = Vec::with_capacity(batch.len());
    while let Some(part) = open.pop() {
        let refusal = match ask(part).await {
            Ok(found) => {
                lists.extend(found);
                continue;
            }
            Err(RetrieverError::Remote(error)) if is_refusal(error.as_ref()) => error,
            Err(error) => return Err(error),
        };
        if let [query] = part {
            // That an answer is too large is not a fault of a query: how many passages it has, and their length, is not its writer's doing.
            let is_its_own = !is_too_much(refusal.as_ref()) && ask(&*HARMLESS).await.is_ok();
            return Err(if is_its_own {
                refused(query, refusal)
            } else {
                RetrieverError::Remote(refusal)
            });
        }
        let (first, second) = part.split_at(part.len() / 2);
        open.extend([second, first]);
    }
    Ok(lists)
}

/// The refusal of one query for what it is.
pub(super) fn refused(query: &Query, refusal: Box<dyn Error + Send + Sync>) -> RetrieverError {
    RetrieverError::Refused {
        query: query.text.chars().take(SHOWN_CHARS).collect(),
        refusal,
    }
}

/// Tells whether a server says that it cannot take what was asked, in a body or in an address.
fn is_refusal(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let fault = error.downcast_ref().map(|error: &NetError| &error.fault);
    matches!(
        fault,
        Some(Fault::Status {
            status: 400 | 413 | 414 | 422 | 431,
            ..
        })
    )
}

/// Tells whether a server of this crate refuses because its answer would be too large.
fn is_too_much(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let fault = error.downcast_ref().map(|error: &NetError| &error.fault);
    let Some(Fault::Status {
        status: 413, body, ..
    }) = fault
    else {
        return false;
    };
    let cause = Refusal::AnswerTooLarge { limit: 0 }.cause();
    body.contains(cause)
}

/// The description that a server of this crate gives of itself; any page may hold more.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Info {
    /// Fingerprint of its default mode; `None` from foreign servers.
    fingerprint: Option<Fingerprint>,
    /// Fingerprints by mode.
    #[serde(default)]
    fingerprints: BTreeMap<String, Fingerprint>,
    pub(super) analyzer: Option<Value>,
    pub(super) bm25: Option<Value>,
}

impl Info {
    /// The fingerprint of the answers in this mode; none when the server does not have it.
    pub(super) fn fingerprint_of(&self, mode: Option<Mode>) -> Option<Fingerprint> {
        match mode {
            None => self.fingerprint.clone(),
            Some(mode) => self.fingerprints.get(mode.name()).cloned(),
        }
    }

    fn modes(&self) -> Vec<&str> {
        self.fingerprints.keys().map(String::as_str).collect()
    }
}

/// Calls to a server that speaks the protocol.
pub(super) fn forage_http(url: &str, options: HttpOptions) -> Result<Client, RetrieverError> {
    let url = url.trim_end_matches('/');
    // A host may be called so too.
    let base = url.strip_suffix("/retrieve");
    let base = base.filter(|base| !base.ends_with('/')).unwrap_or(url);
    Client::new(base, options, KeyHeader::Named("x-api-key")).map_err(setting)
}

/// The answer to `GET /info`; none when the server has no such page.
pub(super) async fn info(http: &Client) -> Result<Option<Info>, RetrieverError> {
    match http.call(Request::get(http.url(&["info"])), Ok).await {
        Ok(info) => Ok(Some(info)),
        // Foreign servers answer 404, or 405 where every path is a POST; some answer any path with a page of text.
        Err(NetError {
            fault:
                Fault::Status {
                    status: 404 | 405 | 501,
                    ..
                }
                | Fault::Protocol(_)
                | Fault::Unusable(_),
            ..
        }) => Ok(None),
        Err(other) => Err(remote(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_name_the_page_or_a_host_that_is_called_so() {
        for (url, base) in [
            ("http://h:8000/retrieve", "http://h:8000"),
            ("http://h:8000/wiki/retrieve/", "http://h:8000/wiki"),
            ("http://retrieve", "http://retrieve"),
            ("http://retrieve/retrieve", "http://retrieve"),
        ] {
            let http = forage_http(url, HttpOptions::default()).unwrap();
            assert_eq!(http.base(), base, "{url}");
        }
    }
}

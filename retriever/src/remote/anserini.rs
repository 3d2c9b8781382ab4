//! Anserini's REST server (1.7): Lucene's BM25 over an index on the server's disk.
//!
//! The server takes one query per request, as a bag of words, and rounds scores to four decimals; passages whose scores
//! are equal after rounding come in the order of their ids here. It knows no filters.

use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::retriever::{
    Encoder, Fingerprint, Hit, Query, Retriever, RetrieverEntry, RetrieverError, RetrieverSettings,
};
use forage_net::{Client, Fault, HttpOptions, KeyHeader, Request};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hits::{FieldNames, arrange, fingerprint, finite, id_of};
use super::search_r1::{in_batches, refused};
use crate::corpus::split_contents;
use crate::error::{remote, setting};

/// The longest address that HTTP clients send, in bytes; servers refuse shorter ones.
const ADDRESS_BYTES: usize = u16::MAX as usize - 1;

/// An index and where it is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnseriniOptions {
    /// Address.
    pub(super) url: String,
    /// Folder of the index on the server, or the name of one of Anserini's prebuilt indexes. It must store raw documents.
    pub(super) index: String,
    /// The fields of a passage's parts when raw documents are JSON objects.
    #[serde(default)]
    pub(super) fields: FieldNames,
    /// Limits and credentials.
    #[serde(default)]
    pub(super) http: HttpOptions,
}

/// Anserini's REST server.
pub(super) const ENTRY: RetrieverEntry =
    RetrieverEntry::new::<AnseriniOptions>("anserini", "Anserini's REST server")
        .described(|| schemars::schema_for!(AnseriniOptions).into());

#[async_trait]
impl RetrieverSettings for AnseriniOptions {
    async fn open(
        self: Box<Self>,
        _encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Arc<dyn Retriever>, RetrieverError> {
        Ok(Arc::new(AnseriniRetriever::new(*self)?))
    }
}

/// Searches one index of such a server.
pub(super) struct AnseriniRetriever {
    http: Client,
    options: AnseriniOptions,
}

#[derive(Deserialize)]
struct Answer {
    candidates: Vec<Candidate>,
}

#[derive(Deserialize)]
struct Candidate {
    docid: Value,
    score: f64,
    doc: Option<Value>,
}

impl AnseriniRetriever {
    /// Checks the options; nothing is sent.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] for options that cannot work.
    pub(super) fn new(options: AnseriniOptions) -> Result<Self, RetrieverError> {
        if options.index.is_empty() {
            let what = "is empty; name the folder of the index on the server";
            return Err(RetrieverError::setting("index", what));
        }
        let http = Client::new(
            &options.url,
            options.http.clone(),
            KeyHeader::Named("x-api-key"),
        )
        .map_err(setting)?;
        Ok(Self { http, options })
    }

    /// A request for each query: the server takes no batches.
    async fn ask_each(&self, batch: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        try_join_all(batch.iter().map(|query| self.ask(query, k))).await
    }

    async fn ask(&self, query: &Query, k: usize) -> Result<Vec<Hit>, RetrieverError> {
        if query.text.trim().is_empty() {
            // The server refuses it; to every other retriever it is a query without a match.
            return Ok(Vec::new());
        }
        let mut url = self.http.url(&["v1", &self.options.index, "search"]);
        url.query_pairs_mut()
            .append_pair("query", &query.text)
            .append_pair("hits", &k.to_string());
        if url.as_str().len() > ADDRESS_BYTES {
            let why = format!("in an address it takes more than {ADDRESS_BYTES} bytes");
            return Err(refused(query, why.into()));
        }
        let take = |answer: Answer| self.hits(answer, k);
        self.http
            .call(Request::get(url), take)
            .await
            .map_err(remote)
    }

    fn hits(&self, answer: Answer, k: usize) -> Result<Vec<Hit>, Fault> {
        let mut hits = Vec::with_capacity(answer.candidates.len());
        for candidate in answer.candidates {
            let id = id_of(candidate.docid).ok_or_else(|| "a `docid` is not an id".to_owned())?;
            let score = finite(candidate.score)?;
            hits.push(match candidate.doc {
                Some(Value::Object(object)) => self.options.fields.hit(object, id, score)?,
                Some(Value::String(contents)) => {
                    let (title, text) = split_contents("", contents.into());
                    Hit {
                        id,
                        score,
                        title,
                        text,
                    }
                }
                _ => return Err(format!("`{id}` comes without `doc`; index with -storeRaw").into()),
            });
        }
        arrange(&mut hits, k);
        Ok(hits)
    }
}

#[async_trait]
impl Retriever for AnseriniRetriever {
    fn fingerprint(&self) -> Fingerprint {
        fingerprint(
            "anserini",
            &[
                self.http.base(),
                &self.options.index,
                &self.options.fields.identity(),
            ],
        )
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        if k > 0 && queries.iter().any(|query| !query.filter.is_empty()) {
            let retriever = format!("the Anserini server at {}", self.http.base());
            return Err(RetrieverError::Unsupported {
                retriever,
                what: "filter passages",
            });
        }
        in_batches(queries, k, 1, |batch| self.ask_each(batch, k)).await
    }
}

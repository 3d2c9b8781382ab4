//! Answers of the multi-search API. A search that was not done whole is a fault, however many hits it found: time and memory run out
//! under load that passes, so it is asked for again, as it is where the server refuses it for the same reasons.

use forage_contracts::retriever::Hit;
use forage_net::Fault;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::remote::hits::{FieldNames, arrange, finite};

/// Types of the error of a query with too many words, each of which is a clause.
const TOO_MANY_CLAUSES: [&str; 2] = ["too_many_clauses", "too_many_nested_clauses"];
/// Status of a request that is refused for what it is.
const REFUSED: u16 = 400;

#[derive(Deserialize)]
pub(super) struct MultiAnswer {
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Response {
    status: Option<u16>,
    error: Option<Value>,
    #[serde(default)]
    timed_out: bool,
    #[serde(rename = "_shards")]
    shards: Option<Shards>,
    hits: Option<Hits>,
}

#[derive(Deserialize)]
struct Shards {
    total: u64,
    failed: u64,
    #[serde(default)]
    failures: Vec<Value>,
}

#[derive(Deserialize)]
struct Hits {
    hits: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    #[serde(rename = "_id", default)]
    id: String,
    #[serde(rename = "_score")]
    score: Option<f64>,
    #[serde(rename = "_source", default)]
    source: Map<String, Value>,
    #[serde(default)]
    sort: Vec<Value>,
}

impl MultiAnswer {
    /// One list per query.
    pub(super) fn into_hits(
        self,
        fields: &FieldNames,
        queries: usize,
        k: usize,
    ) -> Result<Vec<Vec<Hit>>, Fault> {
        if self.responses.len() != queries {
            return Err(Fault::Protocol(format!(
                "{} responses for {queries} searches",
                self.responses.len()
            )));
        }
        self.responses
            .into_iter()
            .map(|response| response.into_hits(fields, k))
            .collect()
    }
}

impl Response {
    fn into_hits(self, fields: &FieldNames, k: usize) -> Result<Vec<Hit>, Fault> {
        let status = self.status.unwrap_or(200);
        if let Some(error) = self.error {
            let status = match status {
                _ if has_too_many_words(&error) => REFUSED,
                ..300 => 500,
                status => status,
            };
            return Err(Fault::Status {
                status,
                body: brief(&error),
                retry_after: None,
            });
        }
        if status >= 300 {
            return Err(Fault::Status {
                status,
                body: "a search failed and gives no reason".to_owned(),
                retry_after: None,
            });
        }
        if self.timed_out {
            return Err(Fault::Unusable(
                "`timed_out`: the search was cut short on the server".to_owned(),
            ));
        }
        if let Some(shards) = self.shards.filter(|shards| shards.failed > 0) {
            let why = shards.failures.first().map(brief).unwrap_or_default();
            let body = format!("{} of {} shards failed: {why}", shards.failed, shards.total);
            if shards.failures.iter().any(has_too_many_words) {
                return Err(Fault::Status {
                    status: REFUSED,
                    body,
                    retry_after: None,
                });
            }
            return Err(Fault::Unusable(body));
        }
        let found = self
            .hits
            .ok_or_else(|| Fault::Protocol("a response without `hits`".to_owned()))?
            .hits;
        let mut hits = Vec::with_capacity(found.len());
        for hit in found {
            hits.push(hit.into_hit(fields)?);
        }
        arrange(&mut hits, k);
        Ok(hits)
    }
}

impl Found {
    fn into_hit(self, fields: &FieldNames) -> Result<Hit, Fault> {
        let score = self
            .score
            .or_else(|| self.sort.first().and_then(Value::as_f64));
        let score =
            score.ok_or_else(|| format!("hit `{}` has neither `_score` nor `sort`", self.id))?;
        fields.hit(self.source, self.id, finite(score)?)
    }
}

/// Tells whether a query has more words than the server takes: Elasticsearch before 8.16 and `OpenSearch` answer with 500, though the
/// query will never do better. It is told by the types of an error and of its causes; a reason may quote the query.
fn has_too_many_words(error: &Value) -> bool {
    let names = |kind: &Value| {
        let kind = kind.as_str();
        kind.is_some_and(|kind| TOO_MANY_CLAUSES.contains(&kind))
    };
    match error {
        Value::Object(parts) => {
            parts.get("type").is_some_and(names) || parts.values().any(has_too_many_words)
        }
        Value::Array(causes) => causes.iter().any(has_too_many_words),
        _ => false,
    }
}

/// The reason inside an error, that of its cause before "all shards failed", or the error. The client takes credentials out of it and then
/// shortens it.
fn brief(error: &Value) -> String {
    let error = error.pointer("/root_cause/0").unwrap_or(error);
    let reason = error.get("reason").unwrap_or(error);
    let text = reason.get("reason").unwrap_or(reason);
    let kind = error
        .get("type")
        .or_else(|| reason.get("type"))
        .and_then(Value::as_str)
        .unwrap_or("error");
    let text = text
        .as_str()
        .map_or_else(|| text.to_string(), ToOwned::to_owned);
    format!("{kind}: {text}")
}

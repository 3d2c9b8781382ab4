//! Answers of the multi-search API. A search that was not done whole is a fault, however many hits it found: time and memory run out
//! under load that passes, so it is asked for again, as it is where the server refuses it for the same reasons.

use forage_contracts::retriever::Hit;
use forage_net::Fault;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::remote::hits::{FieldNames, arrange, finite};

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
            let status = if status < 300 { 500 } else { status };
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
            return Err(Fault::Unusable(format!(
                "{} of {} shards failed: {why}",
                shards.failed, shards.total
            )));
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

/// The reason inside an error, or the error. The client takes credentials out of it and then shortens it.
fn brief(error: &Value) -> String {
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

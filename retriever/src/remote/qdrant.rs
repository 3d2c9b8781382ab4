//! Qdrant, through its REST API of version 1.10 or later.
//!
//! Query vectors come from the encoder the points were made with; each query is one search of a batch. A filter asks for
//! payload values by `match.any`; the field `id` is the point's id unless `fields.id` names a payload field. Ids are
//! unsigned integers or UUIDs in Qdrant and strings here. With Euclid or Manhattan distance Qdrant's score is a
//! distance, lower being better: such a collection is refused when it is opened.

use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::retriever::{
    Encoder, Filter, Fingerprint, Hit, Query, Retriever, RetrieverEntry, RetrieverError,
    RetrieverSettings,
};
use forage_net::{Client, Fault, HttpOptions, KeyHeader, Request, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::hits::{FieldNames, arrange, fingerprint, finite, id_of, keeps_nothing};
use super::search_r1::in_batches;
use super::vectors;
use crate::error::{remote, setting};

/// A collection and how it is searched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QdrantOptions {
    /// Address, by default on port 6333.
    pub url: String,
    /// Name of the collection.
    pub collection: String,
    /// Name of the vector, for collections with several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<String>,
    /// Compares with every point instead of walking the graph: slower, no neighbour missed.
    #[serde(default)]
    pub exact: bool,
    /// Most queries in one request.
    #[serde(default = "super::spec::batch_queries")]
    pub batch_queries: usize,
    /// The fields of a passage's parts in the payload.
    #[serde(default)]
    pub fields: FieldNames,
    /// Limits and credentials; an API key goes into the header `api-key`.
    #[serde(default)]
    pub http: HttpOptions,
}

/// Qdrant.
pub(super) const ENTRY: RetrieverEntry =
    RetrieverEntry::new::<QdrantOptions>("qdrant", "Qdrant, by vectors");

#[async_trait]
impl RetrieverSettings for QdrantOptions {
    fn needs_encoder(&self) -> bool {
        true
    }

    async fn open(
        self: Box<Self>,
        encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Arc<dyn Retriever>, RetrieverError> {
        let encoder = vectors::required(encoder, ENTRY.name)?;
        Ok(Arc::new(QdrantRetriever::connect(*self, encoder).await?))
    }
}

/// Searches one collection.
pub struct QdrantRetriever {
    http: Client,
    query: Url,
    options: QdrantOptions,
    encoder: Arc<dyn Encoder>,
}

#[derive(Deserialize)]
struct BatchAnswer {
    result: Vec<Points>,
}

#[derive(Deserialize)]
struct Points {
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    id: Value,
    score: f64,
    payload: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Collection {
    result: Value,
}

impl QdrantRetriever {
    /// Asks for the collection and checks that its vectors are the encoder's.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] for another length or a distance that cannot be used, [`RetrieverError::Remote`] when
    /// the server or the collection cannot be reached.
    pub async fn connect(
        options: QdrantOptions,
        encoder: Arc<dyn Encoder>,
    ) -> Result<Self, RetrieverError> {
        super::spec::at_least_one("batch_queries", options.batch_queries)?;
        let http = Client::new(
            &options.url,
            options.http.clone(),
            KeyHeader::Named("api-key"),
        )
        .map_err(setting)?;
        let url = http.url(&["collections", &options.collection]);
        let collection: Value = http
            .call(Request::get(url), |found: Collection| Ok(found.result))
            .await
            .map_err(remote)?;
        let vectors = &collection["config"]["params"]["vectors"];
        let parameters = match &options.vector {
            None if vectors.get("size").is_some() => vectors,
            None => {
                return Err(RetrieverError::setting(
                    "vector",
                    "is missing; the collection's vectors have names".to_owned(),
                ));
            }
            Some(name) => vectors.get(name).ok_or_else(|| {
                RetrieverError::setting(
                    "vector",
                    format!("`{name}` is not a vector of `{}`", options.collection),
                )
            })?,
        };
        let (size, distance) = (
            &parameters["size"],
            parameters["distance"].as_str().unwrap_or("unknown"),
        );
        if size.as_u64() != Some(encoder.dimension() as u64) {
            let what = format!(
                "has vectors of {size} numbers, the encoder makes {}",
                encoder.dimension()
            );
            return Err(RetrieverError::setting(
                "collection",
                format!(
                    "`{}` {what}; use the model it was made with",
                    options.collection
                ),
            ));
        }
        if !matches!(distance, "Cosine" | "Dot") {
            let what = format!(
                "`{}` uses distance {distance}; only Cosine and Dot rank upwards",
                options.collection
            );
            return Err(RetrieverError::setting("collection", what));
        }
        let query = http.url(&[
            "collections",
            &options.collection,
            "points",
            "query",
            "batch",
        ]);
        Ok(Self {
            http,
            query,
            options,
            encoder,
        })
    }

    /// The queries have one filter.
    async fn ask(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        if keeps_nothing(&queries[0].filter) {
            return Ok(vec![Vec::new(); queries.len()]);
        }
        let vectors = vectors::encode(&self.encoder, queries).await?;
        let searches: Vec<Value> = queries
            .iter()
            .zip(&vectors)
            .map(|(query, vector)| self.one(vector, &query.filter, k))
            .collect();
        let take = |answer| self.hits(answer, queries.len(), k);
        let request = Request::json(self.query.clone(), &json!({ "searches": searches }));
        self.http.call(request, take).await.map_err(remote)
    }

    fn one(&self, vector: &[f32], filter: &Filter, k: usize) -> Value {
        let mut search =
            json!({ "query": vector, "limit": k, "with_payload": self.options.fields.wanted() });
        if let Some(name) = &self.options.vector {
            search["using"] = json!(name);
        }
        if self.options.exact {
            search["params"] = json!({ "exact": true });
        }
        if !filter.is_empty() {
            let must: Vec<Value> = filter
                .0
                .iter()
                .map(|(field, values)| self.condition(field, values))
                .collect();
            search["filter"] = json!({ "must": must });
        }
        search
    }

    fn condition(&self, field: &str, values: &[String]) -> Value {
        let key = match (field, &self.options.fields.id) {
            ("id", None) => {
                let ids: Vec<Value> = values
                    .iter()
                    .map(|id| id.parse::<u64>().map_or_else(|_| json!(id), |id| json!(id)))
                    .collect();
                return json!({ "has_id": ids });
            }
            ("id", Some(name)) => name,
            ("title", _) => &self.options.fields.title,
            (other, _) => other,
        };
        json!({ "key": key, "match": { "any": values } })
    }

    fn hits(&self, answer: BatchAnswer, queries: usize, k: usize) -> Result<Vec<Vec<Hit>>, Fault> {
        if answer.result.len() != queries {
            return Err(format!("{} results for {queries} searches", answer.result.len()).into());
        }
        let mut lists = Vec::with_capacity(queries);
        for found in answer.result {
            let mut hits = Vec::with_capacity(found.points.len());
            for point in found.points {
                let id = id_of(point.id)
                    .ok_or_else(|| "a point's id is neither an integer nor a UUID".to_owned())?;
                let payload = point
                    .payload
                    .ok_or_else(|| format!("point `{id}` has no payload"))?;
                hits.push(self.options.fields.hit(payload, id, finite(point.score)?)?);
            }
            arrange(&mut hits, k);
            lists.push(hits);
        }
        Ok(lists)
    }
}

#[async_trait]
impl Retriever for QdrantRetriever {
    fn fingerprint(&self) -> Fingerprint {
        let options = &self.options;
        let how = format!(
            "vector={} exact={} encoder={}",
            options.vector.as_deref().unwrap_or(""),
            options.exact,
            self.encoder.identity()
        );
        fingerprint(
            "qdrant",
            &[
                self.http.base(),
                &options.collection,
                &how,
                &options.fields.identity(),
            ],
        )
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        in_batches(queries, k, self.options.batch_queries, |batch| {
            self.ask(batch, k)
        })
        .await
    }
}

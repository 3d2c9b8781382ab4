//! Qdrant, through its REST API of version 1.10 or later.
//!
//! Query vectors come from the encoder the points were made with; each query is one search of a batch. A filter asks for
//! payload values by `match.any`; the field `id` is the point's id unless `fields.id` names a payload field. Ids are
//! unsigned integers or UUIDs in Qdrant and strings here. With Euclid or Manhattan distance Qdrant's score is a
//! distance, lower being better: such a collection is refused when it is opened.

use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::retriever::{
    Encoder, Filter, Fingerprint, Hit, Retriever, RetrieverEntry, RetrieverError, RetrieverSettings,
};
use forage_net::{Client, Fault, HttpOptions, KeyHeader, Request, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::hits::{FieldNames, fingerprint, finite, id_of};
use super::vectors::{self, Collection, VectorRetriever, check_dimension};
use crate::error::{remote, setting};

/// A collection and how it is searched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QdrantOptions {
    /// Address, by default on port 6333.
    url: String,
    /// Name of the collection.
    collection: String,
    /// Name of the vector, for collections with several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vector: Option<String>,
    /// Compares with every point instead of walking the graph: slower, no neighbour missed.
    #[serde(default)]
    exact: bool,
    /// Most queries in one request.
    #[serde(default = "super::spec::batch_queries")]
    batch_queries: usize,
    /// The fields of a passage's parts in the payload.
    #[serde(default)]
    fields: FieldNames,
    /// Limits and credentials; an API key goes into the header `api-key`.
    #[serde(default)]
    http: HttpOptions,
}

/// Qdrant.
pub(super) const ENTRY: RetrieverEntry =
    RetrieverEntry::new::<QdrantOptions>("qdrant", "Qdrant, by vectors")
        .described(|| schemars::schema_for!(QdrantOptions).into());

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
        Ok(Arc::new(self.connect(encoder).await?))
    }
}

/// One collection.
struct Points {
    query: Url,
    options: QdrantOptions,
}

#[derive(Deserialize)]
struct BatchAnswer {
    result: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    id: Value,
    score: f64,
    payload: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Described {
    result: Value,
}

impl QdrantOptions {
    /// Asks for the collection and checks that its vectors are the encoder's.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] for another length or a distance that cannot be used, [`RetrieverError::Remote`] when
    /// the server or the collection cannot be reached.
    async fn connect(
        self,
        encoder: Arc<dyn Encoder>,
    ) -> Result<VectorRetriever<Points>, RetrieverError> {
        let options = self;
        super::spec::at_least_one("batch_queries", options.batch_queries)?;
        let http = Client::new(
            &options.url,
            options.http.clone(),
            KeyHeader::Named("api-key"),
        )
        .map_err(setting)?;
        let url = http.url(&["collections", &options.collection]);
        let collection: Value = http
            .call(Request::get(url), |found: Described| Ok(found.result))
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
        check_dimension(&options.collection, &parameters["size"], encoder.as_ref())?;
        let distance = parameters["distance"].as_str().unwrap_or("unknown");
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
        Ok(VectorRetriever {
            http,
            batch_queries: options.batch_queries,
            encoder,
            collection: Points { query, options },
        })
    }
}

impl Points {
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
        let Some(key) = self.options.fields.stored(field) else {
            let ids: Vec<Value> = values
                .iter()
                .map(|id| id.parse::<u64>().map_or_else(|_| json!(id), |id| json!(id)))
                .collect();
            return json!({ "has_id": ids });
        };
        json!({ "key": key, "match": { "any": values } })
    }
}

impl Collection for Points {
    type Answer = BatchAnswer;

    fn request(&self, vectors: &[Vec<f32>], filter: &Filter, k: usize) -> Request {
        let searches = vectors.iter().map(|vector| self.one(vector, filter, k));
        let body = json!({ "searches": searches.collect::<Vec<_>>() });
        Request::json(self.query.clone(), &body)
    }

    fn hits(&self, answer: BatchAnswer) -> Result<Vec<Vec<Hit>>, Fault> {
        let hit = |point: Point| {
            let id = id_of(point.id)
                .ok_or_else(|| "a point's id is neither an integer nor a UUID".to_owned())?;
            let payload = point
                .payload
                .ok_or_else(|| format!("point `{id}` has no payload"))?;
            self.options.fields.hit(payload, id, finite(point.score)?)
        };
        let lists = answer.result.into_iter();
        lists
            .map(|found| found.points.into_iter().map(hit).collect())
            .collect()
    }

    fn fingerprint(&self, base: &str, encoder: &str) -> Fingerprint {
        let options = &self.options;
        let how = format!(
            "vector={} exact={} encoder={encoder}",
            options.vector.as_deref().unwrap_or(""),
            options.exact,
        );
        let fields = options.fields.identity();
        fingerprint("qdrant", &[base, &options.collection, &how, &fields])
    }
}

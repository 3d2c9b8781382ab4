//! Elasticsearch 8 and 9, `OpenSearch` and Quickwit, through the multi-search API they share.
//!
//! The words of a query go into `match` or `multi_match`, which analyse text and know no syntax; `query_string` is never
//! used, because a policy's text is not a program. Filters become `bool.filter` with one `terms` per field, so the
//! fields must be of type `keyword` (in Quickwit: tokenizer `raw`). Ranking, analysis and BM25 constants are those of the
//! index; in a sharded index scores are each shard's own unless `dfs` asks for global frequencies.
//!
//! Quickwit's answers carry no id and no `_score`: name the id's field in `fields.id`; the score is read from `sort`.

mod answer;

use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::retriever::{
    Encoder, Filter, Fingerprint, Hit, Query, Retriever, RetrieverEntry, RetrieverError,
    RetrieverSettings,
};
use forage_net::{Client, HttpOptions, KeyHeader, Request, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::hits::{FieldNames, fingerprint, keeps_nothing};
use super::search_r1::in_batches;
use super::vectors;
use crate::error::{remote, setting};
use answer::MultiAnswer;

/// Candidates a shard considers for each of the `k` neighbours, and the least number of them, where none is given.
const CANDIDATES_PER_NEIGHBOUR: usize = 10;
const LEAST_CANDIDATES: usize = 100;
/// The most that Elasticsearch allows.
const MOST_CANDIDATES: usize = 10_000;

/// The way that the scores of several fields make one. Quickwit takes every one of them as `most_fields`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "Elasticsearch's names")]
pub(super) enum MatchType {
    /// The best field's.
    #[default]
    BestFields,
    /// Their sum.
    MostFields,
    /// As if the fields were one.
    CrossFields,
}

/// An index and how it is searched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ElasticOptions {
    /// Address; Quickwit's API is below `/api/v1/_elastic`.
    url: String,
    /// Name of the index or alias.
    index: String,
    /// Fields whose words are matched, `title^2` to weigh one (not in Quickwit). Ignored with `vector_field`.
    #[serde(default = "text_field")]
    search_fields: Vec<String>,
    /// The way that the scores of several fields make one.
    #[serde(default)]
    match_type: MatchType,
    /// Uses frequencies over all shards of the index (`dfs_query_then_fetch`; not in Quickwit).
    #[serde(default)]
    dfs: bool,
    /// A `dense_vector` field: search by nearest vectors instead of words (Elasticsearch only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vector_field: Option<String>,
    /// Neighbours each shard considers, up to 10,000; none: ten times `k`, at least 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    num_candidates: Option<usize>,
    /// Most queries in one request.
    #[serde(default = "super::spec::batch_queries")]
    batch_queries: usize,
    /// The fields of a passage's parts.
    #[serde(default)]
    fields: FieldNames,
    /// Limits and credentials.
    #[serde(default)]
    http: HttpOptions,
}

fn text_field() -> Vec<String> {
    vec!["text".to_owned()]
}

/// Elasticsearch, `OpenSearch` or Quickwit.
pub(super) const ENTRY: RetrieverEntry =
    RetrieverEntry::new::<ElasticOptions>("elasticsearch", "Elasticsearch, OpenSearch or Quickwit")
        .described(|| schemars::schema_for!(ElasticOptions).into());

#[async_trait]
impl RetrieverSettings for ElasticOptions {
    fn needs_encoder(&self) -> bool {
        self.vector_field.is_some()
    }

    async fn open(
        self: Box<Self>,
        encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Arc<dyn Retriever>, RetrieverError> {
        Ok(Arc::new(ElasticRetriever::new(*self, encoder)?))
    }
}

/// Searches one index of such a server.
pub(super) struct ElasticRetriever {
    http: Client,
    msearch: Url,
    options: ElasticOptions,
    /// Present when the search is by vectors.
    encoder: Option<Arc<dyn Encoder>>,
}

impl ElasticRetriever {
    /// Checks the options; nothing is sent. An encoder is needed with `vector_field` and not used without.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] for options that cannot work.
    pub(super) fn new(
        options: ElasticOptions,
        encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Self, RetrieverError> {
        if options.index.is_empty() || options.index.contains(['/', '\n']) {
            return Err(RetrieverError::setting(
                "index",
                "is not the name of an index; give one name or alias",
            ));
        }
        if options.search_fields.is_empty() {
            return Err(RetrieverError::setting(
                "search_fields",
                "is empty; name the fields whose words are matched",
            ));
        }
        super::spec::at_least_one("batch_queries", options.batch_queries)?;
        let encoder = match options.vector_field {
            Some(_) => Some(vectors::required(
                encoder,
                "elasticsearch with vector_field",
            )?),
            None => None,
        };
        let http = Client::new(&options.url, options.http.clone(), KeyHeader::Authorization)
            .map_err(setting)?;
        let msearch = http.url(&["_msearch"]);
        Ok(Self {
            http,
            msearch,
            options,
            encoder,
        })
    }

    /// The queries have one filter.
    async fn ask(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        if keeps_nothing(&queries[0].filter) {
            return Ok(vec![Vec::new(); queries.len()]);
        }
        let vectors = match &self.encoder {
            None => None,
            Some(encoder) => Some(vectors::encode(encoder, queries).await?),
        };
        let mut lines = String::new();
        for (number, query) in queries.iter().enumerate() {
            let mut body = match &vectors {
                None => json!({ "query": self.words(query), "sort": [{"_score": "desc"}] }),
                Some(vectors) => {
                    json!({ "knn": self.neighbours(&vectors[number], &query.filter, k) })
                }
            };
            body["size"] = json!(k);
            body["track_total_hits"] = json!(false);
            body["_source"] = json!(self.options.fields.wanted());
            for line in [self.header(), body] {
                lines.push_str(&line.to_string());
                lines.push('\n');
            }
        }
        let take = |answer: MultiAnswer| answer.into_hits(&self.options.fields, queries.len(), k);
        let request = Request::post(self.msearch.clone(), "application/x-ndjson", lines);
        self.http.call(request, take).await.map_err(remote)
    }

    /// The header of a search. A pattern or an alias that leads to no open index is an error; by default its answer would be empty.
    fn header(&self) -> Value {
        let mut header = json!({ "index": self.options.index, "allow_no_indices": false });
        if self.options.dfs {
            header["search_type"] = json!("dfs_query_then_fetch");
        }
        header
    }

    fn words(&self, query: &Query) -> Value {
        let fields = &self.options.search_fields;
        let words = match fields.as_slice() {
            [field] if !field.contains('^') => {
                json!({ "match": { field: { "query": query.text } } })
            }
            _ => json!({ "multi_match": {
                "query": query.text, "type": self.options.match_type, "fields": fields,
            } }),
        };
        if query.filter.is_empty() {
            return words;
        }
        json!({ "bool": { "must": [words], "filter": self.terms(&query.filter) } })
    }

    fn neighbours(&self, vector: &[f32], filter: &Filter, k: usize) -> Value {
        let candidates = self
            .options
            .num_candidates
            .unwrap_or(LEAST_CANDIDATES.max(k.saturating_mul(CANDIDATES_PER_NEIGHBOUR)));
        let mut knn = json!({
            "field": self.options.vector_field,
            "query_vector": vector,
            "k": k,
            "num_candidates": candidates.clamp(k, MOST_CANDIDATES.max(k)),
        });
        if !filter.is_empty() {
            knn["filter"] = Value::Array(self.terms(filter));
        }
        knn
    }

    /// `id` and `title` are fields of every passage, under the names they have here.
    fn terms(&self, filter: &Filter) -> Vec<Value> {
        let names = &self.options.fields;
        let term = |(field, values): (&String, &Vec<String>)| {
            let field = names.stored(field).unwrap_or("_id");
            json!({ "terms": { field: values } })
        };
        filter.0.iter().map(term).collect()
    }
}

#[async_trait]
impl Retriever for ElasticRetriever {
    fn fingerprint(&self) -> Fingerprint {
        let options = &self.options;
        let how = match (&options.vector_field, &self.encoder) {
            (Some(field), Some(encoder)) => {
                format!(
                    "knn field={field} candidates={:?} encoder={}",
                    options.num_candidates,
                    encoder.identity()
                )
            }
            _ => format!(
                "match fields={:?} type={:?} dfs={}",
                options.search_fields, options.match_type, options.dfs
            ),
        };
        fingerprint(
            "elasticsearch",
            &[
                self.http.base(),
                &options.index,
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

//! Chroma (1.x), through version 2 of its REST API.
//!
//! Query vectors come from the encoder the records were made with. Chroma answers with distances; scores are `1 - d` for
//! the spaces `cosine` and `ip`, which gives the cosine and the inner product, and `-d` for `l2`. A record's document is the
//! passage's text (or Search-R1 contents, see [`ChromaOptions::document`]), its title and id fields are in the metadata.

use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::retriever::{
    Encoder, Filter, Fingerprint, Hit, Retriever, RetrieverEntry, RetrieverError, RetrieverSettings,
};
use forage_net::{Client, Fault, HttpOptions, KeyHeader, Request, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::hits::{FieldNames, fingerprint, finite};
use super::vectors::{self, Collection, VectorRetriever, check_dimension};
use crate::error::{remote, setting};

/// The content of a record's document.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ChromaDocument {
    /// The text of the passage.
    #[default]
    Text,
    /// Title and text, as Search-R1 writes them.
    Contents,
}

/// A collection and how it is searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChromaOptions {
    /// Address, by default on port 8000.
    pub(super) url: String,
    /// Name of the collection.
    pub(super) collection: String,
    /// Tenant the collection belongs to.
    #[serde(default = "default_tenant")]
    pub(super) tenant: String,
    /// Database the collection is in.
    #[serde(default = "default_database")]
    pub(super) database: String,
    /// The content of a record's document.
    #[serde(default)]
    pub(super) document: ChromaDocument,
    /// Most queries in one request.
    #[serde(default = "super::spec::batch_queries")]
    pub(super) batch_queries: usize,
    /// The fields of a passage's parts in the metadata.
    #[serde(default)]
    pub(super) fields: FieldNames,
    /// Limits and credentials; an API key goes into the header `x-chroma-token`.
    #[serde(default)]
    pub(super) http: HttpOptions,
}

fn default_tenant() -> String {
    "default_tenant".to_owned()
}

fn default_database() -> String {
    "default_database".to_owned()
}

/// Chroma.
pub(super) const ENTRY: RetrieverEntry =
    RetrieverEntry::new::<ChromaOptions>("chroma", "Chroma, by vectors")
        .described(|| schemars::schema_for!(ChromaOptions).into());

#[async_trait]
impl RetrieverSettings for ChromaOptions {
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

/// One collection, as the server describes it.
struct Records {
    query: Url,
    /// Made when the collection is.
    id: String,
    space: String,
    options: ChromaOptions,
}

#[derive(Deserialize)]
struct Answer {
    ids: Vec<Vec<String>>,
    distances: Vec<Vec<f64>>,
    documents: Vec<Vec<Option<String>>>,
    metadatas: Vec<Vec<Option<Map<String, Value>>>>,
}

impl ChromaOptions {
    /// Looks the collection up and checks that its vectors are the encoder's.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] for vectors of another length, [`RetrieverError::Remote`] when the server or the
    /// collection cannot be reached.
    async fn connect(
        self,
        encoder: Arc<dyn Encoder>,
    ) -> Result<VectorRetriever<Records>, RetrieverError> {
        let options = self;
        super::spec::at_least_one("batch_queries", options.batch_queries)?;
        let http = Client::new(
            &options.url,
            options.http.clone(),
            KeyHeader::Named("x-chroma-token"),
        )
        .map_err(setting)?;
        let (tenant, database) = (options.tenant.as_str(), options.database.as_str());
        let above = [
            "api",
            "v2",
            "tenants",
            tenant,
            "databases",
            database,
            "collections",
        ];
        let url = http.url(&[&above[..], &[&options.collection]].concat());
        let described: Value = http.call(Request::get(url), Ok).await.map_err(remote)?;
        // A collection without records has no dimension yet.
        if described["dimension"].is_u64() {
            check_dimension(
                &options.collection,
                &described["dimension"],
                encoder.as_ref(),
            )?;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let configuration = &described["configuration_json"];
        let index = if configuration["hnsw"].is_object() {
            &configuration["hnsw"]
        } else {
            &configuration["spann"]
        };
        let (id, space) = (text(&described["id"]), text(&index["space"]));
        if !matches!(space.as_str(), "cosine" | "ip" | "l2") {
            let what = format!("`{}` has the unknown space `{space}`", options.collection);
            return Err(RetrieverError::setting("collection", what));
        }
        let query = http.url(&[&above[..], &[&id, "query"]].concat());
        Ok(VectorRetriever {
            http,
            batch_queries: options.batch_queries,
            encoder,
            collection: Records {
                query,
                id,
                space,
                options,
            },
        })
    }
}

impl Records {
    /// Metadata goes into `where`, which takes one condition or an `$and` of several; ids have a key of their own.
    fn restrict(&self, body: &mut Value, filter: &Filter) {
        let mut conditions = Vec::new();
        for (field, values) in &filter.0 {
            let Some(key) = self.options.fields.stored(field) else {
                body["ids"] = json!(values);
                continue;
            };
            conditions.push(json!({ key: { "$in": values } }));
        }
        if conditions.len() > 1 {
            body["where"] = json!({ "$and": conditions });
        } else if let Some(only) = conditions.pop() {
            body["where"] = only;
        }
    }
}

impl Collection for Records {
    type Answer = Answer;

    fn request(&self, vectors: &[Vec<f32>], filter: &Filter, k: usize) -> Request {
        let mut body = json!({
            "query_embeddings": vectors, "n_results": k, "include": ["documents", "metadatas", "distances"],
        });
        self.restrict(&mut body, filter);
        Request::json(self.query.clone(), &body)
    }

    fn hits(&self, answer: Answer) -> Result<Vec<Vec<Hit>>, Fault> {
        let Answer {
            ids,
            distances,
            documents,
            metadatas,
        } = answer;
        if [distances.len(), documents.len(), metadatas.len()] != [ids.len(); 3] {
            let what = "as many lists of ids as of distances, documents and metadata are expected";
            return Err(what.to_owned().into());
        }
        let mut lists = Vec::with_capacity(ids.len());
        for (((ids, distances), documents), metadatas) in
            ids.into_iter().zip(distances).zip(documents).zip(metadatas)
        {
            if [distances.len(), documents.len(), metadatas.len()] != [ids.len(); 3] {
                return Err("the lists of one query have different lengths"
                    .to_owned()
                    .into());
            }
            let mut hits = Vec::with_capacity(ids.len());
            for (((id, distance), document), metadata) in
                ids.into_iter().zip(distances).zip(documents).zip(metadatas)
            {
                let nearness = if self.space == "l2" {
                    -distance
                } else {
                    1.0 - distance
                };
                let mut stored = metadata.unwrap_or_default();
                if let Some(document) = document {
                    let field = match self.options.document {
                        ChromaDocument::Text => &self.options.fields.text,
                        ChromaDocument::Contents => &self.options.fields.contents,
                    };
                    stored.insert(field.clone(), Value::String(document));
                }
                hits.push(self.options.fields.hit(stored, id, finite(nearness)?)?);
            }
            lists.push(hits);
        }
        Ok(lists)
    }

    fn fingerprint(&self, base: &str, encoder: &str) -> Fingerprint {
        let options = &self.options;
        let how = format!("document={:?} encoder={encoder}", options.document);
        let fields = options.fields.identity();
        fingerprint("chroma", &[base, &self.id, &how, &fields])
    }
}

//! The door for retrievers that bring their own passages: one entry per kind, in one list.

use std::borrow::Cow;
use std::sync::Arc;

use forage_contracts::Registry;
use forage_contracts::retriever::{
    Encoder, Retriever, RetrieverEntry, RetrieverError, RetrieverSettings,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::{anserini, chroma, elastic, qdrant, search_r1, shards};
use crate::choice::{Choice, Listed};

static KINDS: Registry<RetrieverEntry> = Registry::new(&[
    search_r1::ENTRY,
    shards::ENTRY,
    elastic::ENTRY,
    qdrant::ENTRY,
    chroma::ENTRY,
    anserini::ENTRY,
]);

impl Listed for RetrieverEntry {
    fn registry() -> &'static Registry<Self> {
        &KINDS
    }
}

/// A retriever as written in a file: `kind` names an entry, the other keys are its settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RemoteSpec {
    kind: Choice<RetrieverEntry>,
    #[serde(flatten)]
    settings: Map<String, Value>,
}

impl<'de> Deserialize<'de> for RemoteSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut settings = Map::deserialize(deserializer)?;
        let kind = settings.remove("kind");
        let kind = kind.ok_or_else(|| D::Error::missing_field("kind"))?;
        let spec = Self {
            kind: Choice::deserialize(kind).map_err(D::Error::custom)?,
            settings,
        };
        // Settings that cannot be read are an error of the file, not of the search.
        spec.read().map_err(D::Error::custom)?;
        Ok(spec)
    }
}

impl JsonSchema for RemoteSpec {
    fn schema_name() -> Cow<'static, str> {
        "RemoteSpec".into()
    }

    /// `kind`, and by its value the keys of that kind, `title` being its name.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let settings = |entry: &RetrieverEntry| {
            let mut settings = entry.schema?();
            let properties = settings.get_mut("properties")?.as_object_mut()?;
            properties.insert("kind".to_owned(), true.into());
            Some(json!({
                "title": entry.name,
                "if": {"properties": {"kind": {"const": entry.name}}},
                "then": settings,
            }))
        };
        let kinds: Vec<Value> = KINDS.iter().filter_map(settings).collect();
        let mut kind = generator.subschema_for::<Choice<RetrieverEntry>>();
        kind.insert("description".to_owned(), "The kind of server.".into());
        json_schema!({
            "type": "object",
            "properties": {"kind": kind},
            "required": ["kind"],
            "allOf": kinds,
        })
    }
}

impl RemoteSpec {
    /// A server of this crate, or another one of its protocol, by its address.
    ///
    /// # Errors
    /// When the settings of this kind do not take the address.
    pub fn at(url: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_value(json!({"kind": search_r1::ENTRY.name, "url": url}))
    }

    fn read(&self) -> Result<Box<dyn RetrieverSettings>, serde_json::Error> {
        (self.kind.read)(self.settings.clone().into())
    }

    /// Tells whether searches need query vectors, and so an encoder.
    pub fn needs_encoder(&self) -> bool {
        self.read().is_ok_and(|settings| settings.needs_encoder())
    }

    /// Makes the retriever. The encoder is used where [`RemoteSpec::needs_encoder`] says so and must be the one the stored
    /// vectors were made with.
    ///
    /// # Errors
    /// As [`RetrieverSettings::open`].
    pub async fn open(
        self,
        encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Arc<dyn Retriever>, RetrieverError> {
        let unread = |cause: serde_json::Error| RetrieverError::setting("kind", cause.to_string());
        let settings = self.read().map_err(unread)?;
        settings.open(encoder).await
    }
}

/// Queries per request where nothing else is written.
pub(super) fn batch_queries() -> usize {
    64
}

/// A count that must not be 0.
pub(super) fn at_least_one(key: &str, count: usize) -> Result<usize, RetrieverError> {
    if count == 0 {
        return Err(RetrieverError::setting(key, "is 0; use at least 1"));
    }
    Ok(count)
}

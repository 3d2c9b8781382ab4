//! How users name a remote retriever.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::anserini::{AnseriniOptions, AnseriniRetriever};
use super::chroma::{ChromaOptions, ChromaRetriever};
use super::elastic::{ElasticOptions, ElasticRetriever};
use super::qdrant::{QdrantOptions, QdrantRetriever};
use super::search_r1::{SearchR1Client, SearchR1Options};
use super::shards::{ShardedRetriever, ShardsOptions};
use super::vectors;
use crate::dense::encoder::Encoder;
use crate::error::RetrieverError;
use crate::retriever::Retriever;

/// A remote retriever as written in a file: `kind` says which, the other keys are that kind's options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RemoteSpec {
    /// A server that speaks the Search-R1 protocol.
    SearchR1(SearchR1Options),
    /// Several servers of this crate over the parts of one corpus.
    Shards(ShardsOptions),
    /// Elasticsearch, `OpenSearch` or Quickwit.
    Elasticsearch(ElasticOptions),
    /// Qdrant.
    Qdrant(QdrantOptions),
    /// Chroma.
    Chroma(ChromaOptions),
    /// Anserini's REST server.
    Anserini(AnseriniOptions),
}

impl RemoteSpec {
    /// Whether searches need query vectors, and so an encoder.
    pub fn needs_encoder(&self) -> bool {
        match self {
            Self::Qdrant(_) | Self::Chroma(_) => true,
            Self::Elasticsearch(options) => options.vector_field.is_some(),
            Self::SearchR1(_) | Self::Shards(_) | Self::Anserini(_) => false,
        }
    }

    /// Connects. The encoder is used where [`RemoteSpec::needs_encoder`] says so and must be the one the stored vectors
    /// were made with. Needs a Tokio runtime with time and network, as all searches do.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] for options that cannot work or an encoder that is missing, [`RetrieverError::Remote`]
    /// when a server does not answer.
    pub async fn open(self, encoder: Option<Arc<dyn Encoder>>) -> Result<Arc<dyn Retriever>, RetrieverError> {
        Ok(match self {
            Self::SearchR1(options) => Arc::new(SearchR1Client::connect(options).await?),
            Self::Shards(options) => Arc::new(ShardedRetriever::connect(options).await?),
            Self::Elasticsearch(options) => Arc::new(ElasticRetriever::new(options, encoder)?),
            Self::Qdrant(options) => {
                Arc::new(QdrantRetriever::connect(options, vectors::required(encoder, "qdrant")?).await?)
            }
            Self::Chroma(options) => {
                Arc::new(ChromaRetriever::connect(options, vectors::required(encoder, "chroma")?).await?)
            }
            Self::Anserini(options) => Arc::new(AnseriniRetriever::new(options)?),
        })
    }
}

/// Queries per request where nothing else is written.
pub(super) fn batch_queries() -> usize {
    64
}

/// A count that must not be 0.
pub(super) fn at_least_one(key: &str, count: usize) -> Result<usize, RetrieverError> {
    if count == 0 {
        return Err(RetrieverError::Setting { key: key.to_owned(), what: "is 0; use at least 1".to_owned() });
    }
    Ok(count)
}

//! Retrievers that live elsewhere, each a [`Retriever`](crate::Retriever): for corpora that outgrow one machine, and
//! for search engines that are already there.
//!
//! | kind | server | what is asked |
//! |---|---|---|
//! | `search-r1` | Search-R1's retrieval servers, and the one of this crate | `POST /retrieve` |
//! | `shards` | several servers of this crate, each over a part of a corpus | `POST /statistics`, `POST /retrieve` |
//! | `elasticsearch` | Elasticsearch 8 and 9, `OpenSearch`, Quickwit | `POST /_msearch` |
//! | `qdrant` | Qdrant | `POST /collections/{name}/points/query/batch` |
//! | `chroma` | Chroma | `POST .../collections/{id}/query` |
//! | `anserini` | Anserini's REST server | `GET /v1/{index}/search` |
//!
//! A server that cannot be reached, refuses, or answers with something else than its protocol is a
//! [`RetrieverError::Remote`](crate::RetrieverError::Remote) after the retries that [`HttpOptions`](forage_net::HttpOptions) allows: never an empty
//! list, never fewer lists than queries. Hits are put into the order of the [`Retriever`](crate::Retriever) contract
//! (score descending, then id ascending), which changes nothing where the server already sent that order. At the cut after
//! `k` hits the server decides between equal scores; only `ShardedRetriever` and a server of this crate decide by id.
//!
//! The fingerprint of a foreign server names its address, its kind and how it is asked. Whether its contents changed
//! cannot be known from here.

mod anserini;
mod chroma;
mod elastic;
mod hits;
mod qdrant;
mod search_r1;
pub(crate) mod shards;
mod spec;
mod vectors;
mod wire;

pub use spec::RemoteSpec;

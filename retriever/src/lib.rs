//! Search over passages: corpus readers, an on-disk index, BM25 that ranks exactly as Lucene does, boolean, dense and hybrid
//! search, a server and clients.
//!
//! - [`CorpusReader`] streams BEIR, Search-R1, FlashRAG and wiki-page corpora, JSON lines or parquet, as [`Passage`]s.
//! - [`Index::build`] writes an index folder atomically; [`Index::open`] maps it in milliseconds; [`Index::add`] and
//!   [`Index::merge`] change it, a generation at a time; [`Index::verify`] finds damage.
//! - [`Retriever`] is what environments search through; [`Bm25Retriever`] implements it over a folder or in memory.
//! - [`dense`] searches by vectors; [`HybridRetriever`], [`RerankedRetriever`] and [`CachedRetriever`] wrap retrievers.
//! - [`remote`] searches elsewhere; [`server`] answers others.
//! - [`read_queries`], [`read_qrels`], [`write_run`] are for evaluation.
//!
//! It knows nothing of reinforcement learning, models or rewards. Query text is a bag of words unless
//! boolean mode is asked for.
//!
//! ```
//! use forage_retriever::{Bm25Retriever, Passage};
//!
//! let retriever = Bm25Retriever::in_memory(vec![
//!     Passage::new("d1", "Tides", "The moon raises tides."),
//!     Passage::new("d2", "Wind", "The sun drives the wind."),
//! ])?;
//! let hits = retriever.search_one("What raises the tide?", 3)?;
//! assert_eq!(hits[0].id, "d1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod analyzer;
mod beir;
mod bm25;
mod boolean;
mod cache;
mod corpus;
pub mod dense;
mod error;
pub mod exchange;
mod hybrid;
mod index;
mod lines;
mod none;
mod porter;
mod query;
mod record;
pub mod remote;
mod rerank;
mod retriever;
mod rows;
pub mod server;
mod snippet;
mod tape;
mod trec;

pub use analyzer::{ANALYZER_ID, analyze};
pub use beir::{QueryRecord, read_queries};
pub use bm25::Bm25Params;
pub use boolean::{
    BooleanAnswer, BooleanQuery, BooleanRetriever, BooleanSearch, ParseIssue, QueryShape, parse_boolean,
};
pub use cache::{CacheStats, CachedRetriever};
pub use corpus::{CorpusFormat, CorpusHasher, CorpusReader, Passage, corpus_digest};
pub use dense::encoder::{Encoder, TextKind};
pub use error::{IndexError, ReadError, RemoteFault, RetrieverError};
pub use hybrid::{Fusion, HybridRetriever};
pub use index::{
    AddRequest, BuildProgress, BuildRequest, BuildStage, BuildSummary, Counts, Document, Duplicates, Existing,
    FileRecord, Fingerprint, Index, Manifest, SegmentManifest, Source,
};
pub use none::NoPassages;
pub use query::{Filter, Hit, Mode, Query, Statistics};
pub use rerank::{RerankedRetriever, Reranker};
pub use retriever::{Bm25Retriever, Retriever};
pub use rows::{JsonRow, JsonRows};
pub use snippet::{Snippet, snippet};
pub use tape::{RecordingRetriever, Tape, TapeError, TapeWriter};
pub use trec::{Qrels, read_qrels, write_run};

//! Search over passages: corpus readers, an on-disk index, and BM25 that ranks exactly as Lucene does.
//!
//! - [`CorpusReader`] streams BEIR, Search-R1 and wiki-page corpora, plain or gzip, as [`Passage`]s.
//! - [`Index::build`] writes an index folder atomically; [`Index::open`] maps it in milliseconds.
//! - [`Retriever`] is what environments search through; [`Bm25Retriever`] implements it over a folder or in memory.
//! - [`read_queries`], [`read_qrels`], [`write_run`] are for evaluation.
//!
//! It knows nothing of reinforcement learning, models or rewards. Query text is never parsed as a query language.
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
mod corpus;
mod error;
mod index;
mod lines;
mod porter;
mod retriever;
mod trec;

pub use analyzer::{ANALYZER_ID, analyze};
pub use beir::{QueryRecord, read_queries};
pub use bm25::Bm25Params;
pub use corpus::{CorpusFormat, CorpusHasher, CorpusReader, Passage, corpus_digest};
pub use error::{IndexError, ReadError, RetrieverError};
pub use index::{
    BuildProgress, BuildRequest, BuildStage, BuildSummary, Counts, Document, Existing, Fingerprint, Index, Manifest,
};
pub use retriever::{Bm25Retriever, Hit, Query, Retriever};
pub use trec::{Qrels, read_qrels, write_run};

//! Search over passages: corpus readers, an on-disk index, BM25 that ranks exactly as Lucene does, boolean, dense and hybrid
//! search, a server and clients.
//!
//! - [`CorpusReader`] streams BEIR, Search-R1, FlashRAG and wiki-page corpora, JSON lines or parquet, as [`Passage`]s.
//! - [`Index::build`] writes an index folder atomically; [`Index::open`] maps it in milliseconds; [`Index::add`] and
//!   [`Index::merge`] change it, a generation at a time; [`Index::verify`] finds damage.
//! - [`Retriever`] is what environments search through; [`Bm25Retriever`] implements it over a folder or in memory.
//! - `dense`: search by vectors ([`Index::embed`]); [`RerankedRetriever`] and [`CachedRetriever`] wrap retrievers.
//! - [`Mode`], [`CorpusFormat`] and [`RemoteSpec`] choose among registered entries by name ([`Registry`]).
//! - [`RemoteSpec`] searches elsewhere; [`server`] answers others.
//! - [`QueryRecord`], [`read_qrels`] are for evaluation.
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
mod bm25;
mod boolean;
mod cache;
mod cancel;
mod choice;
mod corpus;
mod dense;
mod error;
mod hybrid;
mod index;
mod mode;
mod none;
mod panics;
mod porter;
mod qrels;
mod queries;
mod remote;
mod rerank;
mod retriever;
mod rows;
pub mod server;
mod snippet;
mod statistics;
mod tape;
mod top;

pub use analyzer::analyze;
pub use bm25::Bm25Params;
pub use boolean::QueryShape;
pub use cache::CachedRetriever;
pub use choice::{Choice, Listed};
pub use corpus::{CorpusFormat, CorpusHasher, CorpusReader};
pub use dense::{
    EmbedSummary, VectorFile, VectorIndex, VectorIndexKind, VectorIndexRequest, VectorRows,
    VectorSource,
};
pub use error::{IndexError, ReadError};
pub use forage_contracts::retriever::{
    BooleanAnswer, BooleanSearch, CancelFlag, Encoder, Filter, Fingerprint, Hit, ParseIssue, Query,
    Retriever, RetrieverError, TextKind,
};
pub use forage_contracts::{
    Cell, CorpusEntry, Entry, EntryError, Passage, Registry, Row, RowFault,
};
pub use index::{AddRequest, BuildRequest, BuildSummary, Document, Index};
pub use mode::{Mode, ModeEntry, Searched};
pub use none::NoPassages;
pub use qrels::read_qrels;
pub use queries::QueryRecord;
pub use remote::RemoteSpec;
pub use rerank::{RerankedRetriever, Reranker};
pub use retriever::Bm25Retriever;
pub use rows::RowReader;
pub use snippet::Snippet;
pub use tape::{Tape, TapeError};

// Tests inside of the crate name it as its users do.
#[cfg(test)]
extern crate self as forage_retriever;
#[cfg(test)]
mod tests;

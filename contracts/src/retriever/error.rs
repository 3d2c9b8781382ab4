//! Failures of searches.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Failures of answering a query.
///
/// A fault of the infrastructure, never of the policy that asked: an episode that meets one has no reward. It must not be
/// graded as a wrong answer or scored zero. The one exception is a refusal ([`Self::is_refusal`]): a backend that answers
/// other queries will not take this one for what it is, so an environment shows the message to the policy as it would
/// any bad call, and the episode goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetrieverError {
    /// The index could not be opened, or a stored passage is damaged.
    #[error(transparent)]
    Index(Box<dyn Error + Send + Sync>),
    /// Postings could not be read.
    #[error("read postings of `{}`; the index may be damaged or its disk unreachable", path.display())]
    Postings {
        /// The index folder, or `memory`.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Statistics that cannot be those of a collection this index is part of.
    #[error("statistics of the collection do not fit index `{}`: {what}; gather them again from all shards", path.display())]
    Statistics {
        /// The index folder, or `memory`.
        path: PathBuf,
        /// The mismatch.
        what: String,
    },
    /// The backend has no way to do what was asked.
    #[error("{retriever} cannot {what}; use another mode or backend")]
    Unsupported {
        /// The backend.
        retriever: String,
        /// The request: `filter by field`, `rank with given statistics`.
        what: &'static str,
    },
    /// The encoder or the reranker failed.
    #[error("{model} failed: {what}; check the model folder and free memory")]
    Model {
        /// Name of the model.
        model: String,
        /// The failure.
        what: String,
    },
    /// Vectors that cannot be searched.
    #[error("vectors of `{}`: {what}", path.display())]
    Vectors {
        /// File or index folder, or `memory`.
        path: PathBuf,
        /// The fault and the fix.
        what: String,
    },
    /// A remote backend did not answer as it should, retries included.
    #[error("{0}; check that the server runs and what it logs")]
    Remote(Box<dyn Error + Send + Sync>),
    /// A remote backend refuses one query for what it is: too long, too many clauses, characters it cannot take. It
    /// answers other queries, and would refuse this one again.
    #[error(
        "the search server refuses the query `{query}`: {refusal}; write it shorter or in other words"
    )]
    Refused {
        /// The beginning of the query.
        query: String,
        /// The answer of the server.
        #[source]
        refusal: Box<dyn Error + Send + Sync>,
    },
    /// A remote backend is set up in a way that cannot work.
    #[error("remote retriever, `{key}`: {what}")]
    Setting {
        /// The key as written in the file.
        key: String,
        /// The fault and the fix.
        what: String,
    },
    /// There is nothing to search.
    #[error(
        "there are no passages to search; give the run a corpus, an index or a remote retriever"
    )]
    NoPassages,
    /// A tape answers only what was recorded.
    #[error("`{}` has no answer to `{query}` (k = {k}); record the tools again, or replay with the passages at hand", path.display())]
    NotRecorded {
        /// The tape.
        path: PathBuf,
        /// The query.
        query: String,
        /// Hits asked for.
        k: usize,
    },
    /// A tape cannot be written.
    #[error(transparent)]
    Tape(Box<dyn Error + Send + Sync>),
    /// The work could not be finished because the program is shutting down or a worker is gone.
    #[error("search was stopped before it was done; ask again")]
    Stopped,
    /// The search's [`super::CancelFlag`] was set before it was done.
    #[error(
        "search was cancelled: its deadline passed or nobody waits for it; ask for less or allow more time"
    )]
    Cancelled,
    /// A search that several callers waited for failed; each of them gets its failure.
    #[error(transparent)]
    Shared(#[from] Arc<RetrieverError>),
}

impl RetrieverError {
    /// A setting that cannot work.
    pub fn setting(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Setting {
            key: key.into(),
            what: what.into(),
        }
    }

    /// Tells whether the query itself was refused, which is the doing of whoever wrote it.
    pub fn is_refusal(&self) -> bool {
        matches!(self.root(), Self::Refused { .. })
    }

    /// The failure itself, whether or not several callers share it.
    pub fn root(&self) -> &Self {
        match self {
            Self::Shared(failure) => failure.root(),
            failure => failure,
        }
    }
}

//! The retrieval server: the HTTP protocol of Search-R1's Python server and of the clients written for it, over any
//! [`Retriever`].
//!
//! | route | for |
//! |---|---|
//! | `POST /retrieve` | Search-R1, slime, verl, `SkyRL`, torchtitan, minisearch-r1, and the options of `request` |
//! | `POST /search`, `POST /batch_search` | the dialect of `ReSearch` and `FlashRAG` |
//! | `POST /rerank` | Search-R1's reranking server |
//! | `POST /statistics` | fronts of shards: what exact global BM25 needs to know of this part |
//! | `GET /doc/{id}` | one passage |
//! | `GET /healthz`, `/readyz`, `/info`, `/metrics` | whoever runs it |
//! | `GET /` | people |
//!
//! **Scheduling.** The runtime that calls [`Services::serve`] only moves bytes: it accepts, parses small bodies, answers health
//! checks. Searches run on a runtime of their own with one worker per core, in jobs of a few queries each. A request has
//! at most as many jobs queued as there are workers and hands in the next one when one is done, behind everybody
//! else's: so a batch of thousands and a single query advance in turn, health checks never wait for a search, and
//! retrievers that wait (for an encoder's batch, for a remote server) hold no worker while they do. Requests beyond
//! [`BaseConfig::queue`] are refused at once with 503, which bounds the waiting time of those admitted; what answers may
//! take in memory is bounded by bytes ([`ServerConfig::max_answer_bytes`]).

mod answer;
mod app;
mod fault;
mod jobs;
mod metrics;
mod plan;
mod request;
mod routes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forage_contracts::retriever::Retriever;
pub use forage_net::{BaseConfig, ServeError, Summary};
use tokio::net::TcpListener;

use crate::cache::CachedRetriever;
use crate::mode::Mode;
use crate::rerank::Reranker;
use crate::retriever::Bm25Retriever;
use app::App;
use request::{Limits, RerankRequest, RetrieveRequest, parse_statistics};

/// Reads a body as every route does and holds what was read to what requests may ask for: this is what fuzzing calls.
///
/// # Panics
/// When a request that was read asks for more, or a refusal names no fault or too many.
#[doc(hidden)]
pub fn read_body(body: &[u8]) {
    const LIMITS: Limits = Limits {
        topk: 3,
        max_topk: 1000,
        max_queries: 64,
        max_query_bytes: 4096,
    };
    match RetrieveRequest::parse(body, &LIMITS) {
        Ok(request) => {
            assert!(request.k >= 1 && request.k <= LIMITS.max_topk);
            assert!(request.queries.len() <= LIMITS.max_queries);
            assert!(request.candidates.is_none_or(|count| count >= request.k));
        }
        Err(problems) => assert!(!problems.is_empty() && problems.len() <= 20),
    }
    for batch in [false, true] {
        if let Ok(request) = RetrieveRequest::parse_flashrag(body, &LIMITS, batch) {
            assert!(request.k >= 1 && request.k <= LIMITS.max_topk);
            assert!(request.queries.len() <= LIMITS.max_queries);
        }
    }
    if let Ok(request) = RerankRequest::parse(body, &LIMITS) {
        assert_eq!(request.queries.len(), request.documents.len());
        assert!(request.queries.len() <= LIMITS.max_queries);
        let most = request.documents.iter().map(Vec::len).max();
        assert!(most.is_none_or(|most| most <= LIMITS.max_topk));
    }
    if let Ok(texts) = parse_statistics(body, &LIMITS) {
        assert!(texts.len() <= LIMITS.max_queries);
    }
}

/// The retrievers that are served.
pub struct Services {
    /// The retriever of each mode that requests may name.
    pub retrievers: BTreeMap<Mode, Arc<dyn Retriever>>,
    /// The mode of requests that name none.
    pub default_mode: Mode,
    /// The index itself: single passages, shard searches, statistics for fronts, and what `/info` says of the corpus.
    pub bm25: Option<Arc<Bm25Retriever>>,
    /// Scores hits anew for requests with `topk_rerank`, and for `/rerank`.
    pub reranker: Option<Arc<dyn Reranker>>,
    /// The caches among the retrievers, whose counters `/metrics` adds up.
    pub caches: Vec<Arc<CachedRetriever>>,
}

impl Services {
    /// Serves an index by BM25.
    pub fn of_index(bm25: Arc<Bm25Retriever>) -> Self {
        let retriever: Arc<dyn Retriever> = bm25.clone();
        Self {
            retrievers: BTreeMap::from([(Mode::BM25, retriever)]),
            default_mode: Mode::BM25,
            bm25: Some(bm25),
            reranker: None,
            caches: Vec::new(),
        }
    }

    /// Serves any one retriever under a mode, without an index at hand: a front of shards, for instance.
    pub fn of_retriever(mode: Mode, retriever: Arc<dyn Retriever>) -> Self {
        let retrievers = BTreeMap::from([(mode, retriever)]);
        Self {
            retrievers,
            default_mode: mode,
            bm25: None,
            reranker: None,
            caches: Vec::new(),
        }
    }

    /// Modes that requests may name.
    pub fn modes(&self) -> Vec<Mode> {
        Mode::all().filter(|mode| self.has(*mode)).collect()
    }

    fn has(&self, mode: Mode) -> bool {
        self.retrievers.contains_key(&mode) || (mode == Mode::BOOLEAN && self.bm25.is_some())
    }
}

/// Limits and habits of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Passages per query when a request names no number.
    pub topk: usize,
    /// Most passages per query.
    pub max_topk: usize,
    /// Most queries in one request.
    pub max_queries: usize,
    /// Most bytes in one query text.
    pub max_query_bytes: usize,
    /// Most bytes in one answer, below 4 GiB; all answers being made and sent together take up to four times as much memory.
    pub max_answer_bytes: usize,
    /// Threads that search; one per core by default.
    pub workers: usize,
    /// Time from admission to answer, after which a request is given up with 503. Below the 30 s that clients wait.
    pub deadline: Duration,
    /// The limits that every server has; the page is open to all too.
    pub base: BaseConfig,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            topk: 3,
            max_topk: 1000,
            max_queries: 16_384,
            max_query_bytes: forage_contracts::retriever::Query::MAX_BYTES,
            // The largest batch with three passages each of Search-R1's corpus takes 80 MB.
            max_answer_bytes: 128 * 1024 * 1024,
            workers: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            deadline: Duration::from_secs(25),
            // Its queue is twice the 256 searches slime keeps in flight.
            base: BaseConfig::default(),
        }
    }
}

impl Services {
    /// Serves until `shutdown` completes, then drains: `/readyz` and new work answer 503, requests in flight finish, for at
    /// most [`BaseConfig::drain`], connections are closed.
    ///
    /// Call it on a runtime that does no heavy work of its own.
    ///
    /// # Errors
    /// [`ServeError`] when the configuration is contradictory, threads cannot be started, or accepting fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        config: ServerConfig,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Summary, ServeError> {
        check(&config, &self)?;
        let app = Arc::new(App::new(config, self)?);
        forage_net::serve(listener, &app, routes::router(&app), shutdown).await
    }
}

fn check(config: &ServerConfig, services: &Services) -> Result<(), ServeError> {
    let wrong = |what: &str| Err(ServeError::Config(what.to_owned()));
    if !services.has(services.default_mode) {
        return wrong(
            "the default mode has no retriever; build the index for it or name another mode",
        );
    }
    if config.workers == 0 {
        return wrong("workers must be at least 1");
    }
    // The memory of one answer is counted in 32 bits.
    if config.max_answer_bytes == 0 || config.max_answer_bytes > u32::MAX as usize {
        return wrong("max_answer_bytes must be at least 1 and below 4 GiB");
    }
    if config.topk == 0 || config.topk > config.max_topk {
        return wrong("topk must be at least 1 and at most the highest topk a request may ask for");
    }
    Ok(())
}

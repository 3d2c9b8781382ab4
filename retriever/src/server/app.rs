//! The state that all requests share.

use std::sync::Arc;

use axum::body::Bytes;
use forage_net::{Base, Room, ServeError, Service};
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::jobs::Pool;
use super::metrics::{BUCKETS, Metrics};
use super::request::Limits;
use super::{ServerConfig, Services};

pub(super) struct App {
    pub(super) config: ServerConfig,
    pub(super) services: Services,
    pub(super) limits: Limits,
    pub(super) pool: Pool,
    /// The memory for answers; each has a part of it.
    pub(super) room: Room,
    pub(super) metrics: Metrics,
    /// The answer to `/info`.
    pub(super) info: Bytes,
    pub(super) base: Arc<Base>,
}

impl App {
    pub(super) fn new(config: ServerConfig, services: Services) -> Result<Self, ServeError> {
        let passages = services.bm25.as_ref().map(|bm25| bm25.index().len() as u64);
        let (base, metrics) = Base::new(
            config.base.clone(),
            "forage_retriever",
            &BUCKETS,
            |registry| Metrics::register(registry, passages, services.caches.clone()),
        );
        Ok(Self {
            base,
            limits: Limits {
                topk: config.topk,
                max_topk: config.max_topk,
                max_queries: config.max_queries,
                max_query_bytes: config.max_query_bytes,
            },
            room: Room::new(config.max_answer_bytes),
            pool: Pool::new(config.workers, &metrics)?,
            metrics,
            info: info(&config, &services).to_string().into(),
            config,
            services,
        })
    }
}

impl Service for App {
    type Fault = Fault;
    const OPENAPI: Option<&'static str> = Some(include_str!("openapi.json"));

    fn base(&self) -> &Arc<Base> {
        &self.base
    }

    fn give_up(&self) {
        self.pool.stop();
    }
}

/// A description of the server, which does not change while it runs.
fn info(config: &ServerConfig, services: &Services) -> Value {
    let fingerprints: Map<String, Value> = services
        .retrievers
        .iter()
        .map(|(mode, retriever)| (name(&json!(mode)), json!(retriever.fingerprint())))
        .collect();
    let default = services.retrievers.get(&services.default_mode);
    let fingerprint = default.map(|retriever| retriever.fingerprint());
    let mut info = json!({
        "name": "forage",
        "version": env!("CARGO_PKG_VERSION"),
        "modes": services.modes(),
        "default_mode": services.default_mode,
        "fingerprint": fingerprint.or_else(|| Some(services.bm25.as_ref()?.index().manifest().fingerprint.clone())),
        "fingerprints": fingerprints,
        "reranker": services.reranker.as_ref().map(|reranker| reranker.identity()),
        "topk": config.topk,
        "limits": {
            "topk": config.max_topk,
            "queries": config.max_queries,
            "query_bytes": config.max_query_bytes,
            "body_bytes": config.base.max_body_bytes,
            "answer_bytes": config.max_answer_bytes,
            "requests": config.base.queue,
        },
    });
    if let Some(bm25) = &services.bm25 {
        let manifest = bm25.index().manifest();
        let counts = manifest.counts;
        info["corpus_digest"] = json!(manifest.corpus_digest);
        info["analyzer"] = json!(manifest.analyzer);
        info["bm25"] = json!(bm25.params());
        info["passages"] = json!(counts.passages);
        info["terms"] = json!(counts.terms);
        info["tokens"] = json!(counts.tokens);
    }
    info
}

fn name(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

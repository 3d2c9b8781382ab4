//! What all requests share.

use std::sync::Arc;
use std::time::Instant;

use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::jobs::Pool;
use super::metrics::Metrics;
use super::request::Limits;
use super::shell::Flights;
use super::{ServeError, ServerConfig, Services};

pub(super) struct App {
    pub(super) config: ServerConfig,
    pub(super) services: Services,
    pub(super) limits: Limits,
    pub(super) pool: Pool,
    pub(super) metrics: Metrics,
    /// What `/info` says.
    pub(super) info: Vec<u8>,
    pub(super) flights: Arc<Flights>,
}

impl App {
    pub(super) fn new(config: ServerConfig, services: Services) -> Result<Self, ServeError> {
        let passages = services.bm25.as_ref().map(|bm25| bm25.index().len() as u64);
        let metrics = Metrics::new(passages, services.caches.clone());
        let flights = Arc::new(Flights::new(metrics.traffic.in_flight(), metrics.traffic.cancelled()));
        let (waiting, running) = (metrics.waiting.clone(), metrics.running.clone());
        Ok(Self {
            limits: Limits {
                topk: config.topk,
                max_topk: config.max_topk,
                max_queries: config.max_queries,
                max_query_bytes: config.max_query_bytes,
            },
            pool: Pool::new(config.workers, config.queue, waiting, running).map_err(ServeError::Threads)?,
            metrics,
            info: info(&config, &services).to_string().into_bytes(),
            flights,
            config,
            services,
        })
    }

    /// Answers a request for work, counted and measured, also when its client goes away before the end.
    pub(super) async fn observe(
        &self,
        route: &'static str,
        work: impl Future<Output = Result<Response, Fault>>,
    ) -> Response {
        let flight = self.flights.enter();
        let begin = Instant::now();
        let outcome = if self.flights.draining() { Err(Fault::Stopped) } else { work.await };
        let response = outcome.unwrap_or_else(|fault| {
            self.metrics.traffic.failed(fault.cause());
            fault.into_response()
        });
        self.metrics.traffic.answered(route, response.status().as_u16(), begin.elapsed());
        flight.land();
        response
    }
}

/// What the server is: nothing in it changes while it runs.
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
            "body_bytes": config.max_body_bytes,
            "requests": config.queue,
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

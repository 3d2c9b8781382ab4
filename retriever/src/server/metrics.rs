//! What the server counts, in the text format of Prometheus.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::cache::{CacheStats, CachedRetriever};

/// Upper ends of the latency buckets, seconds: BM25 answers in well under a millisecond, rerankers in seconds.
const BUCKETS: [f64; 17] =
    [0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: &'static str,
    status: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    latency: Family<Route, Histogram>,
    errors: Family<Cause, Counter>,
    refused: Counter,
    cancelled: Counter,
    pub(super) queries: Counter,
    pub(super) in_flight: Gauge,
    pub(super) waiting: Gauge,
    pub(super) running: Gauge,
    served: AtomicU64,
}

impl Metrics {
    pub(super) fn new(passages: Option<u64>, caches: Vec<Arc<CachedRetriever>>) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("forage_retriever"),
            requests: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            errors: Family::default(),
            refused: Counter::default(),
            cancelled: Counter::default(),
            queries: Counter::default(),
            in_flight: Gauge::default(),
            waiting: Gauge::default(),
            running: Gauge::default(),
            served: AtomicU64::new(0),
        };
        metrics.register();
        metrics.registry.register_collector(Box::new(Constants { passages, caches }));
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("requests", "Requests answered", self.requests.clone());
        registry.register("request_seconds", "Time from a request's head to its answer", self.latency.clone());
        registry.register("errors", "Requests without an answer, by cause", self.errors.clone());
        registry.register("refused", "Requests refused because the queue was full", self.refused.clone());
        registry.register("cancelled", "Requests whose client went away", self.cancelled.clone());
        registry.register("queries", "Queries answered", self.queries.clone());
        registry.register("in_flight", "Requests being received or answered", self.in_flight.clone());
        registry.register("jobs_waiting", "Search jobs waiting for a worker", self.waiting.clone());
        registry.register("jobs_running", "Search jobs begun", self.running.clone());
    }

    pub(super) fn answered(&self, route: &'static str, status: u16, took: Duration) {
        self.served.fetch_add(1, Ordering::Relaxed);
        self.requests.get_or_create(&Request { route, status: status.into() }).inc();
        self.latency.get_or_create(&Route { route }).observe(took.as_secs_f64());
    }

    pub(super) fn failed(&self, cause: &'static str) {
        self.errors.get_or_create(&Cause { cause }).inc();
        if matches!(cause, "overloaded" | "stopped") {
            self.refused.inc();
        }
    }

    pub(super) fn cancelled(&self) {
        self.cancelled.inc();
    }

    /// Requests that got an answer, refusals not counted.
    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed).saturating_sub(self.refused())
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.get()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string cannot fail");
        text
    }
}

/// Values that are known elsewhere, read when asked for.
struct Constants {
    passages: Option<u64>,
    caches: Vec<Arc<CachedRetriever>>,
}

impl std::fmt::Debug for Constants {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Constants").field("passages", &self.passages).finish_non_exhaustive()
    }
}

impl Collector for Constants {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(passages) = self.passages {
            let gauge = ConstGauge::new(passages as i64);
            gauge.encode(encoder.encode_descriptor("passages", "Passages searched", None, gauge.metric_type())?)?;
        }
        if self.caches.is_empty() {
            return Ok(());
        }
        let mut counts = CacheStats::default();
        for stats in self.caches.iter().map(|cache| cache.stats()) {
            counts.hits += stats.hits;
            counts.joined += stats.joined;
            counts.misses += stats.misses;
            counts.entries += stats.entries;
        }
        let counters = [
            ("cache_hits", "Queries answered from the cache", counts.hits),
            ("cache_joined", "Queries that joined an equal one being searched", counts.joined),
            ("cache_misses", "Queries that were searched", counts.misses),
        ];
        for (name, help, count) in counters {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let entries = ConstGauge::new(counts.entries as i64);
        entries.encode(encoder.encode_descriptor("cache_entries", "Answers kept", None, entries.metric_type())?)
    }
}

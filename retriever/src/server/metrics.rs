//! Counters of the server, in the text format of Prometheus.

use std::sync::Arc;

use forage_net::Reading;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::cache::{CacheStats, CachedRetriever};

/// Upper ends of the latency buckets, seconds: BM25 answers in well under a millisecond, rerankers in seconds.
pub(super) const BUCKETS: [f64; 17] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 25.0,
];

/// Counters beside those of requests.
#[derive(Default)]
pub(super) struct Metrics {
    pub(super) queries: Counter,
    pub(super) waiting: Gauge,
    pub(super) running: Gauge,
}

impl Metrics {
    pub(super) fn register(
        registry: &mut Registry,
        passages: Option<u64>,
        caches: Vec<Arc<CachedRetriever>>,
    ) -> Self {
        let metrics = Self::default();
        registry.register("queries", "Queries answered", metrics.queries.clone());
        registry.register(
            "jobs_waiting",
            "Search jobs waiting for a worker",
            metrics.waiting.clone(),
        );
        registry.register("jobs_running", "Search jobs begun", metrics.running.clone());
        Reading::register(registry, move || readings(passages, &caches));
        metrics
    }
}

fn readings(passages: Option<u64>, caches: &[Arc<CachedRetriever>]) -> Vec<Reading> {
    let passages =
        passages.map(|passages| Reading::Gauge("passages", "Passages searched", passages));
    let mut readings = Vec::from_iter(passages);
    if caches.is_empty() {
        return readings;
    }
    let mut counts = CacheStats::default();
    for stats in caches.iter().map(|cache| cache.stats()) {
        counts.hits += stats.hits;
        counts.joined += stats.joined;
        counts.misses += stats.misses;
        counts.entries += stats.entries;
    }
    readings.extend([
        Reading::Counter("cache_hits", "Queries answered from the cache", counts.hits),
        Reading::Counter(
            "cache_joined",
            "Queries that joined an equal one being searched",
            counts.joined,
        ),
        Reading::Counter("cache_misses", "Queries that were searched", counts.misses),
        Reading::Gauge("cache_entries", "Answers kept", counts.entries),
    ]);
    readings
}

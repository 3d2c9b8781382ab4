//! Counters of the server, in the text format of Prometheus.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
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
        registry.register_collector(Box::new(Constants { passages, caches }));
        metrics
    }
}

/// Values that are known elsewhere, read when asked for.
struct Constants {
    passages: Option<u64>,
    caches: Vec<Arc<CachedRetriever>>,
}

impl std::fmt::Debug for Constants {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Constants")
            .field("passages", &self.passages)
            .finish_non_exhaustive()
    }
}

impl Collector for Constants {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(passages) = self.passages {
            let gauge = ConstGauge::new(passages as i64);
            gauge.encode(encoder.encode_descriptor(
                "passages",
                "Passages searched",
                None,
                gauge.metric_type(),
            )?)?;
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
            (
                "cache_joined",
                "Queries that joined an equal one being searched",
                counts.joined,
            ),
            ("cache_misses", "Queries that were searched", counts.misses),
        ];
        for (name, help, count) in counters {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(
                name,
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        let entries = ConstGauge::new(counts.entries as i64);
        entries.encode(encoder.encode_descriptor(
            "cache_entries",
            "Answers kept",
            None,
            entries.metric_type(),
        )?)
    }
}

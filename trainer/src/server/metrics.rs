//! Counters of the server, in the text format of Prometheus.

use std::sync::Arc;
use std::time::Duration;

use forage_net::Reading;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::generate::Engine;

/// Upper ends of the buckets of whole requests, seconds.
pub(super) const REQUESTS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 300.0,
];
/// Upper ends of the buckets of first tokens, seconds.
const FIRST: [f64; 13] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];
/// Upper ends of the buckets of later tokens, seconds.
const LATER: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

#[derive(Debug)]
pub(super) struct Metrics {
    first_token: Histogram,
    later_token: Histogram,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry, engine: Arc<Engine>) -> Self {
        let (first_token, later_token) = (Histogram::new(FIRST), Histogram::new(LATER));
        let help = "Time from a completion's start to its first token";
        registry.register("first_token_seconds", help, first_token.clone());
        registry.register(
            "token_seconds",
            "Time between tokens of a completion",
            later_token.clone(),
        );
        Reading::register(registry, move || readings(&engine));
        Self {
            first_token,
            later_token,
        }
    }

    pub(super) fn first_token(&self, took: Duration) {
        self.first_token.observe(took.as_secs_f64());
    }

    pub(super) fn later_token(&self, took: Duration) {
        self.later_token.observe(took.as_secs_f64());
    }
}

/// The engine's counters.
fn readings(engine: &Engine) -> Vec<Reading> {
    let stats = engine.stats();
    vec![
        Reading::Gauge("running", "Completions being generated", stats.running),
        Reading::Gauge("waiting", "Completions that wait for room", stats.waiting),
        Reading::Gauge(
            "cache_tokens_used",
            "Tokens held in the key-value cache",
            stats.cache_tokens_used,
        ),
        Reading::Gauge(
            "cache_tokens",
            "Tokens the key-value cache can hold",
            stats.cache_tokens,
        ),
        Reading::Counter("prompt_tokens", "Prompt tokens taken", stats.prompt_tokens),
        Reading::Counter(
            "cached_prompt_tokens",
            "Prompt tokens found in the cache",
            stats.cached_prompt_tokens,
        ),
        Reading::Counter("generated_tokens", "Tokens drawn", stats.generated_tokens),
        Reading::Counter(
            "preemptions",
            "Completions set back to make room",
            stats.preemptions,
        ),
        Reading::Counter(
            "cancelled_completions",
            "Completions given up: their client went away, or their time was over",
            stats.cancelled,
        ),
    ]
}

//! Counters of the server, in the text format of Prometheus.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::episode::Ending;

/// Upper ends of the buckets of whole requests, seconds: a search takes a millisecond, a judge seconds.
pub(super) const REQUESTS: [f64; 15] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 120.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HowLabel {
    how: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndingLabel {
    ending: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

pub(super) struct Metrics {
    pub(super) sessions_active: Gauge,
    pub(super) sessions_opened: Counter,
    sessions_closed: Family<HowLabel, Counter>,
    steps: Counter,
    step_seconds: Histogram,
    episodes: Family<EndingLabel, Counter>,
    faults: Family<CauseLabel, Counter>,
}

impl Metrics {
    /// Counters that `registry` shows.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            sessions_active: Gauge::default(),
            sessions_opened: Counter::default(),
            sessions_closed: Family::default(),
            steps: Counter::default(),
            step_seconds: Histogram::new(REQUESTS),
            episodes: Family::default(),
            faults: Family::default(),
        };
        registry.register(
            "sessions_active",
            "Sessions that hold a place",
            metrics.sessions_active.clone(),
        );
        registry.register(
            "sessions_opened",
            "Sessions opened",
            metrics.sessions_opened.clone(),
        );
        registry.register(
            "sessions_closed",
            "Sessions closed, by how",
            metrics.sessions_closed.clone(),
        );
        registry.register("steps", "Turns taken", metrics.steps.clone());
        registry.register(
            "step_seconds",
            "Time of a step, its reward included",
            metrics.step_seconds.clone(),
        );
        registry.register(
            "episodes",
            "Episodes ended, by ending",
            metrics.episodes.clone(),
        );
        registry.register(
            "faults",
            "Episodes ended by a fault, by what failed",
            metrics.faults.clone(),
        );
        metrics
    }

    pub(super) fn step(&self, took: Duration) {
        self.steps.inc();
        self.step_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn closed(&self, how: &'static str) {
        self.sessions_closed.get_or_create(&HowLabel { how }).inc();
    }

    pub(super) fn ended(&self, ending: &Ending) {
        let ending = match ending {
            Ending::Answered => "answered",
            Ending::Truncated { .. } => "truncated",
            Ending::Malformed { .. } => "malformed",
            Ending::Infra { .. } => "infra",
        };
        self.episodes.get_or_create(&EndingLabel { ending }).inc();
    }

    /// An episode that a fault ended.
    pub(super) fn failed(&self, cause: &'static str) {
        self.episodes
            .get_or_create(&EndingLabel { ending: "infra" })
            .inc();
        self.faults.get_or_create(&CauseLabel { cause }).inc();
    }

    /// Episodes that ended with a score.
    pub(super) fn scored(&self) -> u64 {
        let count = |ending| self.episodes.get_or_create(&EndingLabel { ending }).get();
        ["answered", "truncated", "malformed"]
            .into_iter()
            .map(count)
            .sum()
    }
}

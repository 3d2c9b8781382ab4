//! Counters of the server, in the text format of Prometheus.

use std::time::Duration;

use forage_contracts::Ending;
use forage_net::Tally;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper ends of the buckets of whole requests, seconds: a search takes a millisecond, a judge seconds.
pub(super) const REQUESTS: [f64; 15] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 120.0,
];

pub(super) struct Metrics {
    pub(super) sessions_active: Gauge,
    pub(super) sessions_opened: Counter,
    sessions_closed: Tally,
    steps: Counter,
    step_seconds: Histogram,
    episodes: Tally,
    faults: Tally,
}

impl Metrics {
    /// Counters that `registry` shows.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mut tally =
            |name: &str, help: &str, label| Tally::register(registry, name, help, label);
        let metrics = Self {
            sessions_active: Gauge::default(),
            sessions_opened: Counter::default(),
            sessions_closed: tally("sessions_closed", "Sessions closed, by how", "how"),
            steps: Counter::default(),
            step_seconds: Histogram::new(REQUESTS),
            episodes: tally("episodes", "Episodes ended, by ending", "ending"),
            faults: tally(
                "faults",
                "Episodes ended by a fault, by what failed",
                "cause",
            ),
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
        registry.register("steps", "Turns taken", metrics.steps.clone());
        registry.register(
            "step_seconds",
            "Time of a step, its reward included",
            metrics.step_seconds.clone(),
        );
        metrics
    }

    pub(super) fn step(&self, took: Duration) {
        self.steps.inc();
        self.step_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn closed(&self, how: &'static str) {
        self.sessions_closed.add(how);
    }

    pub(super) fn ended(&self, ending: &Ending) {
        self.episodes.add(match ending {
            Ending::Answered => "answered",
            Ending::Truncated { .. } => "truncated",
            Ending::Malformed { .. } => "malformed",
            Ending::Infra { .. } => "infra",
        });
    }

    /// An episode that a fault ended.
    pub(super) fn failed(&self, cause: &'static str) {
        self.episodes.add("infra");
        self.faults.add(cause);
    }

    /// Episodes that ended with a score.
    pub(super) fn scored(&self) -> u64 {
        ["answered", "truncated", "malformed"]
            .into_iter()
            .map(|ending| self.episodes.get(ending))
            .sum()
    }
}

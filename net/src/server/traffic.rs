//! Counters of requests, in the text format of Prometheus.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: &'static str,
    status: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

/// Counters that differ in one label.
#[derive(Debug, Clone)]
pub struct Tally {
    label: &'static str,
    counters: Family<[(&'static str, &'static str); 1], Counter>,
}

impl Tally {
    /// Counters that `registry` shows under this name, by the values of `label`.
    pub fn register(registry: &mut Registry, name: &str, help: &str, label: &'static str) -> Self {
        let counters = Family::default();
        registry.register(name, help, counters.clone());
        Self { label, counters }
    }

    /// Counts one.
    pub fn add(&self, value: &'static str) {
        self.counters.get_or_create(&[(self.label, value)]).inc();
    }

    /// The number counted for a value.
    pub fn get(&self, value: &'static str) -> u64 {
        self.counters.get_or_create(&[(self.label, value)]).get()
    }
}

/// A value that is known elsewhere: its name, its description and itself.
#[derive(Debug, Clone, Copy)]
pub enum Reading {
    /// A value that rises and falls.
    Gauge(&'static str, &'static str, u64),
    /// A value that only rises.
    Counter(&'static str, &'static str, u64),
}

impl Reading {
    /// Lets `registry` show what `read` gives whenever it is asked.
    pub fn register(registry: &mut Registry, read: impl Fn() -> Vec<Self> + Send + Sync + 'static) {
        registry.register_collector(Box::new(Readings(read)));
    }

    fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        match self {
            Self::Gauge(name, help, value) => {
                let gauge = ConstGauge::new(value.cast_signed());
                let kind = gauge.metric_type();
                gauge.encode(encoder.encode_descriptor(name, help, None, kind)?)
            }
            Self::Counter(name, help, value) => {
                let counter = ConstCounter::new(value);
                let kind = counter.metric_type();
                counter.encode(encoder.encode_descriptor(name, help, None, kind)?)
            }
        }
    }
}

struct Readings<F>(F);

impl<F> std::fmt::Debug for Readings<F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Readings")
    }
}

impl<F: Fn() -> Vec<Reading> + Send + Sync + 'static> Collector for Readings<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        (self.0)()
            .into_iter()
            .try_for_each(|reading| reading.encode(&mut encoder))
    }
}

/// Makes histograms with given upper ends.
#[derive(Debug, Clone)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// Counters of requests by route, status and cause of failure.
#[derive(Debug)]
pub(super) struct Traffic {
    requests: Family<Request, Counter>,
    latency: Family<Route, Histogram, Buckets>,
    errors: Tally,
    refused: Counter,
    pub(super) cancelled: Counter,
    pub(super) in_flight: Gauge,
    served: AtomicU64,
}

impl Traffic {
    /// Registers the counters; `buckets` are the upper ends of the latencies, in seconds.
    pub(super) fn register(registry: &mut Registry, buckets: &'static [f64]) -> Self {
        let traffic = Self {
            requests: Family::default(),
            latency: Family::new_with_constructor(Buckets(buckets)),
            errors: Tally::register(
                registry,
                "errors",
                "Requests without an answer, by cause",
                "cause",
            ),
            refused: Counter::default(),
            cancelled: Counter::default(),
            in_flight: Gauge::default(),
            served: AtomicU64::new(0),
        };
        registry.register("requests", "Requests answered", traffic.requests.clone());
        registry.register(
            "request_seconds",
            "Time from a request's head to its answer",
            traffic.latency.clone(),
        );
        registry.register(
            "refused",
            "Requests refused because the queue was full",
            traffic.refused.clone(),
        );
        registry.register(
            "cancelled",
            "Requests whose client went away",
            traffic.cancelled.clone(),
        );
        registry.register(
            "in_flight",
            "Requests being received or answered",
            traffic.in_flight.clone(),
        );
        traffic
    }

    /// Counts an answer of any kind.
    pub(crate) fn answered(&self, route: &'static str, status: u16, took: Duration) {
        self.served.fetch_add(1, Ordering::Relaxed);
        self.requests
            .get_or_create(&Request {
                route,
                status: status.into(),
            })
            .inc();
        self.latency
            .get_or_create(&Route { route })
            .observe(took.as_secs_f64());
    }

    /// Counts a failure by its stable name; `overloaded` and `stopped` are refusals.
    pub(crate) fn failed(&self, cause: &'static str) {
        self.errors.add(cause);
        if matches!(cause, "overloaded" | "stopped") {
            self.refused.inc();
        }
    }

    /// Requests that got an answer, refusals not counted.
    pub(super) fn served(&self) -> u64 {
        self.served
            .load(Ordering::Relaxed)
            .saturating_sub(self.refused())
    }

    /// Requests refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.get()
    }
}

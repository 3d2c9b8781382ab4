//! The course of one metric, as far as rules need it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// How many numbers of a metric are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Numbers looked back upon.
    pub(super) window: usize,
    /// Numbers a level is taken over.
    pub(super) short: usize,
}

/// The first numbers of a metric, its last ones, and its best level. Steps that did not set the metric count for nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "Stored", try_from = "Stored")]
pub(super) struct Trace {
    start: Vec<f64>,
    recent: VecDeque<f64>,
    best: Option<f64>,
}

impl Trace {
    pub(super) fn push(&mut self, value: f64, span: Span) {
        if self.start.len() < span.short {
            self.start.push(value);
        }
        self.recent.push_back(value);
        self.trim(span.window);
        if self.recent.len() == span.window {
            let level = mean(self.recent.iter());
            self.best = Some(self.best.map_or(level, |best| best.max(level)));
        }
    }

    /// Forgets what is older than the last `window` numbers.
    pub(super) fn trim(&mut self, window: usize) {
        let surplus = self.recent.len().saturating_sub(window);
        self.recent.drain(..surplus);
    }

    /// Median of the last `span.short` numbers, which a single wild step does not move; `None` before there are as many.
    pub(super) fn level(&self, span: Span) -> Option<f64> {
        (self.recent.len() >= span.short).then(|| median(self.last(span.short)))
    }

    /// Median of the first `span.short` numbers, once the level shares none of them.
    pub(super) fn start(&self, span: Span) -> Option<f64> {
        (self.recent.len() >= 2 * span.short).then(|| median(self.start.iter()))
    }

    /// Median of the oldest `span.short` numbers of a full window.
    pub(super) fn before(&self, span: Span) -> Option<f64> {
        self.full(span)
            .then(|| median(self.recent.iter().take(span.short)))
    }

    /// Highest mean over a window so far.
    pub(super) fn best(&self) -> Option<f64> {
        self.best
    }

    /// The median of the first numbers, for sums that the level may share.
    pub(super) fn first(&self) -> Option<f64> {
        (!self.start.is_empty()).then(|| median(self.start.iter()))
    }

    /// Whether any of the first `span.short` numbers was below a bound.
    pub(super) fn began_below(&self, bound: f64) -> bool {
        self.start.iter().any(|&value| value < bound)
    }

    /// Mean of a full window.
    pub(super) fn long(&self, span: Span) -> Option<f64> {
        self.full(span).then(|| mean(self.recent.iter()))
    }

    /// Standard deviation of the numbers around the line through a full window: noise without the trend.
    pub(super) fn noise(&self, span: Span) -> Option<f64> {
        let slope = self.slope(span)?;
        let (middle, centre) = (mean(self.recent.iter()), (span.window as f64 - 1.0) / 2.0);
        let squares = self.recent.iter().enumerate();
        let squares = squares
            .map(|(x, y)| (y - middle - slope * (x as f64 - centre)).powi(2))
            .sum::<f64>();
        Some((squares / (span.window as f64 - 2.0)).sqrt())
    }

    /// Least-squares slope per step over a full window.
    pub(super) fn slope(&self, span: Span) -> Option<f64> {
        let centre = (span.window as f64 - 1.0) / 2.0;
        let (mut products, mut squares) = (0.0, 0.0);
        for (x, y) in self.recent.iter().enumerate() {
            products += (x as f64 - centre) * y;
            squares += (x as f64 - centre).powi(2);
        }
        self.full(span).then_some(products / squares)
    }

    /// Whether the last `count` numbers all pass `test`; false before there are as many.
    pub(super) fn held(&self, count: usize, test: impl Fn(f64) -> bool) -> bool {
        self.recent.len() >= count && self.last(count).all(|&value| test(value))
    }

    fn full(&self, span: Span) -> bool {
        self.recent.len() >= span.window
    }

    fn last(&self, count: usize) -> impl Iterator<Item = &f64> {
        self.recent.iter().skip(self.recent.len() - count)
    }
}

fn mean<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0_f64), |(sum, count), value| {
        (sum + value, count + 1.0)
    });
    sum / count.max(1.0)
}

fn median<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    let mut sorted: Vec<f64> = values.copied().collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        f64::midpoint(sorted[half - 1], sorted[half])
    }
}

/// Bits, because JSON readers do not return every float to the last bit and a resumed run must judge as an uninterrupted one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    start: Vec<u64>,
    recent: Vec<u64>,
    best: Option<u64>,
}

impl From<Trace> for Stored {
    fn from(trace: Trace) -> Self {
        Self {
            start: trace.start.into_iter().map(f64::to_bits).collect(),
            recent: trace.recent.into_iter().map(f64::to_bits).collect(),
            best: trace.best.map(f64::to_bits),
        }
    }
}

impl TryFrom<Stored> for Trace {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        if stored.start.is_empty() && !stored.recent.is_empty() {
            return Err("a metric has last numbers and no first ones");
        }
        Ok(Self {
            start: stored.start.into_iter().map(f64::from_bits).collect(),
            recent: stored.recent.into_iter().map(f64::from_bits).collect(),
            best: stored.best.map(f64::from_bits),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span {
        window: 6,
        short: 3,
    };

    fn trace(values: &[f64]) -> Trace {
        let mut trace = Trace::default();
        for &value in values {
            trace.push(value, SPAN);
        }
        trace
    }

    fn close(found: Option<f64>, expected: f64) {
        assert!(
            (found.unwrap() - expected).abs() < 1e-12,
            "{found:?} is not {expected}"
        );
    }

    /// Expected numbers from `numpy.polyfit` and the residuals it leaves (`ddof=2`).
    #[test]
    fn levels_lines_and_noise() {
        let trace = trace(&[9.0, 7.0, 8.0, 1.0, 4.0, 2.0, 7.0, 5.0, 6.0]);
        close(trace.level(SPAN), 6.0);
        close(trace.start(SPAN), 8.0);
        close(trace.before(SPAN), 2.0);
        close(trace.long(SPAN), 25.0 / 6.0);
        close(trace.best(), 31.0 / 6.0);
        close(trace.slope(SPAN), 0.942_857_142_857_142_7);
        close(trace.noise(SPAN), 1.679_001_971_126_781_8);
        assert!(trace.held(3, |value| value > 4.5) && !trace.held(4, |value| value > 4.5));
    }

    #[test]
    fn nothing_is_said_before_there_are_enough_numbers() {
        let early = trace(&[1.0, 2.0]);
        assert_eq!((early.level(SPAN), early.first()), (None, Some(1.5)));
        let later = trace(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(
            (
                later.level(SPAN),
                later.start(SPAN),
                later.slope(SPAN),
                later.best()
            ),
            (Some(4.0), None, None, None)
        );
        assert!(!later.held(6, |_| true));
    }

    #[test]
    fn every_bit_survives_json() {
        let before = trace(&[
            0.1 + 0.2,
            1e-310,
            -0.0,
            5e300,
            0.1_f64.sqrt(),
            std::f64::consts::PI,
            1.0 / 3.0,
        ]);
        let after: Trace = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
        let bits = |trace: &Trace| {
            trace
                .recent
                .iter()
                .chain(&trace.start)
                .map(|value| value.to_bits())
                .collect::<Vec<_>>()
        };
        assert_eq!((bits(&before), before.best), (bits(&after), after.best));
        let headless = r#"{"start": [], "recent": [1, 2], "best": null}"#;
        let error = serde_json::from_str::<Trace>(headless).unwrap_err();
        assert!(error.to_string().contains("no first ones"), "{error}");
    }
}

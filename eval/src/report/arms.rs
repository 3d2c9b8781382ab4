//! Arms of an experiment: runs that differ in their seed alone, as lines with a band.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::stats::{Bootstrap, Interval, bootstrap_mean, mean, percentile_mean};

/// Longer lines are averaged down to about this many points.
const MOST_POINTS: usize = 400;
/// Fewer where every point has an interval.
const MOST_BAND_POINTS: usize = 200;
/// Resamples of the runs behind a band or a trend. Runs are few, so their means take few values.
const RUNS: Bootstrap = Bootstrap {
    resamples: 1000,
    confidence: 0.95,
    seed: 1,
};

/// One curve: runs of the same settings with different seeds, or one run.
#[derive(Clone, Debug, Default)]
pub struct Arm {
    /// Shown in the legend; a name with "control" in it is drawn as the control.
    pub name: String,
    /// `[run][row]`: rows of `metrics.jsonl`, objects with `step` and numbers by name. Those of a run that this one was forked from have
    /// `taken_over` as true: they are in the curves, and in no figure of its own.
    pub runs: Vec<Vec<Value>>,
}

/// The mean of an arm's runs at a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) step: f64,
    pub(super) value: f64,
    /// Ends of the interval of the mean over runs; none of one run.
    pub(super) band: Option<[f64; 2]>,
}

/// The course of a metric, from the first tenth of the steps to the last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// Name in `metrics.jsonl`.
    pub metric: String,
    /// Mean over the first tenth of the steps that have the metric; with several runs the mean of theirs and its interval.
    pub first: Interval,
    /// The mean over the last tenth.
    pub last: Interval,
    /// Runs that have it. One run has no interval over runs: its ends are its estimate.
    pub runs: usize,
    /// The newest step that has it, where the runs have a newer one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<u64>,
}

impl Arm {
    /// The metrics that people look at first, with their words.
    pub fn headline_metrics(&self) -> Vec<(String, String)> {
        super::curves::headline(std::slice::from_ref(self))
    }

    /// The arm without the rows that its runs took over from others.
    pub(super) fn own(&self) -> Self {
        let mut own = self.clone();
        for rows in &mut own.runs {
            rows.retain(|row| row["taken_over"] != true);
        }
        own
    }

    /// Names of all numbers in the rows but `step`.
    pub(super) fn metrics(&self) -> BTreeSet<String> {
        let rows = self.runs.iter().flatten().filter_map(Value::as_object);
        let numbers = rows
            .flatten()
            .filter(|(name, value)| *name != "step" && value.is_number());
        numbers.map(|(name, _)| name.clone()).collect()
    }

    /// The curve of a metric. With several runs, only steps that at least two of them have.
    pub(super) fn points(&self, metric: &str) -> Vec<Point> {
        let mut by_step: BTreeMap<u64, Vec<Option<f64>>> = BTreeMap::new();
        for (run, rows) in self.runs.iter().enumerate() {
            for (step, value) in values(rows, metric) {
                by_step
                    .entry(step)
                    .or_insert_with(|| vec![None; self.runs.len()])[run] = Some(value);
            }
        }
        let having = (0..self.runs.len())
            .filter(|&run| by_step.values().any(|values| values[run].is_some()))
            .count();
        let needed = having.min(2);
        let steps: Vec<(u64, Vec<Option<f64>>)> = by_step
            .into_iter()
            .filter(|(_, values)| values.iter().flatten().count() >= needed)
            .collect();
        let most = if needed > 1 {
            MOST_BAND_POINTS
        } else {
            MOST_POINTS
        };
        steps
            .chunks(steps.len().div_ceil(most).max(1))
            .filter_map(average)
            .collect()
    }

    /// The course of `metric`; `None` where no run has it.
    pub fn trend(&self, metric: &str) -> Option<Trend> {
        let tenths: Vec<[f64; 2]> = self
            .runs
            .iter()
            .filter_map(|rows| tenths(rows, metric))
            .collect();
        let end = |index: usize| {
            let means: Vec<f64> = tenths.iter().map(|ends| ends[index]).collect();
            bootstrap_mean(&means, RUNS).ok()
        };
        let having = self.runs.iter().flat_map(|rows| values(rows, metric));
        let newest = having.map(|(step, _)| step).max();
        let steps = self.runs.iter().flatten();
        let last = steps.filter_map(|row| row.get("step")?.as_u64()).max();
        Some(Trend {
            metric: metric.to_owned(),
            first: end(0)?,
            last: end(1)?,
            runs: tenths.len(),
            newest: newest.filter(|_| newest < last),
        })
    }
}

/// Steps with finite values, in the order of the rows.
pub(super) fn values<'a>(
    rows: &'a [Value],
    metric: &'a str,
) -> impl Iterator<Item = (u64, f64)> + 'a {
    let pair = move |row: &Value| Some((row.get("step")?.as_u64()?, row.get(metric)?.as_f64()?));
    rows.iter()
        .filter_map(pair)
        .filter(|(_, value)| value.is_finite())
}

/// Means over the first and the last tenth.
fn tenths(rows: &[Value], metric: &str) -> Option<[f64; 2]> {
    let line: Vec<f64> = values(rows, metric).map(|(_, value)| value).collect();
    let count = line.len().div_ceil(10);
    (count > 0).then(|| [mean(&line[..count]), mean(&line[line.len() - count..])])
}

/// One point of neighbouring steps: each run's mean over them, and the mean of the runs.
fn average(steps: &[(u64, Vec<Option<f64>>)]) -> Option<Point> {
    let runs = steps.first()?.1.len();
    let of_run = |run: usize| {
        steps
            .iter()
            .filter_map(|(_, values)| values[run])
            .collect::<Vec<f64>>()
    };
    let means: Vec<f64> = (0..runs)
        .map(of_run)
        .filter(|values| !values.is_empty())
        .map(|values| mean(&values))
        .collect();
    let step = steps.iter().map(|(step, _)| *step as f64).sum::<f64>() / steps.len() as f64;
    let band = if means.len() > 1 {
        percentile_mean(&means, RUNS)
            .ok()
            .map(|interval| interval.ends())
    } else {
        None
    };
    Some(Point {
        step,
        value: mean(&means),
        band,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(values: &[f64]) -> Vec<Value> {
        values
            .iter()
            .enumerate()
            .map(|(step, value)| json!({"step": step, "a": value}))
            .collect()
    }

    #[test]
    fn long_lines_are_thinned_and_gaps_skipped() {
        let one = |rows| Arm {
            name: "one".into(),
            runs: vec![rows],
        };
        let line = one(run(&vec![0.5; 5000])).points("a");
        assert!(
            line.len() <= MOST_POINTS && line.iter().all(|point| (point.value - 0.5).abs() < 1e-12)
        );
        let holes = vec![
            json!({"step": 1, "a": null}),
            json!({"a": 1.0}),
            json!({"step": 3, "a": 2.0}),
            json!(7),
        ];
        assert_eq!(
            one(holes).points("a"),
            [Point {
                step: 3.0,
                value: 2.0,
                band: None
            }]
        );
    }

    #[test]
    fn a_metric_that_newer_steps_lack_says_its_newest_step() {
        let newest = |rows: Vec<Value>| {
            let arm = Arm {
                name: "one".into(),
                runs: vec![rows],
            };
            arm.trend("a").unwrap().newest
        };
        let mut rows = run(&[1.0, 2.0]);
        assert_eq!(newest(rows.clone()), None);
        rows.push(json!({"step": 2, "b": 1.0}));
        assert_eq!(newest(rows), Some(1));
    }

    #[test]
    fn several_runs_have_a_band_where_two_of_them_are() {
        let arm = Arm {
            name: "arm".into(),
            runs: vec![run(&[0.0, 0.2, 0.4]), run(&[0.0, 0.4]), run(&[0.0, 0.6])],
        };
        let line = arm.points("a");
        assert_eq!(line.len(), 2, "the third step has one run alone");
        assert_eq!(line[0].band, Some([0.0, 0.0]));
        assert!((line[1].value - 0.4).abs() < 1e-12);
        let [low, high] = line[1].band.unwrap();
        assert!((0.2 - 1e-9..0.4).contains(&low) && high > 0.4 && high <= 0.6 + 1e-9);
    }

    #[test]
    fn trends_compare_the_first_tenth_with_the_last() {
        let rising: Vec<f64> = (0..20).map(f64::from).collect();
        let trend = Arm {
            name: "one".into(),
            runs: vec![run(&rising)],
        }
        .trend("a")
        .unwrap();
        assert_eq!(
            (trend.first.estimate, trend.last.estimate, trend.runs),
            (0.5, 18.5, 1)
        );
        assert!(
            trend
                .last
                .ends()
                .iter()
                .all(|end| (end - 18.5).abs() < 1e-12)
        );
        assert!(Arm::default().trend("a").is_none());
    }
}

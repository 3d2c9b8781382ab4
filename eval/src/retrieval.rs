//! Retrieval quality of a run against judgments.

use std::collections::{BTreeMap, BTreeSet};

use forage_env::reward::Graded;
use serde::{Deserialize, Serialize};

use crate::stats::{Bootstrap, Interval, StatsError, mean_interval, paired_bootstrap};
use crate::text;

/// Document ids per query id, best first.
pub(crate) type Rankings = BTreeMap<String, Vec<String>>;

/// Grade of each judged document, by query id and document id.
pub(crate) type Qrels = BTreeMap<String, BTreeMap<String, i32>>;

/// One metric over all judged queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetrievalMetric {
    /// Mean over queries with its interval.
    #[serde(flatten)]
    pub mean: Interval,
    /// Value of each query, in the order of [`RetrievalReport::queries`].
    pub per_query: Vec<f64>,
}

/// The quality of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetrievalReport {
    /// `ndcg@10`, `recall@100`, `precision@10`, `mrr@10`, ... and `map`.
    pub metrics: BTreeMap<String, RetrievalMetric>,
    /// The judged queries, sorted.
    pub queries: Vec<String>,
    /// Queries of the run without judgments: excluded.
    pub unjudged: usize,
    /// Judged queries the run has no results for: each counts 0.
    pub unanswered: usize,
    /// The settings of the intervals.
    pub bootstrap: Bootstrap,
}

impl RetrievalReport {
    /// Mean of one metric, if it was computed.
    pub fn mean(&self, metric: &str) -> Option<Interval> {
        self.metrics.get(metric).map(|found| found.mean)
    }

    /// The same without some queries, which no figure counts then: those that were lost to a fault of ours. `unanswered` stays that of
    /// the whole run.
    ///
    /// # Errors
    /// [`StatsError`] when no query is left.
    pub fn without(&self, lost: &BTreeSet<String>) -> Result<Self, StatsError> {
        let is_kept = |query: &&String| !lost.contains(*query);
        let mut metrics = BTreeMap::new();
        for (name, metric) in &self.metrics {
            let values = self.queries.iter().zip(&metric.per_query);
            let kept = values.filter(|(query, _)| is_kept(query));
            let per_query: Vec<f64> = kept.map(|(_, value)| *value).collect();
            let mean = mean_interval(&per_query, self.bootstrap)?;
            metrics.insert(name.clone(), RetrievalMetric { mean, per_query });
        }
        Ok(Self {
            metrics,
            queries: self.queries.iter().filter(is_kept).cloned().collect(),
            ..self.clone()
        })
    }

    /// The mean of each metric less that of another run on the same judgments, with its paired bootstrap interval over queries.
    ///
    /// # Errors
    /// [`StatsError`] when the two were scored on different numbers of queries.
    pub fn gains(&self, other: &Self) -> Result<BTreeMap<String, Interval>, StatsError> {
        let mut gains = BTreeMap::new();
        for (name, metric) in &self.metrics {
            if let Some(theirs) = other.metrics.get(name) {
                let gain = paired_bootstrap(&theirs.per_query, &metric.per_query, self.bootstrap)?;
                gains.insert(name.clone(), gain);
            }
        }
        Ok(gains)
    }

    /// A table of the means with their intervals, a header line and one line of counts.
    pub fn to_text(&self) -> String {
        let low = self.low();
        let table = text::table(&["metric", "mean", &low, "high"], self.rows());
        format!("{table}{}\n", self.counts())
    }

    /// The same beside another run on the same judgments: its means, and the [gains](Self::gains) over it with their intervals.
    ///
    /// # Errors
    /// As [`RetrievalReport::gains`].
    pub fn to_text_against(&self, other: &Self) -> Result<String, StatsError> {
        let gains = self.gains(other)?;
        let mut rows = self.rows();
        for row in &mut rows {
            if let Some((theirs, gain)) = other.mean(&row[0]).zip(gains.get(&row[0])) {
                row.push(format!("{:.4}", theirs.estimate));
                row.extend([gain.estimate, gain.low, gain.high].map(signed));
            }
        }
        let low = self.low();
        let table = text::table(
            &[
                "metric",
                "mean",
                &low,
                "high",
                "other",
                "difference",
                &low,
                "high",
            ],
            rows,
        );
        let [own, others] = [self.counts(), other.counts()];
        Ok(format!("{table}{own}\nthe other run: {others}\n"))
    }

    /// Each metric with its mean and the ends of the interval.
    fn rows(&self) -> Vec<Vec<String>> {
        let mut metrics: Vec<(&String, &RetrievalMetric)> = self.metrics.iter().collect();
        metrics.sort_by_key(|(name, _)| by_cutoff(name));
        let rows = metrics.into_iter().map(|(name, metric)| {
            let Interval {
                estimate,
                low,
                high,
            } = metric.mean;
            let [mean, low, high] = [estimate, low, high].map(|value| format!("{value:.4}"));
            vec![name.clone(), mean, low, high]
        });
        rows.collect()
    }

    /// The head of the column of lower ends.
    fn low(&self) -> String {
        format!("{:.0} % low", 100.0 * self.bootstrap.confidence)
    }

    fn counts(&self) -> String {
        let (judged, unanswered, unjudged) = (self.queries.len(), self.unanswered, self.unjudged);
        format!(
            "{judged} judged queries ({unanswered} without results, counted as 0); {unjudged} without judgments left out"
        )
    }
}

impl RetrievalReport {
    /// Scores a run as `trec_eval -c` does: means over all judged queries, those without results count 0, queries without
    /// judgments are left out and counted. Cutoffs apply to `ndcg`, `recall`, `precision` and `mrr`; `map` has none.
    ///
    /// # Errors
    /// [`StatsError`] when there are no judged queries or the bootstrap's settings are out of range.
    pub fn of(
        run: &Rankings,
        qrels: &Qrels,
        cutoffs: &[usize],
        bootstrap: Bootstrap,
    ) -> Result<Self, StatsError> {
        let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (query, judgments) in qrels {
            let ranked = run.get(query).map_or(&[][..], Vec::as_slice);
            for (metric, value) in query_metrics(ranked, judgments, cutoffs) {
                values.entry(metric).or_default().push(value);
            }
        }
        if values.is_empty() {
            return Err(StatsError::Empty);
        }
        let mut metrics = BTreeMap::new();
        for (metric, per_query) in values {
            let mean = mean_interval(&per_query, bootstrap)?;
            metrics.insert(metric, RetrievalMetric { mean, per_query });
        }
        Ok(Self {
            metrics,
            queries: qrels.keys().cloned().collect(),
            unjudged: run
                .keys()
                .filter(|query| !qrels.contains_key(*query))
                .count(),
            unanswered: qrels
                .keys()
                .filter(|query| run.get(*query).is_none_or(Vec::is_empty))
                .count(),
            bootstrap,
        })
    }
}

/// A difference with its sign; one that rounding leaves nothing of is `+0.0000`.
fn signed(value: f64) -> String {
    let text = format!("{value:+.4}");
    if text == "-0.0000" {
        "+0.0000".to_owned()
    } else {
        text
    }
}

/// A metric's name and its cutoff, the order of tables: `mrr@3` stands before `mrr@10`.
fn by_cutoff(metric: &str) -> (&str, Option<usize>) {
    let (name, cutoff) = metric.split_once('@').unwrap_or((metric, ""));
    (name, cutoff.parse().ok())
}

/// Every metric of one query by its name.
fn query_metrics(
    ranked: &[String],
    judgments: &BTreeMap<String, i32>,
    cutoffs: &[usize],
) -> BTreeMap<String, f64> {
    let graded = Graded::new(ranked, judgments);
    let mut metrics = BTreeMap::from([("map".to_owned(), graded.average_precision())]);
    for &k in cutoffs {
        metrics.insert(format!("ndcg@{k}"), graded.ndcg(k));
        metrics.insert(format!("recall@{k}"), graded.recall(k));
        metrics.insert(format!("precision@{k}"), graded.precision(k));
        metrics.insert(format!("mrr@{k}"), graded.reciprocal_rank(k));
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_stand_in_the_order_of_their_cutoffs() -> Result<(), StatsError> {
        let qrels = Qrels::from([("q".into(), BTreeMap::from([("a".into(), 1)]))]);
        let run = Rankings::from([("q".into(), vec!["a".into()])]);
        let report = RetrievalReport::of(&run, &qrels, &[1, 3, 5, 10, 100], Bootstrap::new(1))?;
        let text = report.to_text();
        let names = text.lines().filter_map(|line| line.split(' ').next());
        let ranks: Vec<&str> = names.filter(|name| name.starts_with("mrr@")).collect();
        assert_eq!(ranks, ["mrr@1", "mrr@3", "mrr@5", "mrr@10", "mrr@100"]);
        Ok(())
    }

    #[test]
    fn a_run_stands_beside_another_query_by_query() -> Result<(), StatsError> {
        let ids = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect();
        let names = ["q1", "q2", "q3", "q4"];
        let judged = names.map(|name| (name.to_owned(), BTreeMap::from([("a".to_owned(), 1)])));
        let qrels = Qrels::from(judged);
        let run = |lists: [&[&str]; 4]| -> Rankings {
            let named = names.into_iter().zip(lists);
            named
                .map(|(name, list)| (name.to_owned(), ids(list)))
                .collect()
        };
        let report = |lists: [&[&str]; 4]| {
            RetrievalReport::of(&run(lists), &qrels, &[1, 3], Bootstrap::new(1))
        };
        let own = report([&["a"], &["x", "a"], &["x", "a"], &["a"]])?;
        for gain in own.gains(&own)?.values() {
            let none = Interval {
                estimate: 0.0,
                low: 0.0,
                high: 0.0,
            };
            assert_eq!(*gain, none);
        }
        // Each relevant passage stands one place lower: a reciprocal rank of 1/2 for 1, of 1/3 for 1/2.
        let below = report([&["x", "a"], &["x", "y", "a"], &["x", "y", "a"], &["x", "a"]])?;
        let gain = own.gains(&below)?["mrr@3"];
        assert!((gain.estimate - 1.0 / 3.0).abs() < 1e-12);
        // The means of the resamples that hold the smaller difference alone, and the larger one.
        assert!((gain.low - 1.0 / 6.0).abs() < 1e-12 && (gain.high - 0.5).abs() < 1e-12);
        let text = own.to_text_against(&below)?;
        let row = text.lines().find(|line| line.starts_with("mrr@3"));
        let cells: Vec<&str> = row.unwrap_or_default().split_whitespace().collect();
        assert_eq!(cells[4..], ["0.4167", "+0.3333", "+0.1667", "+0.5000"]);
        // A list that is missing counts 0 on its side.
        let part = Rankings::from([("q1".to_owned(), ids(&["a"]))]);
        let part = RetrievalReport::of(&part, &qrels, &[1, 3], Bootstrap::new(1))?;
        let text = own.to_text_against(&part)?;
        let counts = "the other run: 4 judged queries (3 without results, counted as 0)";
        assert!(text.contains(counts), "{text}");
        assert!((own.gains(&part)?["mrr@3"].estimate - 0.5).abs() < 1e-12);
        let fewer = own.without(&BTreeSet::from(["q1".to_owned()]))?;
        let lengths = Err(StatsError::Lengths { a: 3, b: 4 });
        assert_eq!(own.gains(&fewer), lengths);
        Ok(())
    }

    #[test]
    fn unanswered_queries_count_zero_and_unjudged_ones_nothing() -> Result<(), StatsError> {
        let judged = |id: &str| BTreeMap::from([(id.to_owned(), 1)]);
        let qrels = Qrels::from([
            ("q1".into(), judged("a")),
            ("q2".into(), judged("b")),
            ("q3".into(), judged("c")),
        ]);
        let run = Rankings::from([
            ("q1".into(), vec!["a".into()]),
            ("q2".into(), vec!["x".into(), "b".into()]),
            ("other".into(), vec!["a".into()]),
        ]);
        let settings = Bootstrap {
            resamples: 200,
            confidence: 0.95,
            seed: 0,
        };
        let report = RetrievalReport::of(&run, &qrels, &[1, 10], settings)?;
        assert_eq!((report.unjudged, report.unanswered), (1, 1));
        assert_eq!(report.metrics["mrr@10"].per_query, [1.0, 0.5, 0.0]);
        assert!(
            report
                .mean("recall@1")
                .is_some_and(|mean| (mean.estimate - 1.0 / 3.0).abs() < 1e-12)
        );
        assert_eq!(report.metrics.len(), 9);
        assert!(
            report.to_text().contains("ndcg@10")
                && report.to_text().contains("; 1 without judgments")
        );
        let lost = |queries: &[&str]| queries.iter().map(|&query| query.to_owned()).collect();
        let without = report.without(&lost(&["q2", "q3"]))?;
        let metric = &without.metrics["mrr@10"];
        assert_eq!(
            (without.queries.len(), &metric.per_query[..]),
            (1, &[1.0][..])
        );
        assert!((metric.mean.estimate - 1.0).abs() < 1e-12);
        let none = report.without(&lost(&["q1", "q2", "q3"]));
        assert_eq!(none, Err(StatsError::Empty));
        assert_eq!(
            RetrievalReport::of(&run, &Qrels::new(), &[1], settings),
            Err(StatsError::Empty)
        );
        Ok(())
    }
}

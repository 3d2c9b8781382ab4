//! The numbers of one set of episodes: every metric with its interval.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use forage_contracts::Episode;
use serde::{Deserialize, Serialize};

use crate::measures::{
    OF_ANSWERS, QuestionKey, by_question, clusters, display_rank, headline, is_share, or_reward,
    score, sources,
};
use crate::stats::{
    Bootstrap, Interval, StatsError, bootstrap_mean, cluster_means, macro_average, mean_interval,
};
use crate::text;

/// A note below the numbers of a script's episodes.
pub(crate) const IN_BYTES: &str = "counts of tokens, such as policy_tokens, are bytes here, as a script has no tokenizer; its \
     limits are wider than a model's\n";

/// A row of a table: a name, a mean with its interval, and the number of questions or data sets.
type Row = (String, Interval, String);

/// A metric's mean over questions, and how many questions had it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Mean with its interval.
    #[serde(flatten)]
    pub interval: Interval,
    /// Questions with at least one value.
    pub questions: usize,
}

/// Metrics of a part of the questions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GroupSummary {
    /// Questions with a scored episode.
    pub questions: usize,
    /// Every metric by name.
    pub metrics: BTreeMap<String, Metric>,
}

/// One evaluation in numbers. Infrastructure faults are counted and are in no other number.
///
/// Intervals are over questions, not episodes, so several samples of a question do not feign certainty: by resampling
/// questions, or Wilson's where each is right or wrong (`mean_interval`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvalSummary {
    /// Questions with a scored episode.
    pub questions: usize,
    /// Scored episodes.
    pub episodes: usize,
    /// Episodes lost to infrastructure faults.
    pub infra: usize,
    /// Every metric by name (`docs/metrics.md`).
    pub metrics: BTreeMap<String, Metric>,
    /// The metrics by number of hops; 0 means unknown.
    pub(crate) by_hops: BTreeMap<u8, GroupSummary>,
    /// The metrics by data set; by data set and split (`nq, dev`) where the questions are of several splits.
    #[serde(default)]
    pub(crate) by_source: BTreeMap<String, GroupSummary>,
    /// Means over the data sets that have a metric, each counted once whatever its number of questions; where there are several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) macro_average: BTreeMap<String, Interval>,
    /// Whether counts of tokens are bytes: a script wrote the episodes, and has no tokenizer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) in_bytes: bool,
    /// The settings of the intervals.
    pub bootstrap: Bootstrap,
}

impl EvalSummary {
    /// Summarises episodes; several per question are allowed.
    ///
    /// # Errors
    /// [`StatsError`] when the bootstrap's settings are out of range or a score is not finite. Having no scored episodes is not an
    /// error: the summary then has no metrics.
    pub fn from_episodes(episodes: &[Episode], bootstrap: Bootstrap) -> Result<Self, StatsError> {
        let scored: Vec<&Episode> = episodes
            .iter()
            .filter(|episode| score(episode).is_some())
            .collect();
        let questions = by_question(scored.iter().copied());
        let metrics = summarise(&questions, bootstrap)?;
        let names = sources(&questions);
        let hops = |_: &QuestionKey, episode: &Episode| episode.task.hops;
        let source = |key: &QuestionKey, _: &Episode| names.get(key).cloned().unwrap_or_default();
        let by_source = grouped(&questions, source, &metrics, bootstrap)?;
        Ok(Self {
            questions: questions.len(),
            episodes: scored.len(),
            infra: episodes.len() - scored.len(),
            by_hops: grouped(&questions, hops, &metrics, bootstrap)?,
            macro_average: average(&by_source),
            by_source,
            metrics,
            in_bytes: episodes.first().is_some_and(Episode::is_in_bytes),
            bootstrap,
        })
    }

    /// One metric, if any episode had it.
    pub fn metric(&self, name: &str) -> Option<Interval> {
        self.metrics.get(name).map(|metric| metric.interval)
    }

    /// Names of the metrics in the order tables show them.
    pub(crate) fn metric_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.metrics.keys().map(String::as_str).collect();
        names.sort_by_key(|name| display_rank(name));
        names
    }

    /// An aligned table of every metric with its interval, exact match by hops and by data set, and one line of counts.
    pub fn to_text(&self) -> String {
        let row = |(name, found, count): Row| {
            let mut row = text::row(&name, found);
            row.push(count);
            row
        };
        let interval = self.bootstrap.label();
        let rows = self
            .rows(&Self::unearned(&[self]))
            .into_iter()
            .map(row)
            .collect();
        let table = text::table(&["metric", "mean", &interval, "questions"], rows);
        let bytes = if self.in_bytes { IN_BYTES } else { "" };
        format!("{table}{}{bytes}", self.counts())
    }

    /// The same of several evaluations in one table, a column each; of one by itself its own table under its name.
    pub fn beside(named: &[(&str, &Self)]) -> String {
        let [(name, first), others @ ..] = named else {
            return String::new();
        };
        if others.is_empty() {
            return format!("{name}\n{}", first.to_text());
        }
        let all: Vec<&Self> = named.iter().map(|(_, summary)| *summary).collect();
        let unearned = Self::unearned(&all);
        let mut rows: Vec<Vec<String>> = Vec::new();
        for (place, (_, summary)) in named.iter().enumerate() {
            for (name, found, count) in summary.rows(&unearned) {
                let known = rows.iter().position(|row| row[0] == name);
                let known = known.unwrap_or_else(|| {
                    let missing = vec!["–".to_owned(); named.len()];
                    rows.push([vec![name], missing].concat());
                    rows.len() - 1
                });
                let of = if count == summary.questions.to_string() {
                    String::new()
                } else {
                    format!(" of {count}")
                };
                rows[known][1 + place] = text::interval(found) + &of;
            }
        }
        let names = named.iter().map(|(name, _)| *name);
        let header: Vec<&str> = std::iter::once("metric").chain(names).collect();
        let mut shown = text::table(&header, rows);
        let _ = writeln!(shown, "means with their {}", first.bootstrap.label());
        for (name, summary) in named {
            let _ = write!(shown, "{name}: {}", summary.counts());
        }
        if named.iter().any(|(_, summary)| summary.in_bytes) {
            shown.push_str(IN_BYTES);
        }
        shown
    }

    /// The metrics of answers that none of these evaluations earned any of, where the environment pays for turns and no answer is right.
    fn unearned(all: &[&Self]) -> Vec<&'static str> {
        let is_earned = |name: &str| {
            let mut found = all.iter().filter_map(|one| one.metrics.get(name));
            found.any(|metric| metric.interval.estimate > 0.0)
        };
        let pays_turns = all.iter().any(|one| one.metrics.contains_key("return"));
        let measure = all.first().map_or("reward", |one| headline(&one.metrics));
        if or_reward(measure, pays_turns, is_earned(measure)) == measure {
            return Vec::new();
        }
        let mut names = OF_ANSWERS.to_vec();
        names.retain(|name| !is_earned(name));
        names
    }

    /// The rows of its table without those of the `unearned` metrics: names, means with their intervals, numbers of questions or data sets.
    fn rows(&self, unearned: &[&str]) -> Vec<Row> {
        let row = |name: &str, metric: &Metric| {
            (
                name.to_owned(),
                metric.interval,
                metric.questions.to_string(),
            )
        };
        let mut rows = Vec::new();
        for name in self.metric_names() {
            rows.push(row(name, &self.metrics[name]));
        }
        for (hops, group) in &self.by_hops {
            if let Some(metric) = group.metrics.get("em").filter(|_| self.by_hops.len() > 1) {
                rows.push(row(&format!("em, {}", hops_label(*hops)), metric));
            }
        }
        let headline = headline(&self.metrics);
        for (source, group) in self.by_source.iter().filter(|_| self.by_source.len() > 1) {
            if let Some(metric) = group.metrics.get(headline) {
                rows.push(row(&format!("{headline}, {source}"), metric));
            }
        }
        if let Some(average) = self.macro_average.get(headline) {
            let groups = self.by_source.values();
            let sets = groups.filter(|group| group.metrics.contains_key(headline));
            let name = format!("{headline}, macro average");
            rows.push((name, *average, format!("{} sets", sets.count())));
        }
        rows.retain(|(name, ..)| {
            let metric = name.split_once(", ").map_or(&**name, |(metric, _)| metric);
            !unearned.contains(&metric)
        });
        rows
    }

    /// One line of counts.
    fn counts(&self) -> String {
        format!(
            "{} questions, {} episodes; {} lost to infrastructure faults (in no number above)\n",
            self.questions, self.episodes, self.infra
        )
    }
}

/// `2 hops`, `1 hop`, `unknown hops`.
pub(crate) fn hops_label(hops: u8) -> String {
    match hops {
        0 => "unknown hops".to_owned(),
        1 => "1 hop".to_owned(),
        more => format!("{more} hops"),
    }
}

/// Sizes of what rounding leaves of nothing.
const NOTHING: f64 = 1e-9;

/// A number at the precision its size deserves.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= text::LARGE => format!("{value:.1e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size < NOTHING => "0.000".to_owned(),
        // Three decimals would show none of its digits.
        size if size < 5e-4 => format!("{value:.1e}"),
        _ => format!("{value:.3}"),
    }
}

type Questions<'a> = BTreeMap<QuestionKey, Vec<&'a Episode>>;

/// The metrics of each part of the questions; those of the whole where there is one part.
fn grouped<K: Ord>(
    questions: &Questions<'_>,
    part: impl Fn(&QuestionKey, &Episode) -> K,
    whole: &BTreeMap<String, Metric>,
    bootstrap: Bootstrap,
) -> Result<BTreeMap<K, GroupSummary>, StatsError> {
    let mut groups: BTreeMap<K, Questions<'_>> = BTreeMap::new();
    for (key, episodes) in questions {
        if let Some(first) = episodes.first() {
            groups
                .entry(part(key, first))
                .or_default()
                .insert(key.clone(), episodes.clone());
        }
    }
    let one = groups.len() == 1;
    let summary = |(part, group): (K, Questions<'_>)| {
        let metrics = if one {
            whole.clone()
        } else {
            summarise(&group, bootstrap)?
        };
        let questions = group.len();
        Ok((part, GroupSummary { questions, metrics }))
    };
    groups.into_iter().map(summary).collect()
}

/// The macro average of each metric over the groups that have it; empty of fewer than two groups.
fn average(groups: &BTreeMap<String, GroupSummary>) -> BTreeMap<String, Interval> {
    if groups.len() < 2 {
        return BTreeMap::new();
    }
    let mut intervals: BTreeMap<&String, Vec<Interval>> = BTreeMap::new();
    for (name, metric) in groups.values().flat_map(|group| &group.metrics) {
        intervals.entry(name).or_default().push(metric.interval);
    }
    let average =
        |(name, found): (&String, Vec<Interval>)| Some((name.clone(), macro_average(&found)?));
    intervals.into_iter().filter_map(average).collect()
}

fn summarise(
    questions: &Questions<'_>,
    bootstrap: Bootstrap,
) -> Result<BTreeMap<String, Metric>, StatsError> {
    let mut metrics = BTreeMap::new();
    for (name, values) in clusters(questions) {
        let samples: Vec<Vec<f64>> = values.into_values().collect();
        let interval = if is_share(&name) {
            mean_interval
        } else {
            bootstrap_mean
        };
        let interval = interval(&cluster_means(&samples), bootstrap)?;
        metrics.insert(
            name,
            Metric {
                interval,
                questions: samples.len(),
            },
        );
    }
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn small_numbers_keep_their_digits_and_rests_of_rounding_do_not() {
        for (value, shown) in [
            (0.0, "0.000"),
            (-1e-17, "0.000"),
            (6.8e-7, "6.8e-7"),
            (-3e-4, "-3.0e-4"),
            (5e-4, "0.001"),
            (-0.25, "-0.250"),
            (12.34, "12.3"),
            (1234.4, "1234"),
        ] {
            assert_eq!(number(value), shown, "{value:e}");
        }
    }
}

//! The items of one set of episodes.

use std::collections::BTreeMap;

use forage_contracts::{Episode, Item, Reading};
use forage_env::{Alarm, Example};
use serde::{Deserialize, Serialize};

use super::items::{self, every, find, limit};
use super::reading::read;
use super::{EXAMPLES, LEAST_EPISODES};
use crate::measures::QuestionKey;
use crate::stats::{
    Bootstrap, Interval, StatsError, bootstrap_clusters, cluster_means, mean_interval,
};
use crate::summary::{IN_BYTES, number};
use crate::text;

/// One item of a set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SetItem {
    /// Mean over questions, with its interval over questions.
    #[serde(flatten)]
    pub interval: Interval,
    /// Episodes that have the item.
    pub episodes: usize,
}

/// The behaviour of a policy in one set of episodes, an evaluation for instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Scored episodes.
    pub episodes: usize,
    /// Episodes lost to infrastructure faults, which have no items.
    pub infra: usize,
    /// Every item that some episode has, by name.
    pub(crate) items: BTreeMap<String, SetItem>,
    /// Items above their thresholds, in the order of tables.
    pub alarms: Vec<Alarm>,
    /// True when tokens are counted as bytes, as for scripted policies, which have no tokenizer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) in_bytes: bool,
    /// The settings of the intervals.
    pub bootstrap: Bootstrap,
}

impl Telemetry {
    /// Reads episodes; several per question are allowed. An alarm is raised where the whole interval of an item lies above
    /// its threshold.
    ///
    /// # Errors
    /// [`StatsError`] when the bootstrap's settings are out of range.
    pub fn from_episodes(episodes: &[Episode], bootstrap: Bootstrap) -> Result<Self, StatsError> {
        let readings: Vec<Reading<'_>> = episodes.iter().filter_map(read).collect();
        let (mut items, mut alarms) = (BTreeMap::new(), Vec::new());
        for item in every() {
            let (values, examples) = find(item, &readings, EXAMPLES);
            let mut clusters: BTreeMap<QuestionKey, Vec<f64>> = BTreeMap::new();
            for (reading, value) in &values {
                let question = QuestionKey::of(reading.episode);
                clusters.entry(question).or_default().push(*value);
            }
            if clusters.is_empty() {
                continue;
            }
            let samples: Vec<Vec<f64>> = clusters.into_values().collect();
            // What has a threshold is a share; other items may count something.
            let interval = match item.threshold {
                Some(_) => mean_interval(&cluster_means(&samples), bootstrap)?,
                None => bootstrap_clusters(&samples, bootstrap)?,
            };
            let found = SetItem {
                interval,
                episodes: values.len(),
            };
            alarms.extend(alarm(item, &found, examples, bootstrap));
            items.insert(item.name.to_owned(), found);
        }
        Ok(Self {
            episodes: readings.len(),
            infra: episodes.len() - readings.len(),
            items,
            alarms,
            in_bytes: episodes.first().is_some_and(Episode::is_in_bytes),
            bootstrap,
        })
    }

    /// One item's mean, if any episode had it.
    pub fn item(&self, name: &str) -> Option<Interval> {
        self.items.get(name).map(|item| item.interval)
    }

    /// An aligned table of the items and the counts, then the alarms.
    pub fn to_text(&self) -> String {
        let interval = self.bootstrap.label();
        let rows = every().filter_map(|item| {
            let SetItem { interval, episodes } = *self.items.get(item.name)?;
            Some(vec![
                item.name.to_owned(),
                number(interval.estimate),
                text::ends(interval),
                episodes.to_string(),
                limit(item),
            ])
        });
        let table = text::table(
            &["item", "mean", &interval, "episodes", "threshold"],
            rows.collect(),
        );
        let counts = format!(
            "{} episodes; {} lost to infrastructure faults\n",
            self.episodes, self.infra
        );
        let alarms: String = self.alarms.iter().map(Alarm::to_text).collect();
        let bytes = if self.in_bytes { IN_BYTES } else { "" };
        [table.as_str(), &counts, bytes, &alarms].concat()
    }
}

fn alarm(
    item: &Item,
    found: &SetItem,
    examples: Vec<Example>,
    bootstrap: Bootstrap,
) -> Option<Alarm> {
    let threshold = item.threshold?;
    let Interval {
        estimate,
        low,
        high,
    } = found.interval;
    let raised = if threshold > 0.0 {
        found.episodes >= LEAST_EPISODES && low > threshold
    } else {
        estimate > threshold
    };
    let evidence = format!(
        "{} ({} {} to {}, {} episodes)",
        number(estimate),
        bootstrap.label(),
        number(low),
        number(high),
        found.episodes
    );
    let judged = [estimate, threshold];
    raised.then(|| items::alarm(item, judged, None, examples, [evidence, String::new()]))
}

//! The items of a training run, step by step.

use std::collections::BTreeMap;

use forage_contracts::{Episode, Item, Reading};
use forage_env::{Alarm, Example};
use serde::{Deserialize, Serialize};

use super::items::{self, every, find, limit};
use super::reading::read;
use super::{EXAMPLES, LEAST_EPISODES};
use crate::measures::QuestionKey;
use crate::stats::{Bootstrap, Interval, StatsError, bootstrap_statistic, mean};
use crate::summary::number;
use crate::text;

/// Steps over which an item is taken when it is held against its threshold: one batch is too few questions.
const SPAN: usize = 3;

/// Mean rewards that are as close are the same.
const SAME_REWARD: f64 = 1e-9;

/// One item of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepItem {
    /// Mean over the episodes that have it.
    pub mean: f64,
    /// The number of those episodes.
    pub episodes: usize,
    /// Standard error of the mean over questions, of an item with a threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
}

/// The items of one training step's episodes: a line of a run's `telemetry.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTelemetry {
    /// The step.
    pub step: u64,
    /// Every item that some episode has, by name.
    pub(crate) items: BTreeMap<String, StepItem>,
    /// An episode for each item above its threshold.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub examples: BTreeMap<String, Example>,
}

impl StepTelemetry {
    /// Reads the episodes of a step.
    pub fn of(step: u64, episodes: &[Episode]) -> Self {
        let readings: Vec<Reading<'_>> = episodes.iter().filter_map(read).collect();
        let (mut items, mut examples) = (BTreeMap::new(), BTreeMap::new());
        for item in every() {
            let (found, example) = find(item, &readings, 1);
            let values: Vec<f64> = found.iter().map(|(_, value)| *value).collect();
            if values.is_empty() {
                continue;
            }
            let (mean, episodes) = (mean(&values), values.len());
            let error = item.threshold.map(|_| error_over_questions(&found, mean));
            let above = item.threshold.is_some_and(|threshold| mean > threshold);
            for example in example.into_iter().filter(|_| above) {
                let step = Some(step);
                examples.insert(item.name.to_owned(), Example { step, ..example });
            }
            let found = StepItem {
                mean,
                episodes,
                error,
            };
            items.insert(item.name.to_owned(), found);
        }
        Self {
            step,
            items,
            examples,
        }
    }

    /// The number of its scored episodes.
    pub fn episodes(&self) -> usize {
        self.items.get("reward").map_or(0, |item| item.episodes)
    }
}

/// The change of an item over a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trend {
    /// Mean over the first quarter of the steps that have it.
    pub first: f64,
    /// Mean over the last quarter.
    pub last: f64,
    /// Last less first, with its interval by resampling steps; absent under eight steps.
    pub change: Option<Interval>,
    /// The step that raised its alarm.
    pub first_alarm: Option<u64>,
}

/// The behaviour of a policy over a training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// First and last step.
    pub steps: [u64; 2],
    /// Every item that some episode has, by name.
    pub(crate) items: BTreeMap<String, Trend>,
    /// The last of the steps over which the reward was best; none where it was the same throughout.
    pub reward_peak: Option<u64>,
    /// The share of the reward's rise that came after the first quarter of the steps, by resampling steps; absent under sixteen
    /// steps and where no rise is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) late_gain: Option<Interval>,
    /// Items that were above their thresholds, in the order of tables.
    pub alarms: Vec<Alarm>,
    /// The settings of the intervals.
    pub bootstrap: Bootstrap,
}

impl Course {
    /// Judges a run by its steps, in their order. An alarm is raised where an item is above its threshold over three
    /// steps together by two standard errors, or at all for a threshold of 0; but not by what a run begins with and unlearns.
    ///
    /// # Errors
    /// [`StatsError`] without steps, for means that are not finite, and when the bootstrap's settings are out of range.
    pub fn of(steps: &[StepTelemetry], bootstrap: Bootstrap) -> Result<Self, StatsError> {
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return Err(StatsError::Empty);
        };
        let reward = series(steps, "reward");
        let reward_peak = peak(&reward);
        let (mut items, mut above) = (BTreeMap::<String, Trend>::new(), Vec::new());
        for item in every() {
            let found = series(steps, item.name);
            if let Some(index) = found.iter().position(|(_, item)| !item.mean.is_finite()) {
                return Err(StatsError::NotFinite { index });
            }
            let Some(mut trend) = trend(&found, bootstrap)? else {
                continue;
            };
            if let Some(raised) = raised(item, &found, trend.last) {
                trend.first_alarm = Some(raised.step);
                above.push((item, raised, trend));
            }
            items.insert(item.name.to_owned(), trend);
        }
        // One that stays where it is has a best step by chance.
        let change = items.get("reward").and_then(|reward| reward.change);
        let change = change.filter(|change| change.is_positive() || change.is_negative());
        let best = reward_peak.zip(change.map(|change| change.is_positive()));
        let alarms = above
            .into_iter()
            .map(|(item, raised, trend)| alarm(item, raised, &trend, steps, best))
            .collect();
        Ok(Self {
            steps: [first.step, last.step],
            items,
            reward_peak,
            late_gain: late_gain(&reward, bootstrap)?,
            alarms,
            bootstrap,
        })
    }

    /// An aligned table of the items, then the alarms.
    pub fn to_text(&self) -> String {
        let (header, rows) = self.table();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let table = text::table(&header, rows);
        let alarms: String = self.alarms.iter().map(Alarm::to_text).collect();
        format!("{table}{}\n{alarms}", self.span())
    }

    /// Head and rows of the table of items.
    pub(crate) fn table(&self) -> ([String; 7], Vec<Vec<String>>) {
        let rows = every().filter_map(|item| {
            let trend = self.items.get(item.name)?;
            let alarm = trend.first_alarm;
            Some(vec![
                item.name.to_owned(),
                number(trend.first),
                number(trend.last),
                number(trend.last - trend.first),
                trend.change.map_or_else(String::new, text::ends),
                limit(item),
                alarm.map_or_else(String::new, |step| step.to_string()),
            ])
        });
        let interval = self.bootstrap.label();
        let header = [
            "item",
            "first quarter",
            "last quarter",
            "change",
            &interval,
            "threshold",
            "sign at step",
        ];
        (header.map(str::to_owned), rows.collect())
    }

    /// Its steps, and where the reward was best.
    pub(crate) fn span(&self) -> String {
        let peak = self.reward_peak.map_or_else(String::new, |step| {
            format!("; over three steps, the reward was best at step {step}")
        });
        format!("steps {} to {}{peak}", self.steps[0], self.steps[1])
    }
}

/// An item by step, where a step has it.
type Series = Vec<(u64, StepItem)>;

fn series(steps: &[StepTelemetry], name: &str) -> Series {
    steps
        .iter()
        .filter_map(|step| Some((step.step, *step.items.get(name)?)))
        .collect()
}

/// Standard error of a mean over episodes of which several answer the same question, and do so alike. One question says nothing of
/// others: its mean counts as a single share.
fn error_over_questions(found: &[(&Reading<'_>, f64)], mean: f64) -> f64 {
    let mut sums: BTreeMap<QuestionKey, f64> = BTreeMap::new();
    for (reading, value) in found {
        *sums.entry(QuestionKey::of(reading.episode)).or_default() += value - mean;
    }
    let questions = sums.len() as f64;
    if sums.len() < 2 {
        return (mean * (1.0 - mean)).max(0.0).sqrt();
    }
    let squares: f64 = sums.values().map(|sum| sum * sum).sum();
    (squares * questions / (questions - 1.0)).sqrt() / found.len() as f64
}

/// Mean over the episodes of some steps, how many they are, and the mean's standard error: steps ask different questions.
fn pooled(steps: &[(u64, StepItem)]) -> StepItem {
    let episodes: usize = steps.iter().map(|(_, item)| item.episodes).sum();
    let all = episodes.max(1) as f64;
    let sum: f64 = steps
        .iter()
        .map(|(_, item)| item.mean * item.episodes as f64)
        .sum();
    let squares: f64 = steps
        .iter()
        .map(|(_, item)| (item.error.unwrap_or(0.0) * item.episodes as f64).powi(2))
        .sum();
    StepItem {
        mean: sum / all,
        episodes,
        error: Some(squares.sqrt() / all),
    }
}

/// The end of the best span; none where every span is as good.
fn peak(reward: &Series) -> Option<u64> {
    let spans: Vec<(u64, f64)> = reward
        .windows(SPAN)
        .map(|span| (span[SPAN - 1].0, pooled(span).mean))
        .collect();
    let best = spans
        .iter()
        .max_by(|(early, a), (late, b)| a.total_cmp(b).then(late.cmp(early)))?;
    let differs = |(_, mean): &(u64, f64)| best.1 - mean > SAME_REWARD;
    spans.iter().any(differs).then_some(best.0)
}

/// Fewer steps have no first quarter that is apart from their beginning.
const LEAST_STEPS: usize = 16;

/// [`Course::late_gain`]: the rise from the end of the first quarter to the last tenth of the steps, of that from the first
/// steps to the last tenth.
fn late_gain(
    reward: &[(u64, StepItem)],
    bootstrap: Bootstrap,
) -> Result<Option<Interval>, StatsError> {
    let count = reward.len();
    if count < LEAST_STEPS {
        return Ok(None);
    }
    let (quarter, half) = (count / 4, (count / 20).max(1));
    let windows = [
        &reward[..SPAN],
        &reward[quarter - half..quarter + half],
        &reward[count - 2 * half..],
    ];
    let values: Vec<(usize, f64)> = (0..)
        .zip(windows)
        .flat_map(|(window, steps)| steps.iter().map(move |(_, item)| (window, item.mean)))
        .collect();
    // Means of the windows; none where a resample left one empty.
    let levels = |items: &[usize]| {
        let mut sums = [(0.0, 0_usize); 3];
        for &item in items {
            let (window, value) = values[item];
            sums[window].0 += value;
            sums[window].1 += 1;
        }
        let full = sums.iter().all(|(_, steps)| *steps > 0);
        full.then(|| sums.map(|(sum, steps)| sum / steps as f64))
    };
    let rise = |items: &[usize]| levels(items).map(|[first, _, last]| last - first);
    let rise = bootstrap_statistic(values.len(), bootstrap, rise)?;
    if !rise.is_some_and(|rise| rise.is_positive()) {
        return Ok(None);
    }
    bootstrap_statistic(values.len(), bootstrap, |items| {
        let [first, quarter, last] = levels(items)?;
        (last > first).then(|| (last - quarter) / (last - first))
    })
}

fn trend(series: &Series, bootstrap: Bootstrap) -> Result<Option<Trend>, StatsError> {
    if series.is_empty() {
        return Ok(None);
    }
    let values: Vec<f64> = series.iter().map(|(_, item)| item.mean).collect();
    let quarter = (values.len() / 4).max(1);
    let (early, late) = (&values[..quarter], &values[values.len() - quarter..]);
    let both = [early, late].concat();
    let change = |items: &[usize]| {
        let (before, after): (Vec<usize>, Vec<usize>) =
            items.iter().partition(|item| **item < quarter);
        let side =
            |items: &[usize]| mean(&items.iter().map(|item| both[*item]).collect::<Vec<_>>());
        (!before.is_empty() && !after.is_empty()).then(|| side(&after) - side(&before))
    };
    let change = if quarter > 1 {
        bootstrap_statistic(both.len(), bootstrap, change)?
    } else {
        None
    };
    Ok(Some(Trend {
        first: mean(early),
        last: mean(late),
        change,
        first_alarm: None,
    }))
}

/// The span of steps in which an item was first above its threshold.
#[derive(Clone, Copy)]
struct Raised {
    /// First step of the span.
    from: u64,
    /// Its last, which raised the alarm.
    step: u64,
    /// The mean and the threshold.
    judged: [f64; 2],
}

/// The first span clearly above the item's threshold, by two standard errors over questions. What a run begins with and has
/// unlearned in its last quarter is what it was trained for.
fn raised(item: &Item, series: &Series, last: f64) -> Option<Raised> {
    let threshold = item.threshold?;
    let (span, least) = if threshold > 0.0 {
        (SPAN, LEAST_EPISODES)
    } else {
        (1, 1)
    };
    let unlearned = last <= threshold && threshold > 0.0;
    let mut spans = series
        .windows(span)
        .skip_while(|steps| unlearned && pooled(steps).mean > threshold);
    spans.find_map(|steps| {
        let StepItem {
            mean,
            episodes,
            error,
        } = pooled(steps);
        // Few questions may agree by chance: the error is at least that of a share of as many independent episodes.
        let share = (mean * (1.0 - mean) / episodes.max(1) as f64)
            .max(0.0)
            .sqrt();
        let error = error.map_or(share, |error| error.max(share));
        let clear = if threshold > 0.0 {
            mean - 2.0 * error > threshold
        } else {
            mean > 0.0
        };
        let [from, step] = [steps[0].0, steps[span - 1].0];
        (episodes >= least && clear).then_some(Raised {
            from,
            step,
            judged: [mean, threshold],
        })
    })
}

/// The alarm of an item; `best` is the step at which a reward that changed was best, and whether it rose.
fn alarm(
    item: &Item,
    raised: Raised,
    trend: &Trend,
    steps: &[StepTelemetry],
    best: Option<(u64, bool)>,
) -> Alarm {
    let Raised { from, step, judged } = raised;
    let examples = steps
        .iter()
        .filter(|other| other.step >= from)
        .filter_map(|step| step.examples.get(item.name))
        .take(EXAMPLES)
        .cloned()
        .collect();
    let reward = match best {
        Some((best, true)) if best > step => {
            format!(" The reward rose on: over three steps, it was best at step {best}.")
        }
        Some((best, _)) => format!(" Over three steps, the reward was best at step {best}."),
        None => String::new(),
    };
    let steps = if from == step {
        format!("at step {step}")
    } else {
        format!("over steps {from} to {step}")
    };
    let evidence = format!("first raised {steps}, at {}", number(judged[0]));
    let outcome = format!(" {} in the last quarter.{reward}", number(trend.last));
    items::alarm(item, judged, Some(step), examples, [evidence, outcome])
}

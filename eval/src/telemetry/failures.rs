//! How two policies fail on the same questions: each way to fail as a share of the episodes, with episodes to look at.

use std::collections::BTreeMap;

use forage_contracts::{Episode, Item, Reading};
use forage_env::Example;
use serde::Serialize;

use super::EXAMPLES;
use super::items::{every, example};
use super::reading::read;
use crate::compare::{Difference, MacroDifference, Values, average, compare_all, compare_sources};
use crate::measures::{QuestionKey, by_question};
use crate::stats::{Bootstrap, StatsError};

/// The items that are ways to fail, and what a policy does there.
const WAYS: [(&str, &str); 5] = [
    ("unsearched_answer", "answers without a search"),
    ("echoed_instructions", "repeats its instructions"),
    ("stray_answer", "sets answer tags around something else"),
    ("unclosed_tag", "leaves a tag open"),
    ("forged_observation", "writes the environment's part"),
];

/// A way to fail.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    /// The item of telemetry.
    pub name: &'static str,
    /// The conduct of the policy.
    pub words: &'static str,
    /// Its share of the scored episodes on both sides; p-values are adjusted for the number of ways.
    pub difference: Difference,
    /// The differences by data set, where there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_source: BTreeMap<String, Difference>,
    /// Each data set counted once, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macro_average: Option<MacroDifference>,
    /// Episodes of each side that fail so.
    pub examples: [Vec<Example>; 2],
}

/// The ways in which one side fails.
#[derive(Default)]
struct Counted {
    /// Values by item and question: 1 for each episode that shows the item, 0 for each other.
    values: BTreeMap<String, BTreeMap<QuestionKey, Vec<f64>>>,
    examples: BTreeMap<&'static str, Vec<Example>>,
}

/// Counts how the two sides fail, question by question. An episode without the item, one that gives no answer for instance, does not
/// fail in its way.
///
/// # Errors
/// [`StatsError`] when the bootstrap's settings are out of range.
pub(crate) fn count_failures(
    [a, b]: [&[Episode]; 2],
    bootstrap: Bootstrap,
) -> Result<Vec<Failure>, StatsError> {
    let sides = [count(a), count(b)];
    let values: [&BTreeMap<String, Values>; 2] = [&sides[0].values, &sides[1].values];
    let mut metrics = compare_all(values, |_| true, bootstrap)?;
    let by_source = compare_sources(&by_question(a), values, bootstrap)?;
    let averages = average(&by_source);
    let of = |(name, words): (&'static str, &'static str)| {
        let difference = metrics.remove(name)?;
        let found = by_source
            .iter()
            .filter_map(|(source, metrics)| Some((source.clone(), *metrics.get(name)?)));
        let shown = |side: &Counted| side.examples.get(name).cloned().unwrap_or_default();
        Some(Failure {
            name,
            words,
            difference,
            by_source: found.collect(),
            macro_average: averages.get(name).copied(),
            examples: [shown(&sides[0]), shown(&sides[1])],
        })
    };
    Ok(WAYS.into_iter().filter_map(of).collect())
}

fn count(episodes: &[Episode]) -> Counted {
    let readings: Vec<Reading<'_>> = episodes.iter().filter_map(read).collect();
    let mut counted = Counted::default();
    for (name, _) in WAYS {
        let Some(item) = every().find(|item| item.name == name) else {
            continue;
        };
        let values = counted.values.entry(name.to_owned()).or_default();
        let examples = counted.examples.entry(name).or_default();
        for reading in &readings {
            let shown = shows(item, reading);
            values
                .entry(QuestionKey::of(reading.episode))
                .or_default()
                .push(f64::from(u8::from(shown.is_some())));
            if let Some(excerpt) = shown.filter(|_| examples.len() < EXAMPLES) {
                examples.push(example(reading.episode, excerpt));
            }
        }
    }
    counted
}

/// The place where an episode shows an item; `None` where it does not.
fn shows(item: &Item, reading: &Reading<'_>) -> Option<String> {
    let sign = item.find(reading).filter(|sign| sign.value > 0.0)?;
    Some(sign.excerpt.unwrap_or_default())
}

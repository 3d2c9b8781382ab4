//! Data sets as often as they still need it: RECAP (Beyond Reasoning Gains, arXiv 2510.21978).
//!
//! The paper replays data of other abilities beside the new task and weighs the objective of each by how it went lately: less where
//! it is settled, more where it stays low or is volatile. Here the data sets of the training questions are what is weighed, and weights
//! say how many of a step's questions come from each. The abstract gives no formula. Assumed: with a the mean accuracy of a data set
//! in each of the last `window` steps that asked it, its priority is
//! c + i, where c is the mean of 1 - a over the newer half of the window divided by that over the whole, near 0 where it is being
//! learned, 1 where it stands still, up to 2 where it is being forgotten, and i is the standard deviation of a over its mean, 0 where
//! it is settled. Weights are the softmax of priorities over `temperature`.

use std::collections::BTreeMap;

use forage_contracts::objective::{Setting, Settings};
use forage_contracts::{CurriculumInputs, Metric};
use rand::RngExt;

use super::walk;

pub(super) const SETTINGS: &[Setting] = &[
    Setting::number("window", "an even number from 2 on", |_, window| {
        window >= 2.0 && window % 2.0 == 0.0
    }),
    Setting::number("temperature", "above 0", |_, temperature| temperature > 0.0),
];

pub(super) fn draw(
    settings: &Settings,
    inputs: &CurriculumInputs<'_>,
    note: &mut dyn FnMut(&'static str, f64),
) -> Vec<usize> {
    let mut sources: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, task) in inputs.questions.iter().enumerate() {
        let places = sources.entry(task.data_source.as_str()).or_default();
        places.push(place);
    }
    let mut source_of = vec![0; inputs.questions.len()];
    for (source, places) in sources.values().enumerate() {
        for &place in places {
            source_of[place] = source;
        }
    }
    let mut drawn = vec![0; sources.len()];
    // `[sources]`: by step, the sum of accuracies and their number. What fills a batch may have been asked after the first questions of
    // later steps.
    let mut steps: Vec<BTreeMap<u64, (f64, f64)>> = vec![BTreeMap::new(); sources.len()];
    for asked in inputs.asked {
        let source = source_of[asked.question];
        drawn[source] += 1;
        let Some(accuracy) = asked.accuracy else {
            continue;
        };
        let accuracy = f64::from(accuracy).clamp(0.0, 1.0);
        let (sum, count) = steps[source].entry(asked.step).or_default();
        *sum += accuracy;
        *count += 1.0;
    }
    let means = |steps: BTreeMap<u64, (f64, f64)>| -> Vec<f64> {
        let outcomes = steps.into_values();
        outcomes.map(|(sum, count)| sum / count).collect()
    };
    let curves: Vec<Vec<f64>> = steps.into_iter().map(means).collect();
    let window = settings.number("window") as usize;
    let weights = weights(&curves, window, settings.number("temperature"));
    note(
        Metric::LARGEST_SHARE,
        weights.iter().copied().fold(0.0, f64::max),
    );
    let seed = inputs.seed.child("recap", &[]);
    let offset = seed
        .child("counts", &[inputs.drawn as u64])
        .rng()
        .random::<f64>();
    let counts = counts(&weights, inputs.count, offset);
    let of_source = |(source, (places, count)): (usize, (&Vec<usize>, usize))| {
        let seed = seed.child("order", &[source as u64]);
        let order = walk(places.len(), drawn[source], count, seed);
        order
            .into_iter()
            .map(|index| places[index])
            .collect::<Vec<_>>()
    };
    let wanted = sources.values().zip(counts).enumerate();
    wanted.flat_map(of_source).collect()
}

/// `[sources]`: the share of each, which sum to 1. `curves`: mean accuracies of each, oldest first. All are alike until the window of each
/// is full.
pub(super) fn weights(curves: &[Vec<f64>], window: usize, temperature: f64) -> Vec<f64> {
    if curves.iter().any(|curve| curve.len() < window) {
        return vec![1.0 / curves.len() as f64; curves.len()];
    }
    let newest = curves.iter().map(|curve| &curve[curve.len() - window..]);
    let priorities: Vec<f64> = newest.map(priority).collect();
    let most = priorities.iter().copied().fold(f64::MIN, f64::max);
    let raised = |priority: &f64| ((priority - most) / temperature).exp();
    let raised: Vec<f64> = priorities.iter().map(raised).collect();
    let total: f64 = raised.iter().sum();
    raised.iter().map(|raised| raised / total).collect()
}

/// How much a data set of these accuracies, oldest first, is to be asked.
fn priority(window: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let accuracy = mean(window);
    let newer = 1.0 - mean(&window[window.len() / 2..]);
    let squares = window.iter().map(|value| (value - accuracy).powi(2));
    let spread = (squares.sum::<f64>() / window.len() as f64).sqrt();
    let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    ratio(newer, 1.0 - accuracy) + ratio(spread, accuracy)
}

/// `[sources]`: systematic sampling of `count` questions: each source within one of its share, and on the average over `offset`, 0 to 1, exactly it.
fn counts(weights: &[f64], count: usize, offset: f64) -> Vec<usize> {
    let (mut share, mut before) = (0.0, 0);
    let mut counts: Vec<usize> = weights
        .iter()
        .map(|weight| {
            share += weight;
            let until = (share * count as f64 - offset).ceil().max(0.0) as usize;
            let until = until.min(count);
            let own = until - before;
            before = until;
            own
        })
        .collect();
    // Rounding may leave the last point of all beyond the sum of the weights.
    if let Some(last) = counts.last_mut() {
        *last += count - before;
    }
    counts
}

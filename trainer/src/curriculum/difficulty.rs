//! Difficulty predicted from similar questions that were asked lately: DOTS (arXiv 2506.05316).
//!
//! The paper plays a reference set anew at every selection, compares questions by embeddings of a language model with a trained
//! head, and calibrates the predictions. Here the questions that the run has just asked are the reference, so nothing is played
//! for it, questions are compared by the words they have in common, predictions stay as they are, and every step chooses, where the
//! paper's every second one does.

use std::collections::{BTreeMap, HashMap};

use forage_contracts::objective::{Setting, Settings};
use forage_contracts::{CurriculumInputs, Metric};
use rand::RngExt;
use rayon::prelude::*;

use super::{COUNT, uniform};

pub(super) const SETTINGS: &[Setting] = &[
    Setting::number("target", "0 to 1", |_, target| {
        (0.0..=1.0).contains(&target)
    }),
    Setting::number("temperature", "above 0", |_, temperature| temperature > 0.0),
    Setting::number("reference", COUNT.0, COUNT.1),
    Setting::number("attention", "above 0", |_, attention| attention > 0.0),
];

pub(super) fn draw(
    settings: &Settings,
    inputs: &CurriculumInputs<'_>,
    note: &mut dyn FnMut(&'static str, f64),
) -> Vec<usize> {
    let size = settings.number("reference") as usize;
    let known = inputs.asked.iter().rev().filter_map(|asked| {
        let accuracy = f64::from(asked.accuracy?).clamp(0.0, 1.0);
        Some((asked.question, 1.0 - accuracy))
    });
    let reference: Vec<(usize, f64)> = known.take(size).collect();
    if reference.len() < size {
        return uniform(inputs);
    }
    let texts = inputs.questions.iter().map(|task| task.question.as_str());
    let predicted = predict(&vectors(texts), &reference, settings.number("attention"));
    let [target, temperature] = ["target", "temperature"].map(|name| settings.number(name));
    // The largest of logarithms of weights with Gumbel noise are a sample without repetition.
    let mut rng = inputs
        .seed
        .child("difficulty", &[inputs.drawn as u64])
        .rng();
    let keys: Vec<f64> = predicted
        .iter()
        .map(|predicted| {
            let noise = -(-rng.random::<f64>().ln()).ln();
            noise - (predicted - target).abs() / temperature
        })
        .collect();
    let mut again = vec![false; keys.len()];
    for asked in inputs
        .asked
        .iter()
        .filter(|asked| asked.step == inputs.step)
    {
        again[asked.question] = true;
    }
    let mut order: Vec<usize> = (0..keys.len()).collect();
    // A step asks a question twice only when it has asked all.
    order.sort_by(|&one, &other| {
        let keys = keys[other].total_cmp(&keys[one]);
        again[one]
            .cmp(&again[other])
            .then(keys)
            .then(one.cmp(&other))
    });
    let drawn: Vec<usize> = order.into_iter().cycle().take(inputs.count).collect();
    let sum: f64 = drawn.iter().map(|&place| predicted[place]).sum();
    note(Metric::DIFFICULTY, sum / drawn.len() as f64);
    drawn
}

/// Words by number, with their weights.
type Vector = Vec<(usize, f64)>;

/// A vector of length 1 for each text: how often each word comes, times ln((1 + texts) / (1 + texts with the word)) + 1. A text
/// without words has an empty one.
pub(super) fn vectors<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<Vector> {
    let (mut numbers, mut with) = (HashMap::new(), Vec::new());
    let mut rows: Vec<BTreeMap<usize, f64>> = Vec::new();
    for text in texts {
        let mut row = BTreeMap::new();
        let words = text.split(|letter: char| !letter.is_alphanumeric());
        for word in words.filter(|word| !word.is_empty()) {
            let next = numbers.len();
            let number = *numbers.entry(word.to_lowercase()).or_insert(next);
            *row.entry(number).or_insert(0.0) += 1.0;
        }
        with.resize(numbers.len(), 0.0);
        for &number in row.keys() {
            with[number] += 1.0;
        }
        rows.push(row);
    }
    let all = rows.len() as f64;
    let weigh = |row: BTreeMap<usize, f64>| {
        let rarity = |number: usize| ((1.0 + all) / (1.0 + with[number])).ln() + 1.0;
        let mut vector: Vector = row
            .into_iter()
            .map(|(number, times)| (number, times * rarity(number)))
            .collect();
        let squares: f64 = vector.iter().map(|(_, weight)| weight * weight).sum();
        let length = squares.sqrt();
        for (_, weight) in &mut vector {
            *weight /= length;
        }
        vector
    };
    rows.into_iter().map(weigh).collect()
}

/// `[vectors]`: predicted difficulties. `reference`: places and difficulties of questions that were asked; at least one.
pub(super) fn predict(vectors: &[Vector], reference: &[(usize, f64)], attention: f64) -> Vec<f64> {
    let mut with: HashMap<usize, Vec<(usize, f64)>> = HashMap::new();
    for (place, (question, _)) in reference.iter().enumerate() {
        for &(word, weight) in &vectors[*question] {
            with.entry(word).or_default().push((place, weight));
        }
    }
    let of = |vector: &Vector| {
        let mut similar = vec![0.0; reference.len()];
        for (word, weight) in vector {
            for &(place, other) in with.get(word).into_iter().flatten() {
                similar[place] += weight * other;
            }
        }
        let most = similar.iter().copied().fold(0.0, f64::max);
        let (mut sum, mut total) = (0.0, 0.0);
        for (similar, (_, difficulty)) in similar.iter().zip(reference) {
            let weight = ((similar - most) / attention).exp();
            sum += weight * difficulty;
            total += weight;
        }
        sum / total
    };
    vectors.par_iter().map(of).collect()
}

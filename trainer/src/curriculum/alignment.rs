//! Questions whose rewards run along with the mean: LIMR (arXiv 2502.11886).

use forage_contracts::objective::{Setting, Settings};
use forage_contracts::{Asked, CurriculumInputs, Metric};

use super::{COUNT, uniform, walk};

pub(super) const SETTINGS: &[Setting] = &[
    Setting::number("epochs", COUNT.0, COUNT.1),
    Setting::number("threshold", "below 1", |_, threshold| threshold < 1.0),
];

/// A step that begins within the measured epochs is asked as they are; the questions that are left are walked through after it.
pub(super) fn draw(
    settings: &Settings,
    inputs: &CurriculumInputs<'_>,
    note: &mut dyn FnMut(&'static str, f64),
) -> Vec<usize> {
    let (epochs, all) = (settings.number("epochs") as usize, inputs.questions.len());
    let measured = epochs.saturating_mul(all);
    if inputs.drawn < measured {
        note(Metric::QUESTIONS_LEFT, all as f64);
        return uniform(inputs);
    }
    let left = left(inputs.asked, all, epochs, settings.number("threshold"));
    note(Metric::QUESTIONS_LEFT, left.len() as f64);
    let seed = inputs.seed.child("alignment", &[]);
    walk(left.len(), inputs.drawn - measured, inputs.count, seed)
        .into_iter()
        .map(|place| left[place])
        .collect()
}

/// The questions of an alignment above the threshold, and those of which nothing is known; all of them where that would be none.
fn left(asked: &[Asked], questions: usize, epochs: usize, threshold: f64) -> Vec<usize> {
    let scores = scores(asked, questions, epochs);
    let stays = |&place: &usize| scores[place].is_none_or(|score| score > threshold);
    let left: Vec<usize> = (0..questions).filter(stays).collect();
    if left.is_empty() {
        return (0..questions).collect();
    }
    left
}

/// `[questions]`: the alignment of each over the first `epochs` times that it was asked; none where no outcome of it is known.
/// Outcomes that are lost are left out of both sums and of the mean.
pub(super) fn scores(asked: &[Asked], questions: usize, epochs: usize) -> Vec<Option<f64>> {
    let mut curves: Vec<Vec<Option<f64>>> = vec![Vec::new(); questions];
    for asked in asked {
        let curve = &mut curves[asked.question];
        if curve.len() < epochs {
            curve.push(asked.accuracy.map(f64::from));
        }
    }
    let mean = |epoch: usize| {
        let known: Vec<f64> = curves
            .iter()
            .filter_map(|curve| *curve.get(epoch)?)
            .collect();
        known.iter().sum::<f64>() / known.len() as f64
    };
    let means: Vec<f64> = (0..epochs).map(mean).collect();
    let score = |curve: &Vec<Option<f64>>| {
        let known = curve.iter().zip(&means);
        let known: Vec<(f64, f64)> = known
            .filter_map(|(accuracy, &mean)| Some(((*accuracy)?, mean)))
            .collect();
        let apart: f64 = known.iter().map(|(own, mean)| (own - mean).powi(2)).sum();
        let most: f64 = known.iter().map(|(_, mean)| (1.0 - mean).powi(2)).sum();
        // Where every question was right whenever it was asked, all are on the mean.
        let share = if most > 0.0 { apart / most } else { 0.0 };
        (!known.is_empty()).then_some(1.0 - share)
    };
    curves.iter().map(score).collect()
}

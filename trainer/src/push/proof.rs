//! Weights that are changed on purpose, far enough for a server that has them to be told from one that has not.

use super::own;
use crate::lora;
use crate::model::Decoder;
use crate::student::Student;
use crate::weights::Checkpoint;

/// Factors of the last norm and of the head by which whole weights are changed on purpose. The first that moves log-probabilities far
/// enough is pushed; flat logits come before steep ones, which round more.
const FACTORS: [f64; 6] = [0.5, 0.25, 2.0, 4.0, 8.0, 16.0];
/// Largest numbers added to the second matrices of an adapter that is changed on purpose.
const SHIFTS: [f64; 9] = [
    0.015_625, 0.031_25, 0.062_5, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0,
];

/// The student's weights, changed so that their log-probabilities of the texts are at least so far away on average, nats; beside them
/// that distance. `None` where no change moves them so far.
pub(super) fn changed(
    student: &Student,
    texts: &[Vec<u32>],
    least: f64,
) -> Option<(Checkpoint, f64)> {
    let checkpoint = student.checkpoint();
    let adapted = checkpoint.lora.is_some();
    let amounts: &[f64] = if adapted { &SHIFTS } else { &FACTORS };
    let logprobs = |decoder: &Decoder| -> Vec<f32> {
        let of = |text: &Vec<u32>| own(student, decoder, text, 1);
        texts.iter().flat_map(of).collect()
    };
    let before = logprobs(&checkpoint.decoder);
    amounts.iter().find_map(|&amount| {
        let mut changed = checkpoint.clone();
        if adapted {
            lora::shift(&mut changed.decoder, amount);
        } else {
            changed.decoder = changed.decoder.scaled(amount);
        }
        let after = logprobs(&changed.decoder);
        let distances = before.iter().zip(&after);
        let sum: f64 = distances
            .map(|(before, after)| (f64::from(*before) - f64::from(*after)).abs())
            .sum();
        let moved = sum / before.len().max(1) as f64;
        (moved >= least).then_some((changed, moved))
    })
}

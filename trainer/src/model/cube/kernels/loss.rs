//! The softmax of a loss: log-probabilities and entropies of targets from logits, and back. A cube takes one target; logits are
//! replaced by derivatives, and nothing else has their size.

use cubecl::prelude::*;

use super::attention::UNSEEN;
use super::sum::{max_of_units, sum_of_units};

/// The logarithm of the sum of exponentiated logits of a row at an inverse temperature, and the entropy of its softmax, nats.
#[cube]
fn softmax_of_row(
    logits: &[f32],
    first: usize,
    vocabulary: usize,
    inverse: f32,
    #[comptime] units: usize,
) -> (f32, f32) {
    let unit = UNIT_POS as usize;
    let mut largest = UNSEEN.runtime();
    let mut place = unit;
    while place < vocabulary {
        largest = max(largest, logits[first + place] * inverse);
        place += units;
    }
    let top = max_of_units(largest, units);
    let mut total = 0.0f32;
    let mut weighed = 0.0f32;
    place = unit;
    while place < vocabulary {
        let below = logits[first + place] * inverse - top;
        let share = below.exp();
        total += share;
        weighed += share * below;
        place += units;
    }
    let total = sum_of_units(total, units);
    let weighed = sum_of_units(weighed, units);
    let rest = total.ln();
    (top + rest, rest - weighed / total)
}

/// `scores`, `[row, 2]`: ln p(id) and the entropy, nats.
#[cube(launch)]
pub(in super::super) fn token_scores(
    logits: &[f32],
    ids: &[i32],
    scores: &mut [f32],
    vocabulary: u32,
    inverse: f32,
    #[comptime] units: usize,
) {
    let vocabulary = vocabulary as usize;
    let row = CUBE_POS_X as usize;
    let first = row * vocabulary;
    let (level, entropy) = softmax_of_row(logits, first, vocabulary, inverse, units);
    if UNIT_POS == 0 {
        scores[row * 2] = logits[first + ids[row] as usize] * inverse - level;
        scores[row * 2 + 1] = entropy;
    }
}

/// Derivatives by the logits, in their place, from those by log-probability and entropy, `grads`, `[row, 2]`: with these g and h,
/// (g (1\[id\] - p) - h p (ln p + H)) / T.
#[cube(launch)]
pub(in super::super) fn logit_grads(
    logits: &mut [f32],
    ids: &[i32],
    grads: &[f32],
    vocabulary: u32,
    inverse: f32,
    #[comptime] units: usize,
) {
    let vocabulary = vocabulary as usize;
    let row = CUBE_POS_X as usize;
    let unit = UNIT_POS as usize;
    let first = row * vocabulary;
    let (level, entropy) = softmax_of_row(&*logits, first, vocabulary, inverse, units);
    // Other units still read what is written below.
    sync_cube();
    let by_logprob = grads[row * 2];
    let by_entropy = grads[row * 2 + 1];
    let id = ids[row] as usize;
    let mut place = unit;
    while place < vocabulary {
        let logprob = logits[first + place] * inverse - level;
        let share = logprob.exp();
        let mut grad = -share * (by_logprob + by_entropy * (logprob + entropy));
        if place == id {
            grad += by_logprob;
        }
        logits[first + place] = grad * inverse;
        place += units;
    }
}

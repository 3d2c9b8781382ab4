//! Attacks on a ranking by word substitution: the words of a passage far down are replaced by near words so that it rises.
//!
//! Greedy, on scores alone, as PRADA (Practical Black-Box Adversarial Attacks against Neural Ranking Models, arXiv 2204.01321) is, but
//! every word is tried at every step where PRADA settles beforehand which words matter.

use super::synonyms::{Choice, Words};
use crate::error::Result;

/// Scores texts in the place of a passage.
pub(super) type Score<'a, T> = dyn Fn(&[String]) -> Result<Vec<T>> + 'a;

/// Texts that are scored together: a long passage with many substitutes has more than memory holds.
const AT_ONCE: usize = 256;

/// Replaces up to `budget` words one after another, each time the one by the substitute that raises the score most, until none
/// raises it. Gives the score reached from `score`, that of the text as written.
pub(super) fn raise(
    words: &Words<'_>,
    scores: &Score<'_, f32>,
    score: f32,
    budget: usize,
) -> Result<f32> {
    let mut choices: Vec<Choice> = vec![None; words.len()];
    let mut reached = score;
    for _ in 0..budget {
        let mut tried = Vec::new();
        for (place, count) in words.substitutes().enumerate() {
            if choices[place].is_none() {
                tried.extend((1..=count).map(|choice| (place, choice)));
            }
        }
        let mut best = None;
        for some in tried.chunks(AT_ONCE) {
            let mut texts = Vec::with_capacity(some.len());
            for &(place, choice) in some {
                choices[place] = Some(choice);
                texts.push(words.render(&choices));
                choices[place] = None;
            }
            for (&replaced, score) in some.iter().zip(scores(&texts)?) {
                if score > reached {
                    (best, reached) = (Some(replaced), score);
                }
            }
        }
        let Some((place, choice)) = best else { break };
        choices[place] = Some(choice);
    }
    Ok(reached)
}

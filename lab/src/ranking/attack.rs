//! Attacks on a ranking by word substitution: the words of a passage far down are replaced by near words so that it rises.
//!
//! Greedy, on scores alone, as PRADA (Practical Black-Box Adversarial Attacks against Neural Ranking Models, arXiv 2204.01321) is, but
//! every word is tried at every step where PRADA settles beforehand which words matter.

use super::synonyms::{Choice, Words};
use crate::error::Result;

/// Scores texts in the place of a passage.
pub(super) type Score<'a, T> = dyn Fn(&[String]) -> Result<Vec<T>> + 'a;

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
        let mut texts = Vec::new();
        for (place, count) in words.substitutes().enumerate() {
            if choices[place].is_some() {
                continue;
            }
            for choice in 1..=count {
                choices[place] = Some(choice);
                texts.push(words.render(&choices));
                tried.push((place, choice));
            }
            choices[place] = None;
        }
        let scored = tried.into_iter().zip(scores(&texts)?);
        let best = scored.reduce(|best, next| if next.1 > best.1 { next } else { best });
        match best {
            Some(((place, choice), score)) if score > reached => {
                choices[place] = Some(choice);
                reached = score;
            }
            _ => break,
        }
    }
    Ok(reached)
}

//! Certified robustness of a ranked list to word substitution: `CertDR` (Certified Robustness to Word Substitution Ranking Attack for
//! Neural Ranking Models, arXiv 2209.06691), whose bound is SAFER's (arXiv 2005.14424).
//!
//! The smoothed score of a passage is the mean score, in [0, 1], of its text with every word drawn evenly from the word's set: the
//! word and its substitutes. Where one word is replaced by another, the draws of both have in common what their sets share, as a
//! share of the larger set. So with probability `p`, the product of the smallest of these shares, one for each word that an
//! attack may replace, the attacked text is smoothed to the same text as before, and its smoothed score is higher by at most
//! `1 - p`. A list is certified when no passage behind the first K gets past the K-th that way: then no attack brings one of them
//! among the first K of the smoothed ranker. About the ranker itself the certificate says nothing.

use forage_contracts::seed::Seed;

use super::attack::Score;
use super::synonyms::{Choice, Words};
use crate::error::Result;

/// The probability with which all bounds of a list hold, where texts are drawn.
const CONFIDENCE: f64 = 0.95;
/// Margins below it may be rounding.
const ROUNDING: f64 = 1e-6;

/// The smoothed score of a passage.
pub(super) struct Smoothed {
    pub(super) mean: f64,
    /// Texts that the mean is of, where they were drawn; `None` where it is of all there are.
    pub(super) drawn: Option<usize>,
    /// The most that an attack adds.
    pub(super) change: f64,
}

impl Smoothed {
    /// Smooths over all texts where there are at most `samples` of them, else over so many drawn ones. An attack may replace
    /// `budget` words.
    pub(super) fn of(
        words: &Words<'_>,
        scores: &Score<'_, f64>,
        samples: usize,
        budget: usize,
        seed: Seed,
    ) -> Result<Self> {
        let sizes: Vec<usize> = words.substitutes().map(|count| count + 1).collect();
        let all = sizes.iter().try_fold(1_usize, |all, size| {
            all.checked_mul(*size).filter(|all| *all <= samples)
        });
        let texts: Vec<String> = (0..all.unwrap_or(samples))
            .map(|number| {
                let mut rest = number;
                let choose = |(place, size): (usize, &usize)| -> Choice {
                    if all.is_none() {
                        let draw = seed.child("word", &[number as u64, place as u64]);
                        return Some((draw.0 % *size as u64) as usize);
                    }
                    // The digits of the number, each in the base of its word.
                    let digit = rest % size;
                    rest /= size;
                    Some(digit)
                };
                let choices: Vec<Choice> = sizes.iter().enumerate().map(choose).collect();
                words.render(&choices)
            })
            .collect();
        let sum: f64 = scores(&texts)?.into_iter().sum();
        let mut overlaps: Vec<f64> = words.overlaps().collect();
        overlaps.sort_by(f64::total_cmp);
        let kept: f64 = overlaps.iter().take(budget).product();
        Ok(Self {
            mean: sum / texts.len() as f64,
            drawn: all.is_none().then_some(texts.len()),
            change: 1.0 - kept,
        })
    }

    /// The distance that the true mean may have (Hoeffding), where `count` means may be wrong: to either side, because the means
    /// themselves decide which passages are the first.
    fn slack(&self, count: usize) -> f64 {
        let wrong = (1.0 - CONFIDENCE) / (2 * count) as f64;
        self.drawn
            .map_or(0.0, |drawn| (-wrong.ln() / (2.0 * drawn as f64)).sqrt())
    }
}

/// How far the lowest of the first `top` passages stays above the highest that an attack makes of the others, at worst.
pub(super) fn margin(list: &[Smoothed], top: usize) -> f64 {
    let drawn = list.iter().filter(|one| one.drawn.is_some()).count();
    let mut sorted: Vec<&Smoothed> = list.iter().collect();
    sorted.sort_by(|one, other| other.mean.total_cmp(&one.mean));
    let (first, others) = sorted.split_at(top.min(sorted.len()));
    let lowest = first.iter().map(|one| one.mean - one.slack(drawn));
    let highest = others
        .iter()
        .map(|one| (one.mean + one.slack(drawn) + one.change).min(1.0));
    lowest.fold(f64::INFINITY, f64::min) - highest.fold(f64::NEG_INFINITY, f64::max)
}

/// Tells whether a margin certifies a list.
pub(super) fn certifies(margin: f64) -> bool {
    margin > ROUNDING
}

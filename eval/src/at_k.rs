//! The value of `k` samples of a question: pass@k and maj@k, their curves over `k`, and the curves of two policies compared.

mod curve;
mod graded;
mod majority;
mod pass;

use std::collections::BTreeMap;

use forage_contracts::Episode;
use forage_env::reward::normalize;

use crate::measures::{QuestionKey, by_question, exact_match};

pub use curve::CurveComparison;
pub(crate) use curve::{AtK, CurvePoint, curve};
pub(crate) use graded::SelfGraded;
pub(crate) use majority::majority_at_k;
pub(crate) use pass::pass_at_k;

use curve::doublings;

/// The samples of one question, counted by answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    /// Samples with each of the answers that are right.
    pub(crate) right: Vec<usize>,
    /// Samples with each of the answers that are wrong.
    pub(crate) wrong: Vec<usize>,
    /// Samples without an answer: they are not right, and cast no vote.
    pub(crate) blank: usize,
}

impl Attempts {
    /// Counts answers, each with whether it is right; `None` is not an answer. Answers are alike when their texts are.
    pub(crate) fn count(answers: impl IntoIterator<Item = Option<(String, bool)>>) -> Self {
        let mut blank = 0;
        let mut counts: BTreeMap<(String, bool), usize> = BTreeMap::new();
        for answer in answers {
            match answer {
                Some(answer) => *counts.entry(answer).or_default() += 1,
                None => blank += 1,
            }
        }
        let of = |right: bool| {
            counts
                .iter()
                .filter(|((_, is), _)| *is == right)
                .map(|(_, count)| *count)
                .collect()
        };
        Self {
            right: of(true),
            wrong: of(false),
            blank,
        }
    }

    /// All samples.
    pub(crate) fn samples(&self) -> usize {
        self.correct() + self.wrong.iter().sum::<usize>() + self.blank
    }

    /// Samples whose answer is right.
    pub(crate) fn correct(&self) -> usize {
        self.right.iter().sum()
    }
}

/// The scored episodes of each question with the score part `em`, in order of their keys. An answer is right where `em` is 1, and
/// two are alike where their normalised texts are. Infrastructure faults do not count as samples.
pub(crate) fn attempts_by_question(episodes: &[Episode]) -> BTreeMap<QuestionKey, Attempts> {
    let mut questions = BTreeMap::new();
    for (key, episodes) in by_question(episodes) {
        let answers: Vec<_> = episodes.into_iter().filter_map(vote).collect();
        if !answers.is_empty() {
            questions.insert(key, Attempts::count(answers));
        }
    }
    questions
}

/// The most samples that nine in ten questions have, where curves end: a fault that took some of one question does not end those of all.
fn most_samples(samples: impl Iterator<Item = usize>) -> usize {
    let mut samples: Vec<usize> = samples.collect();
    samples.sort_unstable();
    samples.get(samples.len() / 10).copied().unwrap_or(0)
}

/// The answer of a scored episode with whether it is right; outer `None` for an episode that is not a sample.
#[expect(
    clippy::option_option,
    reason = "no sample and no answer are two things"
)]
fn vote(episode: &Episode) -> Option<Option<(String, bool)>> {
    let em = exact_match(episode)?;
    Some(episode.answer().map(|answer| (normalize(answer), em > 0.5)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_text() {
        let answer = |text: &str, right| Some((text.to_owned(), right));
        let found = Attempts::count([
            answer("b", false),
            answer("a", true),
            None,
            answer("b", false),
            answer("c", true),
        ]);
        assert_eq!(
            found,
            Attempts {
                right: vec![1, 1],
                wrong: vec![2],
                blank: 1
            }
        );
        assert_eq!((found.samples(), found.correct()), (5, 2));
    }
}

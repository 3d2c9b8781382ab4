//! best@k by grades.

use std::collections::BTreeMap;

use forage_contracts::Episode;
use serde::{Deserialize, Serialize};

use super::{Attempts, CurvePoint, doublings, majority_at_k, most_samples, vote};
use crate::measures::QuestionKey;
use crate::stats::{Bootstrap, Interval, StatsError, paired_bootstrap};

/// A sample: the grade it was given, if any, and whether its answer is right.
type Graded = (Option<f64>, bool);

/// Samples ranked by the grades that the policy gives them itself (Is PRM Necessary?, Feng et al. 2025: Self-PRM), beside a vote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SelfGraded {
    /// Accuracy of the best-graded of k samples, ties split evenly.
    pub(crate) best_at_k: Vec<CurvePoint>,
    /// Accuracy at the largest k less that of a majority of as many samples, paired by question.
    pub(crate) less_majority: Interval,
    /// Share of the samples that have an answer and a grade.
    pub(crate) graded_frac: f64,
}

impl SelfGraded {
    /// Ranks samples, each with its grade if it has one. `None` where no question has two that are graded by exact match.
    ///
    /// # Errors
    /// [`StatsError`] for settings out of range.
    pub(crate) fn of(
        samples: &[(&Episode, Option<f64>)],
        settings: Bootstrap,
    ) -> Result<Option<Self>, StatsError> {
        let mut questions: BTreeMap<QuestionKey, (Vec<Graded>, Vec<_>)> = BTreeMap::new();
        for &(episode, grade) in samples {
            let Some(vote) = vote(episode) else { continue };
            let right = vote.as_ref().is_some_and(|(_, right)| *right);
            let (graded, votes) = questions.entry(QuestionKey::of(episode)).or_default();
            // What gave no answer is not picked before what did.
            graded.push((grade.filter(|_| vote.is_some()), right));
            votes.push(vote);
        }
        // Of a single sample, where faults took the others, there is nothing to pick.
        let several = questions
            .into_values()
            .filter(|(graded, _)| graded.len() > 1);
        let questions: Vec<(Vec<Graded>, Attempts)> = several
            .map(|(graded, votes)| (graded, Attempts::count(votes)))
            .collect();
        if questions.is_empty() {
            return Ok(None);
        }
        let most = most_samples(questions.iter().map(|(graded, _)| graded.len()));
        let best = |k: usize| -> Vec<f64> {
            let values = questions.iter();
            values
                .filter_map(|(graded, _)| best_graded_at_k(graded, k))
                .collect()
        };
        let elected = questions.iter().enumerate();
        let elected = elected.filter_map(|(question, (_, attempts))| {
            let seed = settings.seed.wrapping_add(question as u64);
            majority_at_k(attempts, most, seed)
        });
        let elected: Vec<f64> = elected.collect();
        let point = |k: usize| CurvePoint::of(k, &best(k), settings);
        let all: Vec<&Graded> = questions.iter().flat_map(|(graded, _)| graded).collect();
        let graded = all.iter().filter(|(grade, _)| grade.is_some()).count();
        Ok(Some(Self {
            best_at_k: doublings(most)
                .into_iter()
                .map(point)
                .collect::<Result<_, StatsError>>()?,
            less_majority: paired_bootstrap(&elected, &best(most), settings)?,
            graded_frac: graded as f64 / all.len() as f64,
        }))
    }
}

/// Probability that the sample of the highest grade among `k` samples drawn without replacement is right, ties split evenly; a
/// sample without a grade comes after all others. `None` where `k` is 0 or above the number of samples.
///
/// Exact: the highest grade of a draw is g with probability (C(n of at most g, k) - C(n below g, k)) / C(n, k), and then each sample
/// of that grade is as likely to be the one as any other.
fn best_graded_at_k(samples: &[Graded], k: usize) -> Option<f64> {
    if k == 0 || k > samples.len() {
        return None;
    }
    let grade = |sample: &Graded| sample.0.unwrap_or(f64::NEG_INFINITY);
    let mut ordered = samples.to_vec();
    ordered.sort_by(|a, b| grade(a).total_cmp(&grade(b)));
    let none_above = |count: usize| {
        let terms = (0..k).map(|place| {
            let left = count.saturating_sub(place) as f64;
            left / (samples.len() - place) as f64
        });
        terms.product::<f64>()
    };
    let (mut found, mut below) = (0.0, 0);
    for level in ordered.chunk_by(|a, b| grade(a).total_cmp(&grade(b)).is_eq()) {
        let at_most = below + level.len();
        let right = level.iter().filter(|(_, right)| *right).count();
        let chance = none_above(at_most) - none_above(below);
        found += chance * right as f64 / level.len() as f64;
        below = at_most;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every subset of `k` samples, one by one.
    fn by_hand(samples: &[Graded], k: usize) -> f64 {
        let (mut right, mut subsets) = (0.0, 0.0);
        for subset in (0_u32..1 << samples.len()).filter(|subset| subset.count_ones() as usize == k)
        {
            let drawn: Vec<&Graded> = (0..samples.len())
                .filter(|index| subset >> index & 1 == 1)
                .map(|index| &samples[index])
                .collect();
            let grade = |sample: &Graded| sample.0.unwrap_or(-1.0);
            let top = drawn
                .iter()
                .map(|sample| grade(sample))
                .fold(-1.0, f64::max);
            let tied: Vec<&&Graded> = drawn
                .iter()
                .filter(|sample| (grade(sample) - top).abs() < 1e-9)
                .collect();
            let hits = tied.iter().filter(|sample| sample.1).count();
            right += hits as f64 / tied.len() as f64;
            subsets += 1.0;
        }
        right / subsets
    }

    #[test]
    fn ends_of_the_range() {
        let samples = [(Some(0.9), true), (Some(0.2), false), (None, false)];
        assert_eq!(best_graded_at_k(&samples, 0), None);
        assert_eq!(best_graded_at_k(&samples, 4), None);
        assert!(
            best_graded_at_k(&samples, 1).is_some_and(|value| (value - 1.0 / 3.0).abs() < 1e-12)
        );
        assert!(best_graded_at_k(&samples, 3).is_some_and(|value| (value - 1.0).abs() < 1e-12));
    }

    proptest! {
        #[test]
        fn it_is_the_mean_over_all_subsets(
            samples in prop::collection::vec((prop::option::of((0_u8..4).prop_map(|grade| f64::from(grade) / 4.0)), any::<bool>()), 1..9),
            k in 1_usize..9,
        ) {
            prop_assume!(k <= samples.len());
            let found = best_graded_at_k(&samples, k).expect("in range");
            prop_assert!((found - by_hand(&samples, k)).abs() < 1e-9, "{:?} {}: {}", samples, k, found);
        }
    }
}

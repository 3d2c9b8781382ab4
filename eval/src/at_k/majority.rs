//! maj@k.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::Attempts;
use crate::stats::below;

/// Most multiplications that an exact value may take, about 0.1 s.
const EXACT_WORK: usize = 1 << 26;
/// Draws where the exact value would take more: a standard error of at most 0.0036.
const DRAWS: usize = 20_000;

/// Probability that a vote of `k` samples drawn without replacement elects a right answer, ties split evenly among the answers
/// that tie. Samples without an answer cast no vote; a draw without any vote is wrong. `None` where `k` is 0 or above the
/// number of samples.
///
/// Right answers of different texts are different candidates, as in a vote that knows no golds.
///
/// Exact where a dynamic programme over the answers takes at most 2^26 multiplications: up to `k` = 128 of 512 samples however
/// they answer, and far beyond where answers are few. Otherwise the mean of 20,000 draws from `seed`.
pub(crate) fn majority_at_k(attempts: &Attempts, k: usize, seed: u64) -> Option<f64> {
    if k == 0 || k > attempts.samples() {
        return None;
    }
    let voted = attempts.samples() - attempts.blank;
    if attempts.correct() == 0 {
        return Some(0.0);
    }
    if attempts.correct() == voted && attempts.blank < k {
        return Some(1.0);
    }
    Some(if work(attempts, k) <= EXACT_WORK {
        exact(attempts, k)
    } else {
        drawn(attempts, k, seed)
    })
}

/// Vote counts that the winner of `k` votes can have.
fn winning_counts(attempts: &Attempts, k: usize) -> impl Iterator<Item = usize> {
    let answers = || attempts.right.iter().chain(&attempts.wrong);
    let most = answers().copied().max().unwrap_or(0).min(k);
    (1..=most).filter(move |&top| {
        attempts.blank + answers().map(|count| *count.min(&top)).sum::<usize>() >= k
    })
}

/// Most answers of one side that can share first place with `top` votes each.
fn most_tied(answers: &[usize], top: usize, k: usize) -> usize {
    answers
        .iter()
        .filter(|count| **count >= top)
        .count()
        .min(k / top)
}

/// Multiplications of [`exact`], about.
fn work(attempts: &Attempts, k: usize) -> usize {
    let of = |answers: &[usize], blank: usize, top: usize| {
        let mut reach = blank.min(k);
        let mut terms = 0;
        for count in answers {
            terms += (reach + 1) * (count.min(&top) + 1);
            reach = (reach + count.min(&top)).min(k);
        }
        terms * (most_tied(answers, top, k) + 1)
    };
    winning_counts(attempts, k)
        .map(|top| of(&attempts.right, 0, top) + of(&attempts.wrong, attempts.blank, top))
        .sum()
}

/// The expectation, winning count by winning count.
///
/// Counts of a draw without replacement are binomial counts, each `B(n_j, k / n)`, given that they sum to `k`: every weight is
/// a probability, so nothing overflows however many samples there are.
fn exact(attempts: &Attempts, k: usize) -> f64 {
    let samples = attempts.samples();
    let chance = k as f64 / samples as f64;
    let weights = |answers: &[usize]| {
        answers
            .iter()
            .map(|&count| binomial(count, chance))
            .collect::<Vec<_>>()
    };
    let (right, wrong) = (weights(&attempts.right), weights(&attempts.wrong));
    let mut blank = binomial(attempts.blank, chance);
    blank.resize(k + 1, 0.0);
    let mut nothing = vec![0.0; k + 1];
    nothing[0] = 1.0;
    let mut elected = 0.0;
    for top in winning_counts(attempts, k) {
        let rights = ties(&right, &nothing, top, most_tied(&attempts.right, top, k));
        let wrongs = ties(&wrong, &blank, top, most_tied(&attempts.wrong, top, k));
        for (tied, by_votes) in rights.iter().enumerate().skip(1) {
            for (against, others) in wrongs.iter().enumerate() {
                let together: f64 = by_votes
                    .iter()
                    .zip(others.iter().rev())
                    .map(|(one, other)| one * other)
                    .sum();
                elected += together * tied as f64 / (tied + against) as f64;
            }
        }
    }
    (elected / binomial(samples, chance)[k]).clamp(0.0, 1.0)
}

/// Weight of each number of votes for `answers` together, by how many of them have `top` votes, none having more:
/// `[tied][votes]`. `start` is the weight of the votes that are not an answer's; `votes` ends where it does.
fn ties(answers: &[Vec<f64>], start: &[f64], top: usize, most_tied: usize) -> Vec<Vec<f64>> {
    let mut table = vec![vec![0.0; start.len()]; most_tied + 1];
    table[0].copy_from_slice(start);
    // The most votes that any weight in the table is for.
    let mut reach = start.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
    for weights in answers {
        let most = top.min(weights.len() - 1);
        let next = (reach + most).min(start.len() - 1);
        // From the last entry back, so that those read are still of before this answer.
        for tied in (0..=most_tied).rev() {
            for votes in (0..=next).rev() {
                let fewer = votes.saturating_sub(reach)..(most + 1).min(top).min(votes + 1);
                let mut sum: f64 = fewer
                    .map(|own| weights[own] * table[tied][votes - own])
                    .sum();
                if tied > 0 && votes >= top {
                    sum += weights
                        .get(top)
                        .map_or(0.0, |weight| weight * table[tied - 1][votes - top]);
                }
                table[tied][votes] = sum;
            }
        }
        reach = next;
    }
    table
}

/// Binomial probabilities of 0 to `count` successes, by ratios from the likeliest on: relative errors stay near rounding.
fn binomial(count: usize, chance: f64) -> Vec<f64> {
    let mut weights = vec![0.0; count + 1];
    let mode = (((count + 1) as f64 * chance) as usize).min(count);
    weights[mode] = 1.0;
    let ratio = |successes: usize| {
        (count - successes) as f64 / (successes + 1) as f64 * chance / (1.0 - chance)
    };
    if chance < 1.0 {
        for successes in mode..count {
            weights[successes + 1] = weights[successes] * ratio(successes);
        }
        for successes in (0..mode).rev() {
            weights[successes] = weights[successes + 1] / ratio(successes);
        }
    }
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// The mean over random draws.
fn drawn(attempts: &Attempts, k: usize, seed: u64) -> f64 {
    let answers: Vec<usize> = attempts
        .right
        .iter()
        .chain(&attempts.wrong)
        .copied()
        .collect();
    // The answer of every sample; blank ones have the number after the last.
    let mut samples: Vec<usize> = Vec::with_capacity(attempts.samples());
    for (answer, count) in answers.iter().chain([&attempts.blank]).enumerate() {
        samples.extend(std::iter::repeat_n(answer, *count));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut votes = vec![0_usize; answers.len() + 1];
    let mut elected = 0.0;
    for _ in 0..DRAWS {
        votes.fill(0);
        for index in 0..k {
            let other = index + below(&mut rng, samples.len() - index);
            samples.swap(index, other);
            votes[samples[index]] += 1;
        }
        let (right, rest) = votes.split_at(attempts.right.len());
        let wrong = &rest[..attempts.wrong.len()];
        let top = right.iter().chain(wrong).copied().max().unwrap_or(0);
        let tied = |side: &[usize]| side.iter().filter(|votes| **votes == top).count();
        if top > 0 {
            elected += tied(right) as f64 / (tied(right) + tied(wrong)) as f64;
        }
    }
    elected / DRAWS as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every subset of `k` samples, one by one.
    fn by_hand(attempts: &Attempts, k: usize) -> f64 {
        let rights = attempts.right.len();
        let mut samples = Vec::new();
        for (answer, count) in attempts.right.iter().chain(&attempts.wrong).enumerate() {
            samples.extend(std::iter::repeat_n(Some(answer), *count));
        }
        samples.extend(std::iter::repeat_n(None, attempts.blank));
        let (mut elected, mut subsets) = (0.0, 0.0);
        for subset in (0_u32..1 << samples.len()).filter(|subset| subset.count_ones() as usize == k)
        {
            let mut votes = vec![0; rights + attempts.wrong.len()];
            for answer in (0..samples.len())
                .filter(|index| subset >> index & 1 == 1)
                .filter_map(|index| samples[index])
            {
                votes[answer] += 1;
            }
            let top = votes.iter().copied().max().unwrap_or(0);
            let tied: Vec<usize> = (0..votes.len())
                .filter(|answer| top > 0 && votes[*answer] == top)
                .collect();
            elected += tied.iter().filter(|answer| **answer < rights).count() as f64
                / tied.len().max(1) as f64;
            subsets += 1.0;
        }
        elected / subsets
    }

    #[test]
    fn ends_of_the_range() {
        let attempts = Attempts {
            right: vec![2],
            wrong: vec![3, 1],
            blank: 2,
        };
        assert_eq!(
            [
                majority_at_k(&attempts, 0, 0),
                majority_at_k(&attempts, 9, 0)
            ],
            [None; 2]
        );
        assert!(majority_at_k(&attempts, 1, 0).is_some_and(|share| (share - 0.25).abs() < 1e-12));
        assert_eq!(majority_at_k(&attempts, 8, 0), Some(0.0));
        let alone = Attempts {
            right: vec![3],
            ..Attempts::default()
        };
        assert_eq!(majority_at_k(&alone, 2, 0), Some(1.0));
        let silent = Attempts {
            blank: 3,
            ..Attempts::default()
        };
        assert_eq!(majority_at_k(&silent, 2, 0), Some(0.0));
    }

    #[test]
    fn draws_agree_with_the_exact_value() {
        let attempts = Attempts {
            right: vec![20, 3],
            wrong: vec![18, 9, 9, 1],
            blank: 4,
        };
        for k in [1, 5, 16, 40] {
            let (exact, drawn) = (exact(&attempts, k), drawn(&attempts, k, 7));
            assert!((exact - drawn).abs() < 0.015, "{k}: {exact} {drawn}");
        }
        let many = Attempts {
            right: vec![1200],
            wrong: vec![1; 2000],
            blank: 896,
        };
        assert!(work(&many, 1024) > EXACT_WORK);
        assert!(majority_at_k(&many, 1024, 3).is_some_and(|share| share > 0.999));
        let two = Attempts {
            right: vec![2000],
            wrong: vec![2096],
            blank: 0,
        };
        assert!(work(&two, 1024) <= EXACT_WORK);
    }

    proptest! {
        #[test]
        fn it_is_the_mean_over_all_subsets(
            right in prop::collection::vec(1_usize..4, 0..3),
            wrong in prop::collection::vec(1_usize..4, 0..3),
            blank in 0_usize..3,
            k in 1_usize..12,
        ) {
            let attempts = Attempts { right, wrong, blank };
            prop_assume!(k <= attempts.samples());
            let found = majority_at_k(&attempts, k, 0).expect("in range");
            prop_assert!((found - by_hand(&attempts, k)).abs() < 1e-9, "{:?} {}: {}", attempts, k, found);
        }
    }
}

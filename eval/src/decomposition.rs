//! The parts of a gain in exact match: searching, finding, reading, guessing.
//!
//! With s the probability of a search, f that of the answer being found by one, r that of being right after it was found and g that of
//! being right otherwise, exact match is s f r + (1 - s f) g. A gain is shared out among the four by their Shapley values (Shapley 1953,
//! "A value for n-person games"): a part's share is the mean, over all orders in which the four change from the start's value to the
//! trained policy's, of what its own change adds. The shares add up to the gain.

use std::collections::BTreeMap;

use forage_contracts::Episode;
use serde::{Deserialize, Serialize};

use crate::compare::signed;
use crate::measures::{QuestionKey, exact_match, score};
use crate::stats::{Bootstrap, Interval, StatsError, bootstrap_statistic};

/// The parts in words, in their order.
pub(crate) const PARTS: [&str; 4] = [
    "P(search)",
    "P(answer found | search)",
    "P(right | answer found)",
    "P(right | not found)",
];

/// A value for each part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parts<T> {
    search: T,
    found: T,
    read: T,
    guess: T,
}

impl<T: Copy> Parts<T> {
    fn new([search, found, read, guess]: [T; 4]) -> Self {
        Self {
            search,
            found,
            read,
            guess,
        }
    }

    /// In the order of [`PARTS`].
    pub(crate) fn in_order(&self) -> [T; 4] {
        [self.search, self.found, self.read, self.guess]
    }
}

/// How a policy comes to be right.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Chances {
    /// Questions.
    pub questions: usize,
    /// The probabilities; none where nothing came so far.
    pub parts: Parts<Option<f64>>,
    /// Exact match.
    pub right: f64,
}

/// A gain in exact match by its parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Decomposition {
    /// The policy before and after.
    pub policies: [Chances; 2],
    /// The same by the number of hops, where questions have several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_hops: BTreeMap<u8, [Chances; 2]>,
    /// The share of the gain that each part explains, with bootstrap intervals over questions.
    pub shares: Parts<Interval>,
}

/// What happened in an episode.
#[derive(Clone, Copy)]
struct Outcome {
    searched: bool,
    found: bool,
    right: bool,
}

impl Outcome {
    /// None of an episode without a score, or of one in which finding and being right are not graded.
    fn of(episode: &Episode) -> Option<Self> {
        let searched = episode.searches() > 0;
        let found = *score(episode)?.parts.get("retrieval")? > 0.0;
        Some(Self {
            searched,
            found: searched && found,
            right: exact_match(episode)? > 0.0,
        })
    }
}

/// One policy's and another's episode of a question.
type Pair = [Outcome; 2];

impl Decomposition {
    /// Of one greedy episode per question of two policies; none where finding is not graded or no question has both.
    ///
    /// # Errors
    /// [`StatsError`] for settings out of range.
    pub(crate) fn of(
        start: &[Episode],
        trained: &[Episode],
        bootstrap: Bootstrap,
    ) -> Result<Option<Self>, StatsError> {
        let after: BTreeMap<QuestionKey, Outcome> = trained
            .iter()
            .filter_map(|episode| Some((QuestionKey::of(episode), Outcome::of(episode)?)))
            .collect();
        let mut pairs: Vec<Pair> = Vec::new();
        let mut hops: BTreeMap<u8, Vec<Pair>> = BTreeMap::new();
        for episode in start {
            let pair = Outcome::of(episode).zip(after.get(&QuestionKey::of(episode)).copied());
            if let Some((before, after)) = pair {
                pairs.push([before, after]);
                hops.entry(episode.task.hops)
                    .or_default()
                    .push([before, after]);
            }
        }
        if pairs.is_empty() {
            return Ok(None);
        }
        let mut shares = Vec::with_capacity(PARTS.len());
        for part in 0..PARTS.len() {
            let share = |items: &[usize]| {
                let policies = chances(items.iter().map(|&item| &pairs[item]));
                Some(shapley(&policies)[part])
            };
            shares.extend(bootstrap_statistic(pairs.len(), bootstrap, share)?);
        }
        let Ok(shares) = <[Interval; 4]>::try_from(shares) else {
            return Ok(None);
        };
        if hops.len() < 2 {
            hops.clear();
        }
        Ok(Some(Self {
            policies: chances(&pairs),
            by_hops: hops
                .into_iter()
                .map(|(hops, pairs)| (hops, chances(&pairs)))
                .collect(),
            shares: Parts::new(shares),
        }))
    }

    /// The shares in a sentence.
    pub(crate) fn words(&self) -> String {
        let [search, found, read, guess] = self.shares.in_order().map(|share| {
            let [low, high] = share.ends();
            format!(
                "{} ({} to {})",
                signed(share.estimate),
                signed(low),
                signed(high)
            )
        });
        format!(
            "Of the change in exact match, searching more often explains {search}, finding the answer with a search {found}, reading it \
             once found {read}, and guessing {guess}."
        )
    }
}

/// The chances of both policies over pairs of episodes.
fn chances<'a>(pairs: impl IntoIterator<Item = &'a Pair>) -> [Chances; 2] {
    // Questions, then of each policy: searched, found, right after finding, right otherwise.
    let (mut questions, mut counts) = (0_usize, [[0_usize; 4]; 2]);
    for pair in pairs {
        questions += 1;
        for (count, outcome) in counts.iter_mut().zip(pair) {
            count[0] += usize::from(outcome.searched);
            count[1] += usize::from(outcome.found);
            count[2] += usize::from(outcome.found && outcome.right);
            count[3] += usize::from(!outcome.found && outcome.right);
        }
    }
    counts.map(|[searched, found, read, guessed]| {
        let share = |part: usize, whole: usize| (whole > 0).then(|| part as f64 / whole as f64);
        Chances {
            questions,
            parts: Parts::new([
                share(searched, questions),
                share(found, searched),
                share(read, found),
                share(guessed, questions - found),
            ]),
            right: share(read + guessed, questions).unwrap_or_default(),
        }
    })
}

/// Exact match from the four probabilities.
fn right([search, found, read, guess]: [f64; 4]) -> f64 {
    let reached = search * found;
    reached * read + (1.0 - reached) * guess
}

/// The shares of the four parts. A probability that one policy never had occasion to show is taken from the other, so that its change
/// explains nothing.
fn shapley([start, trained]: &[Chances; 2]) -> [f64; 4] {
    // |S|! (3 - |S|)! / 4! for subsets S of the other three.
    const WEIGHTS: [f64; 4] = [1.0 / 4.0, 1.0 / 12.0, 1.0 / 12.0, 1.0 / 4.0];
    let (start, trained) = (start.parts.in_order(), trained.parts.in_order());
    let values: [[f64; 2]; 4] = std::array::from_fn(|part| {
        let (before, after) = (start[part], trained[part]);
        [
            before.or(after).unwrap_or_default(),
            after.or(before).unwrap_or_default(),
        ]
    });
    let of = |changed: usize| {
        right(std::array::from_fn(|part| {
            values[part][(changed >> part) & 1]
        }))
    };
    std::array::from_fn(|part| {
        (0..16_usize)
            .filter(|changed| changed & (1 << part) == 0)
            .map(|changed| {
                let weight = WEIGHTS[changed.count_ones() as usize];
                weight * (of(changed | (1 << part)) - of(changed))
            })
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(parts: [Option<f64>; 4]) -> Chances {
        Chances {
            questions: 100,
            parts: Parts::new(parts),
            right: right(parts.map(Option::unwrap_or_default)),
        }
    }

    #[test]
    fn shares_are_means_over_all_orders() {
        let start = policy([Some(0.4), Some(0.5), Some(0.6), Some(0.1)]);
        let trained = policy([Some(0.9), Some(0.8), Some(0.7), Some(0.05)]);
        let shares = shapley(&[start, trained]);
        let total: f64 = shares.iter().sum();
        assert!((total - (trained.right - start.right)).abs() < 1e-12);
        let orders = by_orders([0.4, 0.5, 0.6, 0.1], [0.9, 0.8, 0.7, 0.05]);
        for (share, expected) in shares.iter().zip(orders) {
            assert!((share - expected).abs() < 1e-12, "{share} {expected}");
        }
    }

    /// The definition: the mean over the 24 orders.
    fn by_orders(start: [f64; 4], trained: [f64; 4]) -> [f64; 4] {
        let mut sums = [0.0; 4];
        for order in 0..256_usize {
            let order: [usize; 4] = std::array::from_fn(|place| (order >> (2 * place)) & 3);
            if (0..4).any(|part| !order.contains(&part)) {
                continue;
            }
            let mut now = start;
            for part in order {
                let before = right(now);
                now[part] = trained[part];
                sums[part] += (right(now) - before) / 24.0;
            }
        }
        sums
    }

    #[test]
    fn what_a_policy_never_showed_explains_nothing() {
        let start = policy([Some(0.0), None, None, Some(0.1)]);
        let trained = policy([Some(1.0), Some(0.9), Some(0.5), Some(0.1)]);
        let [search, found, read, guess] = shapley(&[start, trained]);
        assert!((search - 0.36).abs() < 1e-12, "{search}");
        assert!([found, read, guess].iter().all(|share| share.abs() < 1e-12));
    }
}

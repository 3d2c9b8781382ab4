//! The parts of a gain in exact match: searching, finding, reading, guessing.
//!
//! With s the probability of a search, f that of the answer being found by one, r that of being right after it was found and g that of
//! being right otherwise, exact match is s f r + (1 - s f) g. A gain is shared out among the four by their Shapley values (Shapley 1953,
//! "A value for n-person games"): a part's share is the mean, over all orders in which the four change from the start's value to the
//! trained policy's, of what its own change adds. The shares add up to the gain.

use std::collections::{BTreeMap, BTreeSet};

use forage_contracts::Episode;
use serde::{Deserialize, Serialize};

use crate::measures::{QuestionKey, exact_match, is_searched, score};
use crate::pool::wider;
use crate::stats::{Bootstrap, Interval, StatsError, bootstrap_statistic, mean};
use crate::summary::hops_label;
use crate::text::signed;

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

    /// The parts in the order of [`PARTS`].
    pub(crate) fn in_order(&self) -> [T; 4] {
        [self.search, self.found, self.read, self.guess]
    }
}

/// The chances by which a policy comes to be right; of several seeds the means over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Chances {
    /// Questions, those of each seed by themselves.
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
    /// The probabilities by number of hops, where questions have several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_hops: BTreeMap<u8, [Chances; 2]>,
    /// The share of the gain that each part explains, with bootstrap intervals over questions; of several seeds the mean of theirs,
    /// with an interval as that of a study's gains.
    pub shares: Parts<Interval>,
}

/// A row of a table: a part, its probability for both policies, and its share of the gain.
pub(crate) type Row = (String, [Option<f64>; 2], Option<Interval>);

/// A policy's episodes of a question, as a share of its samples: all, those that searched, that found, that were right after finding, and
/// right otherwise; of several questions the sums.
type Shares = [f64; 5];

/// One policy's and another's.
type Pair = [Shares; 2];

/// A question, with both policies' shares under each seed that has both.
struct Asked {
    hops: u8,
    pairs: Vec<(usize, Pair)>,
}

/// None of an episode without a score, or of one in which finding and being right are not graded.
fn of_episode(episode: &Episode) -> Option<Shares> {
    let shown = *score(episode)?.parts.get("retrieval")? > 0.0;
    let right = exact_match(episode)? > 0.0;
    let searched = episode.searches() > 0;
    let found = searched && shown;
    let kinds = [true, searched, found, found && right, !found && right];
    Some(kinds.map(|holds| f64::from(u8::from(holds))))
}

fn add(sums: &mut Shares, shares: &Shares) {
    for (sum, share) in sums.iter_mut().zip(shares) {
        *sum += share;
    }
}

fn by_question(episodes: &[Episode]) -> BTreeMap<QuestionKey, Shares> {
    let mut questions = BTreeMap::new();
    for episode in episodes {
        if let Some(shares) = of_episode(episode) {
            let sums = questions.entry(QuestionKey::of(episode));
            add(sums.or_insert([0.0; 5]), &shares);
        }
    }
    // Each weighs the same, however many samples faults have left it.
    for sums in questions.values_mut() {
        let samples = sums[0];
        for sum in sums {
            *sum /= samples;
        }
    }
    questions
}

/// The questions that both policies have under some seed, in the order in which the starts were asked.
fn asked(seeds: &[(&[Episode], &[Episode])]) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    let mut places: BTreeMap<QuestionKey, usize> = BTreeMap::new();
    for (seed, (start, trained)) in seeds.iter().enumerate() {
        let (mut before, mut after) = (by_question(start), by_question(trained));
        for episode in *start {
            let key = QuestionKey::of(episode);
            // Taken out: further samples of the question are counted already.
            let Some(pair) = before.remove(&key).zip(after.remove(&key)) else {
                continue;
            };
            let place = *places.entry(key).or_insert(all.len());
            if place == all.len() {
                all.push(Asked {
                    hops: episode.task.hops,
                    pairs: Vec::new(),
                });
            }
            all[place].pairs.push((seed, pair.into()));
        }
    }
    all
}

/// The sums of so many `seeds` over questions; those without any are left out.
fn totals<'a>(asked: impl IntoIterator<Item = &'a Asked>, seeds: usize) -> Vec<Pair> {
    let mut totals: Vec<Pair> = vec![[[0.0; 5]; 2]; seeds];
    for (seed, pair) in asked.into_iter().flat_map(|asked| &asked.pairs) {
        for (sums, shares) in totals[*seed].iter_mut().zip(pair) {
            add(sums, shares);
        }
    }
    totals.retain(|[start, _]| start[0] > 0.0);
    totals
}

impl Decomposition {
    /// Of the episodes of two policies under one seed or several, one or more of each question; none where finding is not graded,
    /// where nothing is searched, and where no question has both.
    ///
    /// # Errors
    /// [`StatsError`] for settings out of range.
    pub(crate) fn of(
        seeds: &[(&[Episode], &[Episode])],
        bootstrap: Bootstrap,
    ) -> Result<Option<Self>, StatsError> {
        let asked = asked(seeds);
        if asked.is_empty() || !is_searched(seeds) {
            return Ok(None);
        }
        let all: Vec<&Asked> = asked.iter().collect();
        let mut shares = Vec::with_capacity(PARTS.len());
        for part in 0..PARTS.len() {
            let share = |pair: &Pair| shapley(pair.map(parts))[part];
            let by_seed = |asked: &[&Asked]| -> Vec<f64> {
                let totals = totals(asked.iter().copied(), seeds.len());
                totals.iter().map(share).collect()
            };
            let average = |items: &[usize]| {
                let drawn: Vec<&Asked> = items.iter().map(|&item| all[item]).collect();
                Some(mean(&by_seed(&drawn)))
            };
            let questions = bootstrap_statistic(all.len(), bootstrap, average)?;
            let confidence = bootstrap.confidence;
            shares.extend(questions.map(|found| wider(&by_seed(&all), found, confidence)));
        }
        let Ok(shares) = <[Interval; 4]>::try_from(shares) else {
            return Ok(None);
        };
        let hops: BTreeSet<u8> = asked.iter().map(|asked| asked.hops).collect();
        let of_hops = |hops: u8| {
            let some = asked.iter().filter(|asked| asked.hops == hops);
            chances(&some.collect::<Vec<_>>(), seeds.len())
        };
        let mut by_hops = BTreeMap::new();
        if hops.len() > 1 {
            by_hops.extend(hops.into_iter().map(|hops| (hops, of_hops(hops))));
        }
        Ok(Some(Self {
            policies: chances(&all, seeds.len()),
            by_hops,
            shares: Parts::new(shares),
        }))
    }

    /// The parts of all questions with their shares of the gain, then those by hops.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let shares = self.shares.in_order().map(Some);
        let all = std::iter::once((String::new(), &self.policies, shares));
        let by_hops = self.by_hops.iter().map(|(hops, policies)| {
            let label = format!(", {}", hops_label(*hops));
            (label, policies, [None; 4])
        });
        let rows = all.chain(by_hops).flat_map(|(label, policies, shares)| {
            let row = |part: usize| {
                let chances = policies.map(|policy| policy.parts.in_order()[part]);
                (format!("{}{label}", PARTS[part]), chances, shares[part])
            };
            (0..PARTS.len()).map(row).collect::<Vec<Row>>()
        });
        rows.collect()
    }

    /// The shares of what `measure` names in a sentence, and another where a start without a search makes all of the gain searching.
    pub(crate) fn words(&self, measure: &str) -> String {
        let [search, found, read, guess] = self.shares.in_order().map(|share| {
            let [low, high] = share.ends();
            format!(
                "{} ({} to {})",
                signed(share.estimate),
                signed(low),
                signed(high)
            )
        });
        let silent = self.policies[0].parts.search;
        let caveat = if silent.is_some_and(|search| search <= 0.0) {
            " The start never searched, so how it finds and reads is not known, and counts as how the trained policy does."
        } else {
            ""
        };
        format!(
            "Of the change in {measure}, searching at all explains {search}, finding the answer with a search {found}, reading it \
             once found {read}, and guessing {guess}.{caveat}"
        )
    }
}

/// The chances of both policies over questions.
fn chances(asked: &[&Asked], seeds: usize) -> [Chances; 2] {
    let totals = totals(asked.iter().copied(), seeds);
    [0, 1].map(|policy: usize| {
        let by_seed = || totals.iter().map(move |pair| pair[policy]);
        let part = |part: usize| {
            let shown: Vec<f64> = by_seed().filter_map(|sums| parts(sums)[part]).collect();
            (!shown.is_empty()).then(|| mean(&shown))
        };
        let right = |[all, .., read, guessed]: Shares| (read + guessed) / all;
        Chances {
            questions: asked.iter().map(|asked| asked.pairs.len()).sum(),
            parts: Parts::new(std::array::from_fn(part)),
            right: mean(&by_seed().map(right).collect::<Vec<f64>>()),
        }
    })
}

/// The four probabilities, in the order of [`PARTS`]; none of what nothing came so far as to show.
fn parts([all, searched, found, read, guessed]: Shares) -> [Option<f64>; 4] {
    let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
    [
        share(searched, all),
        share(found, searched),
        share(read, found),
        share(guessed, all - found),
    ]
}

/// Exact match from the four probabilities.
fn right([search, found, read, guess]: [f64; 4]) -> f64 {
    let reached = search * found;
    reached * read + (1.0 - reached) * guess
}

/// The shares of the four parts. A probability that one policy never had occasion to show is taken from the other, so that its change
/// explains nothing.
fn shapley([start, trained]: [[Option<f64>; 4]; 2]) -> [f64; 4] {
    // |S|! (3 - |S|)! / 4! for subsets S of the other three.
    const WEIGHTS: [f64; 4] = [1.0 / 4.0, 1.0 / 12.0, 1.0 / 12.0, 1.0 / 4.0];
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

    #[test]
    fn shares_are_means_over_all_orders() {
        let (start, trained) = ([0.4, 0.5, 0.6, 0.1], [0.9, 0.8, 0.7, 0.05]);
        let shares = shapley([start.map(Some), trained.map(Some)]);
        let total: f64 = shares.iter().sum();
        assert!((total - (right(trained) - right(start))).abs() < 1e-12);
        for (share, expected) in shares.iter().zip(by_orders(start, trained)) {
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
        let start = [Some(0.0), None, None, Some(0.1)];
        let trained = [1.0, 0.9, 0.5, 0.1].map(Some);
        let [search, found, read, guess] = shapley([start, trained]);
        assert!((search - 0.36).abs() < 1e-12, "{search}");
        assert!([found, read, guess].iter().all(|share| share.abs() < 1e-12));
    }
}

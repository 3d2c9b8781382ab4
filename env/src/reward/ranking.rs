//! Ranking metrics equal to `trec_eval`, and one that is not, under its own name.
//!
//! A document is relevant when its grade is at least 1; documents without a judgment and grades below 1 are not. Rank
//! order is the order given (`trec_eval` sorts by score first). A repeated document counts at its first rank only.

use std::collections::{BTreeMap, BTreeSet};

/// Grade of each judged document of one query, by document id.
pub type Judgments = BTreeMap<String, i32>;

/// Normalised discounted cumulative gain of the first `k` ranks: linear gains, `1 / log2(rank + 1)` discounts, the ideal
/// order over all judged documents.
pub fn ndcg(ranked: &[impl AsRef<str>], judgments: &Judgments, k: usize) -> f64 {
    let gains = grades(ranked, judgments);
    let mut ideal: Vec<i32> = judgments.values().copied().collect();
    ideal.sort_unstable_by(|a, b| b.cmp(a));
    ratio(discounted_gain(&gains, k), discounted_gain(&ideal, k))
}

/// `SearchLM`'s NDCG: as [`ndcg`], but the ideal order is that of the first `k` documents *found*, whatever else is relevant.
/// It is 1 as soon as the relevant ones among them come first, so it is higher than [`ndcg`], and not comparable with it.
pub(crate) fn ndcg_searchlm(ranked: &[impl AsRef<str>], judgments: &Judgments, k: usize) -> f64 {
    let mut gains = grades(ranked, judgments);
    gains.truncate(k);
    let found = discounted_gain(&gains, k);
    gains.sort_unstable_by(|a, b| b.cmp(a));
    ratio(found, discounted_gain(&gains, k))
}

/// Share of the relevant documents found in the first `k` ranks; 0 when there are none.
pub fn recall(ranked: &[impl AsRef<str>], judgments: &Judgments, k: usize) -> f64 {
    ratio(hits(&grades(ranked, judgments), k), relevant(judgments))
}

/// Share of the first `k` ranks that hold relevant documents; ranks beyond the list's end count as misses.
pub fn precision(ranked: &[impl AsRef<str>], judgments: &Judgments, k: usize) -> f64 {
    ratio(hits(&grades(ranked, judgments), k), k as f64)
}

/// One over the rank of the first relevant document within the first `k`; 0 when there is none.
pub fn reciprocal_rank(ranked: &[impl AsRef<str>], judgments: &Judgments, k: usize) -> f64 {
    let first = grades(ranked, judgments)
        .iter()
        .take(k)
        .position(|grade| *grade > 0);
    first.map_or(0.0, |index| 1.0 / (index + 1) as f64)
}

/// Average precision: precision at the rank of each relevant document, over all relevant documents; those not found
/// count 0. Its mean over queries is MAP.
pub fn average_precision(ranked: &[impl AsRef<str>], judgments: &Judgments) -> f64 {
    let mut found = 0.0;
    let mut sum = 0.0;
    for (index, grade) in grades(ranked, judgments).iter().enumerate() {
        if *grade > 0 {
            found += 1.0;
            sum += found / (index + 1) as f64;
        }
    }
    ratio(sum, relevant(judgments))
}

/// Grade by rank, repeated documents removed.
fn grades(ranked: &[impl AsRef<str>], judgments: &Judgments) -> Vec<i32> {
    let mut seen = BTreeSet::new();
    let distinct = ranked
        .iter()
        .map(AsRef::as_ref)
        .filter(|id| seen.insert(*id));
    distinct
        .map(|id| judgments.get(id).copied().unwrap_or(0))
        .collect()
}

fn discounted_gain(grades: &[i32], k: usize) -> f64 {
    let ranks = grades.iter().take(k).enumerate();
    let gains =
        ranks.map(|(index, grade)| f64::from((*grade).max(0)) / (index as f64 + 2.0).log2());
    // The sum of nothing would be -0.
    gains.fold(0.0, |sum, gain| sum + gain)
}

fn hits(grades: &[i32], k: usize) -> f64 {
    grades.iter().take(k).filter(|grade| **grade > 0).count() as f64
}

fn relevant(judgments: &Judgments) -> f64 {
    judgments.values().filter(|grade| **grade > 0).count() as f64
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judged(grades: &[(&str, i32)]) -> Judgments {
        grades
            .iter()
            .map(|(id, grade)| ((*id).to_owned(), *grade))
            .collect()
    }

    #[test]
    fn golden_vectors() {
        // Gains by rank 0, 1, 0, 2; a second and third grade-1 document are not found.
        let judgments = judged(&[("two", 2), ("one", 1), ("lost", 1), ("gone", 1)]);
        let ranked = ["x", "one", "y", "two", "z"];
        assert!((ndcg(&ranked, &judgments, 10) - 0.418_992).abs() < 1e-6);
        assert!((ndcg_searchlm(&ranked, &judgments, 10) - 0.567_207).abs() < 1e-6);
        assert!((recall(&ranked, &judgments, 10) - 0.5).abs() < 1e-12);
        assert!((precision(&ranked, &judgments, 10) - 0.2).abs() < 1e-12);
        assert!((reciprocal_rank(&ranked, &judgments, 10) - 0.5).abs() < 1e-12);
        assert!((average_precision(&ranked, &judgments) - 0.25).abs() < 1e-12);
        // One found at rank 1 of 38 relevant.
        let many: Judgments = (0..38).map(|index| (format!("d{index}"), 1)).collect();
        assert!((ndcg(&["d7"], &many, 10) - 0.220_092).abs() < 1e-6);
        assert!((ndcg_searchlm(&["d7"], &many, 10) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn cutoffs_repeats_and_empty_lists() {
        let judgments = judged(&[("a", 1)]);
        assert!(reciprocal_rank(&["x", "y", "a"], &judgments, 2) < 1e-12);
        assert!((precision(&["a", "a"], &judgments, 2) - 0.5).abs() < 1e-12);
        assert!(ndcg(&["a", "a"], &judgments, 2) <= 1.0);
        assert!(ndcg(&[] as &[&str], &judgments, 10) < 1e-12);
        assert!(average_precision(&["a"], &Judgments::new()) < 1e-12);
    }

    proptest! {
        #[test]
        fn metrics_stay_in_range_and_the_ideal_order_is_perfect(grades in prop::collection::vec(-1_i32..4, 1..20), k in 1_usize..25) {
            let judgments: Judgments = grades.iter().enumerate().map(|(index, grade)| (format!("d{index:02}"), *grade)).collect();
            let mut ideal: Vec<&String> = judgments.keys().collect();
            ideal.sort_by_key(|id| std::cmp::Reverse(judgments[*id]));
            let any = grades.iter().any(|grade| *grade > 0);
            prop_assert!((ndcg(&ideal, &judgments, k) - f64::from(u8::from(any))).abs() < 1e-9);
            prop_assert!((average_precision(&ideal, &judgments) - f64::from(u8::from(any))).abs() < 1e-9);
            ideal.reverse();
            prop_assert!(ndcg_searchlm(&ideal, &judgments, k) >= ndcg(&ideal, &judgments, k) - 1e-9);
            for value in [ndcg_searchlm(&ideal, &judgments, k), ndcg(&ideal, &judgments, k), recall(&ideal, &judgments, k), precision(&ideal, &judgments, k)] {
                prop_assert!((0.0..=1.0 + 1e-9).contains(&value));
            }
        }
    }
}

//! Ranking metrics equal to `trec_eval`, and one that is not, under its own name.
//!
//! A document is relevant when its grade is at least 1; documents without a judgment and grades below 1 are not. Rank
//! order is the order given (`trec_eval` sorts by score first). A repeated document counts at its first rank only.

use std::collections::{BTreeMap, BTreeSet};

/// Grade of each judged document of one query, by document id.
pub(crate) type Judgments = BTreeMap<String, i32>;

/// A ranking of one query beside its judgments.
#[derive(Clone, Debug)]
pub struct Graded {
    /// Grade by rank, repeated documents removed.
    grades: Vec<i32>,
    /// Grades of all judged documents, highest first.
    ideal: Vec<i32>,
}

impl Graded {
    /// A ranking, document ids best first, and the grade of each judged document by its id.
    pub fn new(ranked: &[impl AsRef<str>], judgments: &BTreeMap<String, i32>) -> Self {
        let mut seen = BTreeSet::new();
        let distinct = ranked
            .iter()
            .map(AsRef::as_ref)
            .filter(|id| seen.insert(*id));
        let grades = distinct.map(|id| judgments.get(id).copied().unwrap_or(0));
        let grades = grades.collect();
        let mut ideal: Vec<i32> = judgments.values().copied().collect();
        ideal.sort_unstable_by(|a, b| b.cmp(a));
        Self { grades, ideal }
    }

    /// Normalised discounted cumulative gain of the first `k` ranks: linear gains, `1 / log2(rank + 1)` discounts, the ideal
    /// order over all judged documents.
    pub fn ndcg(&self, k: usize) -> f64 {
        ratio(
            discounted_gain(&self.grades, k),
            discounted_gain(&self.ideal, k),
        )
    }

    /// `SearchLM`'s NDCG: as [`Graded::ndcg`], but the ideal order is that of the first `k` documents *found*, whatever else is
    /// relevant. It is 1 as soon as the relevant ones among them come first, so it is higher, and not comparable.
    pub(crate) fn ndcg_searchlm(&self, k: usize) -> f64 {
        let mut gains = self.grades.clone();
        gains.truncate(k);
        let found = discounted_gain(&gains, k);
        gains.sort_unstable_by(|a, b| b.cmp(a));
        ratio(found, discounted_gain(&gains, k))
    }

    /// Share of the relevant documents found in the first `k` ranks; 0 when there are none.
    pub fn recall(&self, k: usize) -> f64 {
        ratio(relevant(&self.grades, k), self.relevant())
    }

    /// Share of the first `k` ranks that hold relevant documents; ranks beyond the list's end count as misses.
    pub fn precision(&self, k: usize) -> f64 {
        ratio(relevant(&self.grades, k), k as f64)
    }

    /// One over the rank of the first relevant document within the first `k`; 0 when there is none.
    pub fn reciprocal_rank(&self, k: usize) -> f64 {
        let first = self.grades.iter().take(k).position(|grade| *grade > 0);
        first.map_or(0.0, |index| 1.0 / (index + 1) as f64)
    }

    /// Average precision: precision at the rank of each relevant document, over all relevant documents; those not found
    /// count 0. Its mean over queries is MAP.
    pub fn average_precision(&self) -> f64 {
        let mut found = 0.0;
        let mut sum = 0.0;
        for (index, grade) in self.grades.iter().enumerate() {
            if *grade > 0 {
                found += 1.0;
                sum += found / (index + 1) as f64;
            }
        }
        ratio(sum, self.relevant())
    }

    fn relevant(&self) -> f64 {
        relevant(&self.ideal, usize::MAX)
    }
}

fn discounted_gain(grades: &[i32], k: usize) -> f64 {
    let ranks = grades.iter().take(k).enumerate();
    let gains =
        ranks.map(|(index, grade)| f64::from((*grade).max(0)) / (index as f64 + 2.0).log2());
    // The sum of nothing would be -0.
    gains.fold(0.0, |sum, gain| sum + gain)
}

fn relevant(grades: &[i32], k: usize) -> f64 {
    grades.iter().take(k).filter(|grade| **grade > 0).count() as f64
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
        assert!((Graded::new(&ranked, &judgments).ndcg(10) - 0.418_992).abs() < 1e-6);
        assert!((Graded::new(&ranked, &judgments).ndcg_searchlm(10) - 0.567_207).abs() < 1e-6);
        assert!((Graded::new(&ranked, &judgments).recall(10) - 0.5).abs() < 1e-12);
        assert!((Graded::new(&ranked, &judgments).precision(10) - 0.2).abs() < 1e-12);
        assert!((Graded::new(&ranked, &judgments).reciprocal_rank(10) - 0.5).abs() < 1e-12);
        assert!((Graded::new(&ranked, &judgments).average_precision() - 0.25).abs() < 1e-12);
        // One found at rank 1 of 38 relevant.
        let many: Judgments = (0..38).map(|index| (format!("d{index}"), 1)).collect();
        assert!((Graded::new(&["d7"], &many).ndcg(10) - 0.220_092).abs() < 1e-6);
        assert!((Graded::new(&["d7"], &many).ndcg_searchlm(10) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn cutoffs_repeats_and_empty_lists() {
        let judgments = judged(&[("a", 1)]);
        assert!(Graded::new(&["x", "y", "a"], &judgments).reciprocal_rank(2) < 1e-12);
        assert!((Graded::new(&["a", "a"], &judgments).precision(2) - 0.5).abs() < 1e-12);
        assert!(Graded::new(&["a", "a"], &judgments).ndcg(2) <= 1.0);
        assert!(Graded::new(&[] as &[&str], &judgments).ndcg(10) < 1e-12);
        assert!(Graded::new(&["a"], &Judgments::new()).average_precision() < 1e-12);
    }

    proptest! {
        #[test]
        fn metrics_stay_in_range_and_the_ideal_order_is_perfect(grades in prop::collection::vec(-1_i32..4, 1..20), k in 1_usize..25) {
            let judgments: Judgments = grades.iter().enumerate().map(|(index, grade)| (format!("d{index:02}"), *grade)).collect();
            let mut ideal: Vec<&String> = judgments.keys().collect();
            ideal.sort_by_key(|id| std::cmp::Reverse(judgments[*id]));
            let any = grades.iter().any(|grade| *grade > 0);
            prop_assert!((Graded::new(&ideal, &judgments).ndcg(k) - f64::from(u8::from(any))).abs() < 1e-9);
            prop_assert!((Graded::new(&ideal, &judgments).average_precision() - f64::from(u8::from(any))).abs() < 1e-9);
            ideal.reverse();
            prop_assert!(Graded::new(&ideal, &judgments).ndcg_searchlm(k) >= Graded::new(&ideal, &judgments).ndcg(k) - 1e-9);
            for value in [Graded::new(&ideal, &judgments).ndcg_searchlm(k), Graded::new(&ideal, &judgments).ndcg(k), Graded::new(&ideal, &judgments).recall(k), Graded::new(&ideal, &judgments).precision(k)] {
                prop_assert!((0.0..=1.0 + 1e-9).contains(&value));
            }
        }
    }
}

//! The pruned scorer against an exhaustive one that shares nothing with it but the analyzer, and against Lucene.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forage_contracts::Passage;
use proptest::prelude::*;
use serde::Deserialize;
use tantivy::fieldnorm::FieldNormReader;

use crate::{Bm25Params, Bm25Retriever, Index, analyze};

/// Every passage as id, length in terms, and frequency per term.
struct Bags(Vec<(String, usize, BTreeMap<String, u32>)>);

impl Bags {
    fn of(passages: &[Passage]) -> Self {
        let bag = |passage: &Passage| {
            let terms = analyze(&format!("{} {}", passage.title, passage.text));
            (passage.id.clone(), terms.len(), count(&terms))
        };
        Self(passages.iter().map(bag).collect())
    }

    fn rank(&self, params: Bm25Params, query: &str, k: usize) -> Vec<(String, f32)> {
        let docs = self.0.iter().filter(|bag| bag.1 > 0).count() as f64;
        let average = (self.0.iter().map(|bag| bag.1).sum::<usize>() as f64 / docs.max(1.0)) as f32;
        let mut scores = vec![0.0_f64; self.0.len()];
        for (term, times) in count(&analyze(query)) {
            let df = self
                .0
                .iter()
                .filter(|bag| bag.2.contains_key(&term))
                .count() as f64;
            let weight = times as f32 * (1.0 + (docs - df + 0.5) / (df + 0.5)).ln() as f32;
            for ((_, length, freqs), score) in self.0.iter().zip(&mut scores) {
                let id = FieldNormReader::fieldnorm_to_id(*length as u32);
                let length = FieldNormReader::id_to_fieldnorm(id) as f32;
                let inverse = 1.0 / (params.k1 * ((1.0 - params.b) + params.b * length / average));
                if let Some(&freq) = freqs.get(&term) {
                    *score += f64::from(weight - weight / (1.0 + freq as f32 * inverse));
                }
            }
        }
        let scored = self.0.iter().zip(scores).filter(|(_, score)| *score > 0.0);
        let mut ranked: Vec<_> = scored
            .map(|(bag, score)| (bag.0.clone(), score as f32))
            .collect();
        ranked.sort_by(|one, other| other.1.total_cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        ranked.truncate(k);
        ranked
    }
}

fn count(terms: &[String]) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for term in terms {
        *counts.entry(term.clone()).or_default() += 1;
    }
    counts
}

fn found(retriever: &Bm25Retriever, query: &str, k: usize) -> Vec<(String, f32)> {
    retriever
        .search_one(query, k)
        .unwrap()
        .into_iter()
        .map(|hit| (hit.id, hit.score))
        .collect()
}

fn word() -> impl Strategy<Value = String> {
    // A skewed vocabulary: `w0` nearly everywhere, high numbers rare.
    (0.0_f64..1.0).prop_map(|x| format!("w{}", (x * x * x * 30.0) as u32))
}

fn text(longest: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(word(), 0..longest).prop_map(|words| words.join(" "))
}

fn corpus() -> impl Strategy<Value = Vec<Passage>> {
    prop::collection::vec((0_u32..10_000, text(3), text(30)), 1..300).prop_map(|rows| {
        let mut used = BTreeSet::new();
        let mut passages = Vec::new();
        for (id, title, text) in rows {
            if used.insert(id) {
                passages.push(Passage::new(id.to_string(), title, text));
            }
        }
        passages
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Ids, order, ties and scores are equal, bit for bit, with stored bounds and without.
    #[test]
    fn pruning_changes_nothing(
        passages in corpus(),
        queries in prop::collection::vec(text(8), 1..6),
        k in 1_usize..20,
        k1 in 0.0_f32..3.0,
        b in 0.0_f32..=1.0,
    ) {
        let default = Bm25Params::default();
        let index = Arc::new(Index::in_memory(&passages, default).unwrap());
        let own = Bm25Retriever::new(index.clone());
        let params = Bm25Params { k1, b };
        let other = Bm25Retriever::with_params(index, params).unwrap();
        let bags = Bags::of(&passages);
        for query in &queries {
            prop_assert_eq!(found(&own, query, k), bags.rank(default, query, k));
            prop_assert_eq!(found(&other, query, k), bags.rank(params, query, k));
        }
    }
}

/// More documents than a window, postings of many blocks, block ends on and off multiples of 128.
#[test]
fn many_blocks_and_windows() {
    let passages: Vec<Passage> = (0..9_000_u32)
        .map(|number| {
            let mut text = String::from("common");
            for (word, every) in [("half", 2), ("tenth", 10), ("rare", 997), ("block", 128)] {
                if number % every == 0 {
                    text.push(' ');
                    text.push_str(word);
                }
            }
            text.push_str(&" filler".repeat((number % 7) as usize));
            Passage::new(format!("d{number:05}"), "", text)
        })
        .collect();
    let params = Bm25Params::default();
    let bags = Bags::of(&passages);
    let retriever = Bm25Retriever::in_memory(passages).unwrap();
    for query in [
        "common",
        "rare common",
        "block tenth half",
        "rare tenth half common filler",
        "half half rare",
        "none",
    ] {
        for k in [1, 3, 10, 100] {
            assert_eq!(
                found(&retriever, query, k),
                bags.rank(params, query, k),
                "{query} {k}"
            );
        }
    }
    assert_eq!(found(&retriever, "common", 20_000).len(), 9_000);
}

/// Figures worked out by hand from Lucene's formula.
#[test]
fn scores_are_lucenes() {
    let passages = vec![
        Passage::new("a", "", "alpha beta"),
        Passage::new("b", "", "alpha alpha gamma delta"),
    ];
    let retriever = Bm25Retriever::in_memory(passages).unwrap();
    // N 2, df 1, average length 3: idf ln 2; norm 0.9 * (0.6 + 0.4 * 2 / 3) = 0.78; ln 2 * 1 / 1.78.
    let hits = found(&retriever, "beta", 5);
    assert_eq!(hits.len(), 1);
    assert!((hits[0].1 - std::f32::consts::LN_2 / 1.78).abs() < 1e-6);
    // A repeated query term counts twice.
    let twice = found(&retriever, "beta beta", 5);
    assert!((twice[0].1 - 2.0 * hits[0].1).abs() < 1e-6);
}

/// Passages, and Lucene's ten best of them for each query, by `tests/fixtures/lucene/make.py`.
#[derive(Deserialize)]
struct Lucene {
    passages: Vec<Passage>,
    rankings: Vec<Ranking>,
}

#[derive(Deserialize)]
struct Ranking {
    query: String,
    hits: Vec<(String, f32)>,
}

/// The same ids in the same order, ties included; scores that differ by no more than the last bits of 32.
#[test]
fn rankings_and_scores_are_those_of_lucene() {
    let file = include_str!("../../../tests/fixtures/lucene/rankings.json");
    let lucene: Lucene = serde_json::from_str(file).unwrap();
    let retriever = Bm25Retriever::in_memory(lucene.passages).unwrap();
    let ids = |hits: &[(String, f32)]| hits.iter().map(|hit| hit.0.clone()).collect::<Vec<_>>();
    let mut pairs = 0;
    for Ranking { query, hits } in lucene.rankings {
        let ours = found(&retriever, &query, 10);
        assert_eq!(ids(&ours), ids(&hits), "{query}");
        for ((id, score), (_, expected)) in ours.iter().zip(&hits) {
            let apart = (score - expected).abs() / expected;
            assert!(apart < 1e-6, "{query}: {id} {score}, Lucene's {expected}");
        }
        pairs += ours.len();
    }
    assert_eq!(pairs, 599);
}

#[test]
fn ties_go_to_the_smaller_id_also_at_the_cut() {
    let ids = ["10", "9", "2", "1", "b", "a"];
    let passages = ids
        .iter()
        .map(|id| Passage::new(*id, "", "same words here"))
        .collect();
    let retriever = Bm25Retriever::in_memory(passages).unwrap();
    let order: Vec<String> = found(&retriever, "same", 4)
        .into_iter()
        .map(|hit| hit.0)
        .collect();
    assert_eq!(order, ["1", "10", "2", "9"]);
}

#[test]
fn nothing_to_find() {
    let retriever = Bm25Retriever::in_memory(vec![
        Passage::new("a", "", "the of"),
        Passage::new("b", "", ""),
    ])
    .unwrap();
    assert!(found(&retriever, "the word", 3).is_empty());
    assert!(found(&retriever, "", 3).is_empty());
    let retriever = Bm25Retriever::in_memory(vec![Passage::new("a", "", "word")]).unwrap();
    assert!(found(&retriever, "word", 0).is_empty());
    assert_eq!(
        found(&retriever, "\"word' AND (NOT ~foo:bar^2 *", 3).len(),
        1
    );
}

use std::sync::atomic::{AtomicUsize, Ordering};

use forage_contracts::Passage;
use forage_contracts::retriever::{Encoder, TextKind};
use futures::FutureExt;

use super::*;
use crate::retriever::Bm25Retriever;

/// Scores by how often a passage has the letter `e`, or as told.
struct Letters(Option<f32>);

impl Reranker for Letters {
    fn identity(&self) -> String {
        "letters".to_owned()
    }

    fn score(&self, query: &str, passages: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        assert_eq!(query, "tide");
        let count = |text: &str| text.matches('e').count() as f32;
        Ok(passages
            .iter()
            .map(|text| self.0.unwrap_or_else(|| count(text)))
            .collect())
    }
}

fn first() -> Arc<dyn Retriever> {
    let passages = vec![
        Passage::new("d", "", "tide tide tide"),
        Passage::new("c", "Eee", "tide tide moon"),
        Passage::new("b", "", "tide here moon sun"),
        Passage::new("a", "", "tide gone moon sun wind"),
        Passage::new("e", "", "nothing of the kind, never ever"),
    ];
    Arc::new(Bm25Retriever::in_memory(passages).unwrap())
}

#[tokio::test]
async fn the_model_decides_the_order_of_the_first_hits() {
    let ask = |depth, k| async move {
        let reranked = RerankedRetriever::new(first(), Arc::new(Letters(None)), depth);
        let hits = reranked
            .search(&[Query::new("tide"), Query::new("zebra")], k)
            .await
            .unwrap();
        assert!(hits[1].is_empty(), "the model is not asked about nothing");
        hits[0]
            .iter()
            .map(|hit| (hit.id.clone(), hit.score))
            .collect::<Vec<_>>()
    };
    let named = |pairs: &[(&str, f32)]| {
        pairs
            .iter()
            .map(|&(id, score)| (id.to_owned(), score))
            .collect::<Vec<_>>()
    };
    // "(Title: Eee) tide tide moon" has e in Title, twice in Eee and twice in tide.
    assert_eq!(
        ask(4, 10).await,
        named(&[("c", 5.0), ("b", 3.0), ("d", 3.0), ("a", 2.0)]),
        "ties by id"
    );
    assert_eq!(
        ask(1, 2).await,
        named(&[("c", 5.0), ("d", 3.0)]),
        "depth grows to k"
    );
    assert_eq!(ask(2, 1).await, named(&[("c", 5.0)]));
}

#[test]
fn works_without_a_runtime() {
    let reranked = RerankedRetriever::new(first(), Arc::new(Letters(None)), 4);
    let hits = reranked
        .search(&[Query::new("tide")], 1)
        .now_or_never()
        .expect("nothing to wait for")
        .unwrap();
    assert_eq!(hits[0][0].id, "c");
}

#[tokio::test]
async fn a_score_that_is_no_number_is_an_error() {
    for score in [f32::NAN, f32::INFINITY] {
        let reranked = RerankedRetriever::new(first(), Arc::new(Letters(Some(score))), 4);
        let failure = reranked.search(&[Query::new("tide")], 1).await.unwrap_err();
        assert!(matches!(failure, RetrieverError::Model { .. }), "{failure}");
    }
}

/// Counts the passages that it scored.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Reranker for Counting {
    fn identity(&self) -> String {
        "counting".to_owned()
    }

    fn score(&self, _query: &str, passages: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        let before = self.0.fetch_add(passages.len(), Ordering::SeqCst);
        Ok((before..)
            .map(|number| number as f32)
            .take(passages.len())
            .collect())
    }
}

#[test]
fn a_model_stops_once_nobody_waits_for_it() {
    let passages = vec![String::new(); 3 * SCORED_AT_ONCE + 1];
    let model = Counting::default();
    let all = scores(&model, "q", &passages, &CancelFlag::default()).unwrap();
    assert_eq!(all.len(), passages.len());
    assert!(all.is_sorted(), "in the order of the passages");
    let model = Counting::default();
    let failure = scores(&model, "q", &passages, &crate::cancel::after(2)).unwrap_err();
    assert!(matches!(failure, RetrieverError::Cancelled), "{failure}");
    assert_eq!(model.0.into_inner(), 2 * SCORED_AT_ONCE);
}

#[test]
fn depth_and_model_are_part_of_the_fingerprint() {
    let print =
        |depth| RerankedRetriever::new(first(), Arc::new(Letters(None)), depth).fingerprint();
    assert_eq!(print(3), print(3));
    assert_ne!(print(3), print(4));
    assert_ne!(print(3), first().fingerprint());
}

/// A passage of the collection scores as its search says, a changed one as if it stood there.
#[test]
fn bm25_scores_any_text_as_its_search_would() {
    let passages = vec![
        Passage::new("a", "Moon", "tide and tides of the moon"),
        Passage::new("b", "", "a tide here, the sun there"),
        Passage::new("c", "Sun", ""),
    ];
    let bm25 = Bm25Retriever::in_memory(passages).unwrap();
    let model: &dyn Reranker = &bm25;
    for query in ["tide moon", "tide tide sun", "zebra", ""] {
        let hits = bm25.search_one(query, 10).unwrap();
        let scores = model.score_hits(query, &hits).unwrap();
        let found: Vec<f32> = hits.iter().map(|hit| hit.score).collect();
        assert_eq!(scores, found, "{query}");
        let ceiling = bm25.ceiling(query).unwrap();
        assert!(scores.iter().all(|score| *score <= ceiling), "{query}");
    }
    let mut changed = bm25.search_one("moon", 1).unwrap();
    changed[0].text = "tide of the moon, moon, moon".to_owned();
    let before = bm25.search_one("moon", 1).unwrap()[0].score;
    assert!(model.score_hits("moon", &changed).unwrap()[0] > before);
    changed[0].title.clear();
    changed[0].text = "nothing".to_owned();
    assert_eq!(model.score_hits("moon", &changed).unwrap(), [0.0]);
}

/// Counts the letters `e` and `t`; those of passages count twice.
struct Counts;

impl Encoder for Counts {
    fn identity(&self) -> String {
        "counts".to_owned()
    }

    fn dimension(&self) -> usize {
        2
    }

    fn encode(&self, kind: TextKind, texts: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        let weight = if kind == TextKind::Passage { 2.0 } else { 1.0 };
        let count = |text: &str, letter| text.matches(letter).count() as f32 * weight;
        let rows = texts
            .iter()
            .map(|text| [count(text, 'e'), count(text, 't')]);
        Ok(rows.flatten().collect())
    }
}

#[test]
fn vectors_score_the_text_that_an_index_would_hold() {
    let model = <dyn Reranker>::by_vectors(Arc::new(Counts));
    let hit = |title: &str, text: &str| Hit {
        id: "a".to_owned(),
        score: 9.0,
        title: title.to_owned(),
        text: text.to_owned(),
    };
    assert_eq!(model.passage(&hit("tee", "te")), "\"tee\"\nte");
    let scores = model.score_hits("tte", &[hit("tee", "te"), hit("", "t")]);
    // [1, 2] with [6, 4] and with [0, 2].
    assert_eq!(scores.unwrap(), [14.0, 4.0]);
    assert!(model.score_hits("tte", &[]).unwrap().is_empty());
}

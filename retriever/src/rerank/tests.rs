use forage_contracts::Passage;
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

#[test]
fn depth_and_model_are_part_of_the_fingerprint() {
    let print =
        |depth| RerankedRetriever::new(first(), Arc::new(Letters(None)), depth).fingerprint();
    assert_eq!(print(3), print(3));
    assert_ne!(print(3), print(4));
    assert_ne!(print(3), first().fingerprint());
}

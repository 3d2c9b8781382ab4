use std::time::Duration;

use serde::Deserialize;

use super::*;

/// Ranked lists and their fusions by `tests/fixtures/hybrid/make.py`.
#[derive(Deserialize)]
struct Case {
    lists: Vec<Vec<(String, f32)>>,
    rrf: Vec<(String, f32)>,
}

/// Gives a list as it is, after a while.
struct Given(Vec<(String, f32)>, u64);

#[async_trait::async_trait]
impl Retriever for Given {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint(format!("{:?}", self.0))
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        tokio::time::sleep(Duration::from_millis(self.1)).await;
        let hit = |(id, score): &(String, f32)| Hit {
            id: id.clone(),
            score: *score,
            title: String::new(),
            text: format!("text of {id}"),
        };
        Ok(queries
            .iter()
            .map(|_| self.0.iter().take(k).map(hit).collect())
            .collect())
    }
}

fn parts(lists: &[Vec<(String, f32)>]) -> Vec<Arc<dyn Retriever>> {
    let delays = (0..lists.len() as u64).rev();
    lists
        .iter()
        .zip(delays)
        .map(|(list, delay)| Arc::new(Given(list.clone(), delay)) as Arc<dyn Retriever>)
        .collect()
}

async fn fused(lists: &[Vec<(String, f32)>], depth: usize, k: usize) -> Vec<(String, f32)> {
    let hybrid = HybridRetriever::new(parts(lists), depth).unwrap();
    let mut hits = hybrid.search(&[Query::new("any")], k).await.unwrap();
    assert!(
        hits[0]
            .iter()
            .all(|hit| hit.text == format!("text of {}", hit.id))
    );
    hits.remove(0)
        .into_iter()
        .map(|hit| (hit.id, hit.score))
        .collect()
}

#[tokio::test]
async fn fusion_equals_that_of_numpy() {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../../tests/fixtures/hybrid/fusion.json")).unwrap();
    assert_eq!(cases.len(), 40);
    for case in cases {
        assert_eq!(fused(&case.lists, 10, 5).await, case.rrf);
    }
}

#[tokio::test]
async fn depth_limits_the_lists_and_grows_to_k() {
    let list = |ids: &str| {
        ids.chars()
            .map(|id| (id.to_string(), 1.0))
            .collect::<Vec<_>>()
    };
    let lists = [list("abc"), list("cba")];
    let ids = |hits: Vec<(String, f32)>| hits.into_iter().map(|(id, _)| id).collect::<String>();
    assert_eq!(
        ids(fused(&lists, 1, 1).await),
        "a",
        "c is first of the other list: a tie, by id"
    );
    assert_eq!(ids(fused(&lists, 1, 3).await), "acb");
    assert_eq!(ids(fused(&lists, 3, 0).await), "");
}

#[test]
fn faults_are_named_and_fingerprints_tell_apart() {
    let lists = vec![vec![("a".to_owned(), 1.0)]; 2];
    let make = |depth| HybridRetriever::new(parts(&lists), depth);
    assert!(make(0).is_err());
    assert!(HybridRetriever::new(Vec::new(), 10).is_err());
    let print = |depth| make(depth).unwrap().fingerprint();
    assert_eq!(print(10), print(10));
    assert_ne!(print(10), print(11));
}

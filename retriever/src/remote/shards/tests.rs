//! Shards in the same process: what the front makes of what they say.

use std::sync::Mutex;

use super::*;

/// Says what it is told to.
struct Scripted {
    name: &'static str,
    statistics: Result<Statistics, ()>,
    hits: Vec<(&'static str, f32)>,
    /// Collection statistics of every search.
    asked: Mutex<Vec<Statistics>>,
}

impl Scripted {
    fn new(name: &'static str, passages: u64, hits: &[(&'static str, f32)]) -> Self {
        let frequencies = [(name.to_owned(), passages), ("both".to_owned(), 1)].into();
        let statistics = Ok(Statistics {
            passages,
            tokens: 10 * passages,
            frequencies,
        });
        Self {
            name,
            statistics,
            hits: hits.to_vec(),
            asked: Mutex::default(),
        }
    }
}

#[async_trait::async_trait]
impl Shard for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint(format!("of {}", self.name))
    }

    async fn statistics(&self, _: &[Query]) -> Result<Statistics, RetrieverError> {
        self.statistics
            .clone()
            .map_err(|()| RetrieverError::Stopped)
    }

    async fn search_with(
        &self,
        queries: &[Query],
        k: usize,
        whole: &Statistics,
    ) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        self.asked.lock().unwrap().push(whole.clone());
        let hit = |&(id, score): &(&str, f32)| Hit {
            id: id.to_owned(),
            score,
            title: String::new(),
            text: String::new(),
        };
        let hits: Vec<Hit> = self.hits.iter().take(k).map(hit).collect();
        Ok(vec![hits; queries.len()])
    }
}

fn front(shards: &[&Arc<Scripted>]) -> Result<ShardedRetriever, RetrieverError> {
    ShardedRetriever::new(
        shards
            .iter()
            .map(|&shard| Arc::clone(shard) as Arc<dyn Shard>)
            .collect(),
        2,
    )
}

#[tokio::test]
async fn sums_go_out_and_lists_are_merged() {
    let (a, b) = (
        Arc::new(Scripted::new("a", 3, &[("z", 2.0), ("m", 1.0)])),
        Arc::new(Scripted::new("b", 5, &[("y", 2.0), ("x", 1.5)])),
    );
    let found = front(&[&a, &b])
        .unwrap()
        .search(&[Query::new("q"), Query::new("r"), Query::new("s")], 3)
        .await
        .unwrap();
    assert_eq!(found.len(), 3);
    for hits in &found {
        let ids: Vec<_> = hits
            .iter()
            .map(|hit| (hit.id.as_str(), hit.score))
            .collect();
        assert_eq!(ids, [("y", 2.0), ("z", 2.0), ("x", 1.5)]);
    }
    let whole = Statistics {
        passages: 8,
        tokens: 80,
        frequencies: [
            ("a".to_owned(), 3),
            ("b".to_owned(), 5),
            ("both".to_owned(), 2),
        ]
        .into(),
    };
    for shard in [&a, &b] {
        // Three queries in batches of two.
        assert_eq!(*shard.asked.lock().unwrap(), [whole.clone(), whole.clone()]);
    }
    assert_eq!(
        front(&[&a, &b]).unwrap().fingerprint(),
        front(&[&b, &a]).unwrap().fingerprint()
    );
    assert_ne!(
        front(&[&a, &b]).unwrap().fingerprint(),
        front(&[&a]).unwrap().fingerprint()
    );
}

#[tokio::test]
async fn parts_that_overlap_are_a_fault_of_the_settings() {
    let (a, b) = (
        Arc::new(Scripted::new("a", 1, &[("z", 2.0)])),
        Arc::new(Scripted::new("b", 1, &[("z", 2.0)])),
    );
    let error = front(&[&a, &b])
        .unwrap()
        .search(&[Query::new("q")], 3)
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("passage `z` is in `a` and in `b`"),
        "{error}"
    );
    assert!(
        front(&[&a, &a])
            .err()
            .unwrap()
            .to_string()
            .contains("same passages")
    );
    assert!(front(&[]).err().unwrap().to_string().contains("is empty"));
}

#[tokio::test]
async fn one_part_that_fails_fails_the_search() {
    let a = Arc::new(Scripted::new("a", 1, &[("z", 2.0)]));
    let b = Arc::new(Scripted {
        statistics: Err(()),
        ..Scripted::new("b", 1, &[("y", 2.0)])
    });
    let error = front(&[&a, &b])
        .unwrap()
        .search(&[Query::new("q")], 3)
        .await
        .unwrap_err();
    assert!(matches!(error, RetrieverError::Stopped));
}

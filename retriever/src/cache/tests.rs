use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use forage_contracts::retriever::Filter;
use proptest::prelude::*;
use tokio::sync::Semaphore;

use super::*;

/// Answers every query with a hit that spells it out, when it is let; fails for texts that begin with `fail`.
struct Echo {
    permits: Semaphore,
    calls: AtomicUsize,
    searched: Mutex<Vec<String>>,
    name: Mutex<String>,
}

impl Echo {
    fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Semaphore::new(permits),
            calls: AtomicUsize::new(0),
            searched: Mutex::default(),
            name: Mutex::new("one".to_owned()),
        })
    }
}

fn expected(query: &Query, k: usize) -> Vec<Hit> {
    let filter = serde_json::to_string(&*query.filter).unwrap();
    let hit = |at: usize| Hit {
        id: format!("{at}"),
        score: 1.0,
        title: filter.clone(),
        text: query.text.clone(),
    };
    (0..k).map(hit).collect()
}

#[async_trait::async_trait]
impl Retriever for Echo {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.name.lock().unwrap().clone())
    }

    async fn search(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.searched
            .lock()
            .unwrap()
            .extend(queries.iter().map(|query| query.text.clone()));
        self.permits.acquire().await.unwrap().forget();
        assert!(
            queries.iter().all(|query| query.text != "panic"),
            "as asked"
        );
        if let Some(query) = queries.iter().find(|query| query.cancel.is_cancelled()) {
            query.cancel.check()?;
        }
        if queries.iter().any(|query| query.text.starts_with("fail")) {
            return Err(RetrieverError::Model {
                model: "echo".to_owned(),
                what: "was told to".to_owned(),
            });
        }
        Ok(queries.iter().map(|query| expected(query, k)).collect())
    }
}

fn queries(texts: &[&str]) -> Vec<Query> {
    texts.iter().map(|text| Query::new(*text)).collect()
}

#[tokio::test]
async fn answers_come_again_without_a_search() {
    let echo = Echo::new(100);
    let cached = CachedRetriever::new(echo.clone(), 10);
    let asked = queries(&["a", "b", "a"]);
    let first = cached.search(&asked, 2).await.unwrap();
    assert_eq!(
        first,
        asked
            .iter()
            .map(|query| expected(query, 2))
            .collect::<Vec<_>>()
    );
    assert_eq!(cached.search(&asked, 2).await.unwrap(), first);
    assert_eq!(*echo.searched.lock().unwrap(), ["a", "b"]);
    assert_eq!(
        cached.stats(),
        CacheStats {
            hits: 3,
            joined: 1,
            misses: 2,
            entries: 2
        }
    );
    assert!(cached.search(&[], 2).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_decides_an_answer_is_part_of_the_key() {
    let echo = Echo::new(100);
    let cached = CachedRetriever::new(echo.clone(), 100);
    let filter = |name: &str, values: &[&str]| {
        Filter(BTreeMap::from([(
            name.to_owned(),
            values.iter().map(|&value| value.to_owned()).collect(),
        )]))
    };
    let asked = [
        (Query::new("a"), 1),
        (Query::new("a"), 2),
        (Query::new("a "), 1),
        (Query::new("A"), 1),
        (Query::new("a").filtered(filter("page", &["x"])), 1),
        (Query::new("a").filtered(filter("page", &["x", "y"])), 1),
        (Query::new("a").filtered(filter("pagex", &[])), 1),
    ];
    for (query, k) in &asked {
        assert_eq!(
            cached
                .search(std::slice::from_ref(query), *k)
                .await
                .unwrap(),
            [expected(query, *k)]
        );
    }
    assert_eq!(cached.stats().misses, asked.len() as u64);
    *echo.name.lock().unwrap() = "two".to_owned();
    cached.search(&queries(&["a"]), 1).await.unwrap();
    assert_eq!(
        cached.stats().misses,
        asked.len() as u64 + 1,
        "another fingerprint, another answer"
    );
}

#[tokio::test]
async fn deep_answers_are_not_kept_but_shared() {
    let echo = Echo::new(100);
    let cached = CachedRetriever::new(echo.clone(), 10);
    for _ in 0..2 {
        let found = cached
            .search(&queries(&["a", "a"]), LARGEST_K + 1)
            .await
            .unwrap();
        assert_eq!(found[1].len(), LARGEST_K + 1);
    }
    assert_eq!(
        cached.stats(),
        CacheStats {
            hits: 0,
            joined: 2,
            misses: 2,
            entries: 0
        }
    );
}

#[tokio::test]
async fn equal_queries_at_once_are_one_search() {
    let echo = Echo::new(0);
    let cached = Arc::new(CachedRetriever::new(echo.clone(), 10));
    let texts = [["a", "b"], ["b", "c"], ["a", "c"]];
    let calls = texts.map(|texts| {
        let cached = Arc::clone(&cached);
        async move { cached.search(&queries(&texts), 1).await.unwrap() }
    });
    let release = async {
        tokio::task::yield_now().await;
        echo.permits.add_permits(10);
    };
    let (found, ()) = tokio::join!(join_all(calls), release);
    for (found, texts) in found.iter().zip(texts) {
        assert_eq!(
            *found,
            queries(&texts)
                .iter()
                .map(|query| expected(query, 1))
                .collect::<Vec<_>>()
        );
    }
    assert_eq!(*echo.searched.lock().unwrap(), ["a", "b", "c"]);
    assert_eq!(
        cached.stats(),
        CacheStats {
            hits: 0,
            joined: 3,
            misses: 3,
            entries: 3
        }
    );
}

#[tokio::test]
async fn a_failure_reaches_all_and_is_not_kept() {
    let echo = Echo::new(0);
    let cached = CachedRetriever::new(echo.clone(), 10);
    let asked = queries(&["fail"]);
    let release = async { echo.permits.add_permits(100) };
    let (one, other, ()) =
        tokio::join!(cached.search(&asked, 1), cached.search(&asked, 1), release);
    for failure in [one.unwrap_err(), other.unwrap_err()] {
        assert!(
            matches!(failure.root(), RetrieverError::Model { .. }),
            "{failure}"
        );
        assert!(failure.to_string().contains("was told to"), "{failure}");
    }
    assert_eq!(echo.calls.load(Ordering::SeqCst), 1);
    cached.search(&asked, 1).await.unwrap_err();
    assert_eq!(echo.calls.load(Ordering::SeqCst), 2, "asked again");
    assert!(matches!(
        cached
            .search(&queries(&["panic"]), 1)
            .await
            .unwrap_err()
            .root(),
        RetrieverError::Stopped
    ));
    assert!(cached.shared.lock().is_empty());
}

#[tokio::test]
async fn a_caller_that_gives_up_hangs_nobody() {
    let echo = Echo::new(0);
    let cached = Arc::new(CachedRetriever::new(echo.clone(), 10));
    let ask =
        |cached: Arc<CachedRetriever>| async move { cached.search(&queries(&["a"]), 1).await };
    let leader = tokio::spawn(ask(Arc::clone(&cached)));
    while echo.calls.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let follower = tokio::spawn(ask(Arc::clone(&cached)));
    while cached.stats().joined == 0 {
        tokio::task::yield_now().await;
    }
    leader.abort();
    assert!(leader.await.unwrap_err().is_cancelled());
    echo.permits.add_permits(1);
    let found = tokio::time::timeout(Duration::from_secs(20), follower)
        .await
        .expect("no hang")
        .unwrap()
        .unwrap();
    assert_eq!(found, [expected(&Query::new("a"), 1)]);
    assert_eq!(
        echo.calls.load(Ordering::SeqCst),
        1,
        "the follower went on with the search of the leader"
    );

    // Nobody waits any more: the search is dropped and the next caller starts another.
    let alone = tokio::spawn(async move {
        let asked = queries(&["b"]);
        cached.search(&asked, 1).await.map(|_| ()).unwrap();
    });
    while echo.calls.load(Ordering::SeqCst) == 1 {
        tokio::task::yield_now().await;
    }
    alone.abort();
    assert!(alone.await.unwrap_err().is_cancelled());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Many tasks on many threads, some given up, against what the inner retriever would have said.
    #[test]
    fn concurrent_callers_get_their_own_answers(
        calls in prop::collection::vec(
            (prop::collection::vec(0_u8..8, 0..6), 1_usize..4, prop::bool::weighted(0.2)), 1..60),
        entries in 1_usize..12,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
        let echo = Echo::new(1 << 20);
        let cached = Arc::new(CachedRetriever::new(echo.clone(), entries));
        let asked = runtime.block_on(async {
            let mut tasks = Vec::new();
            for (texts, k, given_up) in calls {
                let asked: Vec<Query> = texts.iter().map(|text| Query::new(format!("q{text}"))).collect();
                let (cached, mine) = (Arc::clone(&cached), asked.clone());
                let task = tokio::spawn(async move { cached.search(&mine, k).await });
                if given_up {
                    task.abort();
                }
                tasks.push((asked, k, task));
            }
            let mut asked_in_all = 0;
            for (asked, k, task) in tasks {
                match tokio::time::timeout(Duration::from_mins(1), task).await.expect("no hang") {
                    Err(gone) => assert!(gone.is_cancelled()),
                    Ok(found) => {
                        asked_in_all += asked.len();
                        let wanted: Vec<_> = asked.iter().map(|query| expected(query, k)).collect();
                        assert_eq!(found.unwrap(), wanted);
                    }
                }
            }
            asked_in_all as u64
        });
        let stats = cached.stats();
        prop_assert!(stats.hits + stats.joined + stats.misses >= asked, "{:?} for {}", stats, asked);
        prop_assert!(stats.entries <= entries as u64 + 1);
        prop_assert!(cached.shared.lock().is_empty(), "no search is left behind");
    }
}

#[tokio::test]
async fn the_flag_of_one_who_gave_up_ends_nobody_elses_search() {
    let echo = Echo::new(0);
    let cached = Arc::new(CachedRetriever::new(echo.clone(), 10));
    let flag = forage_contracts::retriever::CancelFlag::new();
    let ask = |query: Query| {
        let cached = Arc::clone(&cached);
        tokio::spawn(async move { cached.search(&[query], 1).await })
    };
    let first = ask(Query {
        cancel: flag.clone(),
        ..Query::new("a")
    });
    tokio::task::yield_now().await;
    let second = ask(Query::new("a"));
    tokio::task::yield_now().await;
    flag.cancel();
    echo.permits.add_permits(2);
    let given_up = first.await.unwrap().unwrap_err();
    assert!(
        matches!(given_up.root(), RetrieverError::Cancelled),
        "{given_up}"
    );
    let found = second.await.unwrap().unwrap();
    assert_eq!(found, [expected(&Query::new("a"), 1)]);
    assert_eq!(echo.calls.load(Ordering::SeqCst), 2);
}

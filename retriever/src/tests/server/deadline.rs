//! The work of a request that is given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forage_retriever::server::{ServerConfig, Services};
use forage_retriever::{Bm25Retriever, Passage, Reranker, RetrieverError};
use serde_json::json;

use super::support::{Running, config};

/// Long passages of few words: every phrase may be in each of them.
fn pages() -> Arc<Bm25Retriever> {
    let words = [
        "river", "stone", "light", "north", "glass", "paper", "cloud",
    ];
    let page = |number: usize| {
        let text: Vec<&str> = (0..1000)
            .map(|at| words[(number * 31 + at * at + at / 7) % words.len()])
            .collect();
        Passage::new(number.to_string(), "", text.join(" "))
    };
    Arc::new(Bm25Retriever::in_memory((0..200).map(page).collect()).unwrap())
}

/// A boolean query of so many phrases that only positions decide.
fn phrases(count: usize) -> String {
    let phrases: Vec<String> = (0..count)
        .map(|number| format!("\"river stone light north glass paper\"~{number}"))
        .collect();
    phrases.join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_request_ends_with_its_deadline() {
    let limits = ServerConfig {
        workers: 1,
        deadline: Duration::from_millis(500),
        ..config()
    };
    let server = Running::start(limits, Services::of_index(pages())).await;
    let heavy = json!({"queries": vec![phrases(42); 400], "mode": "boolean"});
    let (status, answer) = server.post("/retrieve", &heavy).await;
    assert_eq!((status, &answer["cause"]), (503, &json!("deadline")));
    // The only worker is free again, long before the work would have been done.
    let begin = Instant::now();
    let word = json!({"queries": ["river"]});
    let idle = "forage_retriever_jobs_running 0";
    while server.post("/retrieve", &word).await.0 != 200 || !server.metrics().await.contains(idle) {
        let waited = begin.elapsed();
        assert!(waited < Duration::from_secs(15), "the worker is not free");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boolean_queries_of_one_request_take_their_turns_one_by_one() {
    let limits = ServerConfig {
        workers: 1,
        deadline: Duration::from_mins(5),
        ..config()
    };
    let server = Running::start(limits, Services::of_index(pages())).await;
    let heavy = json!({"queries": vec![phrases(10); 800], "mode": "boolean"}).to_string();
    let request = server
        .client
        .post(server.url("/retrieve"))
        .header("content-type", "application/json")
        .body(heavy);
    let answered = tokio::spawn(request.send());
    let running = "forage_retriever_jobs_running 1";
    while !server.metrics().await.contains(running) {
        assert!(!answered.is_finished(), "it runs");
        // So as not to compete with the only worker.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let word = json!({"queries": ["river"]});
    let (status, _) = server.post("/retrieve", &word).await;
    assert_eq!(status, 200);
    // An answer that was ready before the word's has arrived by now.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!answered.is_finished(), "the word waited for all of them");
    answered.abort();
}

/// Takes a millisecond for a passage, and counts them.
struct Slow(Arc<AtomicUsize>);

impl Reranker for Slow {
    fn identity(&self) -> String {
        "slow".to_owned()
    }

    fn score(&self, _query: &str, passages: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        for _ in passages {
            std::thread::sleep(Duration::from_millis(1));
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Ok(vec![0.0; passages.len()])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reranking_ends_with_its_deadline() {
    const DOCUMENTS: usize = 1000;
    let limits = ServerConfig {
        workers: 1,
        deadline: Duration::from_millis(300),
        ..config()
    };
    let scored = Arc::new(AtomicUsize::new(0));
    let mut services = Services::of_index(pages());
    services.reranker = Some(Arc::new(Slow(Arc::clone(&scored))));
    let server = Running::start(limits, services).await;
    let body = json!({"queries": ["river"], "documents": [vec!["stone"; DOCUMENTS]]});
    let (status, answer) = server.post("/rerank", &body).await;
    assert_eq!((status, &answer["cause"]), (503, &json!("deadline")));
    let begin = Instant::now();
    while !server
        .metrics()
        .await
        .contains("forage_retriever_jobs_running 0")
    {
        assert!(begin.elapsed() < Duration::from_secs(30), "it goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let scored = scored.load(Ordering::SeqCst);
    assert!(scored < DOCUMENTS, "{scored} for nobody");
}

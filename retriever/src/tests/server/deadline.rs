//! The work of a request that is given up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forage_retriever::server::{ServerConfig, Services};
use forage_retriever::{Bm25Retriever, Passage};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_request_ends_with_its_deadline() {
    let limits = ServerConfig {
        workers: 1,
        deadline: Duration::from_millis(500),
        ..config()
    };
    let server = Running::start(limits, Services::of_index(pages())).await;
    let phrases: Vec<String> = (0..42)
        .map(|number| format!("\"river stone light north glass paper\"~{number}"))
        .collect();
    let heavy = json!({"queries": vec![phrases.join(" "); 8], "mode": "boolean"});
    let (status, answer) = server.post("/retrieve", &heavy).await;
    assert_eq!((status, &answer["cause"]), (503, &json!("deadline")));
    // The only worker is free again: before, it went on for minutes.
    let begin = Instant::now();
    loop {
        let (status, _) = server
            .post("/retrieve", &json!({"queries": ["river"]}))
            .await;
        if status == 200 {
            break;
        }
        assert!(
            begin.elapsed() < Duration::from_mins(1),
            "the worker is not free"
        );
    }
}

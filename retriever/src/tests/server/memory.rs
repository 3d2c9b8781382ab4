//! What answers take in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forage_retriever::server::{ServerConfig, Services};
use forage_retriever::{Bm25Retriever, Passage};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use super::support::{Running, config};

/// Documents of a mebibyte each, of which an answer holds two copies.
fn large() -> Services {
    let text = "river ".repeat(1024 * 1024 / 6);
    let passages = (0..8).map(|number| Passage::new(format!("{number}"), "", &*text));
    Services::of_index(Arc::new(
        Bm25Retriever::in_memory(passages.collect()).unwrap(),
    ))
}

#[tokio::test]
async fn an_answer_has_a_largest_size() {
    let limits = ServerConfig {
        max_answer_bytes: 5 * 1024 * 1024,
        ..config()
    };
    let server = Running::start(limits, large()).await;
    let two = server
        .retrieve(json!({"queries": ["river"], "topk": 2}))
        .await;
    assert_eq!(two["result"][0].as_array().unwrap().len(), 2);
    for body in [
        json!({"queries": ["river"], "topk": 3}),
        json!({"queries": ["river", "river", "river"], "topk": 1}),
    ] {
        let (status, answer) = server.post("/retrieve", &body).await;
        assert_eq!(
            (status, &answer["cause"]),
            (413, &json!("answer_too_large"))
        );
        let words = answer["detail"].as_str().unwrap();
        assert!(
            words.contains("5242880 bytes") && words.contains("topk"),
            "{words}"
        );
    }
    let (_, info) = server.get("/info").await;
    assert_eq!(info["limits"]["answer_bytes"], 5 * 1024 * 1024);
}

#[tokio::test]
async fn repairs_are_a_part_of_the_answer() {
    let limits = ServerConfig {
        max_answer_bytes: 64 * 1024,
        ..config()
    };
    let server = Running::start(limits, large()).await;
    let asked = |count: usize| json!({"mode": "boolean", "queries": vec![")".repeat(64); count]});
    let one = server.retrieve(asked(1)).await;
    assert!(one["issues"][0].as_array().unwrap().len() >= 64);
    let (status, answer) = server.post("/retrieve", &asked(100)).await;
    assert_eq!(
        (status, &answer["cause"]),
        (413, &json!("answer_too_large"))
    );
}

#[tokio::test]
async fn a_passage_and_counts_are_answers_too() {
    let limits = ServerConfig {
        max_answer_bytes: 1024 * 1024,
        ..config()
    };
    let server = Running::start(limits, large()).await;
    let (status, answer) = server.get("/doc/1").await;
    assert_eq!(
        (status, &answer["cause"]),
        (413, &json!("answer_too_large"))
    );
    let words = (0..200_000).map(|number| format!("w{number}"));
    let queries: Vec<String> = words.collect();
    let queries: Vec<String> = queries.chunks(1000).map(|some| some.join(" ")).collect();
    let (status, answer) = server
        .post("/statistics", &json!({"queries": queries}))
        .await;
    assert_eq!(
        (status, &answer["cause"]),
        (413, &json!("answer_too_large"))
    );
    let few = json!({"queries": ["river"]});
    assert_eq!(server.post("/statistics", &few).await.0, 200);
}

#[tokio::test]
async fn answers_that_nobody_takes_leave_room_for_small_ones() {
    let limits = ServerConfig {
        max_answer_bytes: 17 * 1024 * 1024,
        ..config()
    };
    let server = Running::start(limits, large()).await;
    let body = json!({"queries": ["river"], "topk": 8}).to_string();
    let request = format!(
        "POST /retrieve HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut unread = Vec::new();
    for _ in 0..4 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let address = server.address().parse().unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        unread.push(stream);
    }
    let begin = Instant::now();
    while !server
        .metrics()
        .await
        .contains("forage_retriever_queries_total 4")
    {
        assert!(begin.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ask = async |topk: usize| {
        let body = json!({"queries": ["river"], "topk": topk});
        server.post("/retrieve", &body).await
    };
    let (status, answer) = ask(8).await;
    assert_eq!((status, &answer["cause"]), (503, &json!("overloaded")));
    assert_eq!(ask(1).await.0, 200);
    drop(unread);
    while ask(8).await.0 != 200 {
        assert!(begin.elapsed() < Duration::from_mins(1));
    }
}

#[tokio::test]
async fn a_tree_of_millions_of_values_is_not_grown() {
    let server = Running::small().await;
    let mut body = b"{\"queries\":[".to_vec();
    body.extend(b"[],".repeat(400_000));
    body.extend(b"[]]}");
    let (status, answer) = server.post_bytes("/retrieve", body).await;
    assert_eq!(status, 422);
    let words = answer["detail"][0]["msg"].as_str().unwrap();
    assert!(words.contains("JSON values"), "{words}");
}

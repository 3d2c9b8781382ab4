//! Many clients, more than the server takes, clients that go away.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forage_retriever::server::{BaseConfig, ServerConfig, Services};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use super::support::{Difficult, Difficulty, Running, client, config, corpus, expected};

#[tokio::test]
async fn many_clients_get_their_own_answers() {
    let server = Running::start(config(), Services::of_index(corpus())).await;
    let texts = ["moon tides", "wind", "nothing of this", "sea", "Meer"];
    let mut clients = JoinSet::new();
    for number in 0..64 {
        let (client, url) = (client(), server.url("/retrieve"));
        clients.spawn(async move {
            for round in 0..10 {
                let text = texts[(number + round) % texts.len()];
                let body = json!({"queries": [text, "moon"], "return_scores": true}).to_string();
                let answer = client
                    .post(&url)
                    .body(body)
                    .send()
                    .await
                    .unwrap()
                    .bytes()
                    .await
                    .unwrap();
                let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
                assert_eq!(
                    answer["result"],
                    json!([expected(text, 3, true), expected("moon", 3, true)])
                );
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    let metrics = server.metrics().await;
    assert!(
        metrics.contains("forage_retriever_queries_total 1280"),
        "{metrics}"
    );
    assert!(
        metrics.contains("forage_retriever_in_flight 0"),
        "{metrics}"
    );
}

#[tokio::test]
async fn overload_is_refused_at_once() {
    let (services, _) = Difficult::services(Difficulty::Waits(Duration::from_secs(2)));
    let server = Running::start(
        ServerConfig {
            base: BaseConfig {
                queue: 3,
                ..BaseConfig::default()
            },
            ..config()
        },
        services,
    )
    .await;
    let mut admitted = JoinSet::new();
    for _ in 0..3 {
        let sent = server
            .client
            .post(server.url("/retrieve"))
            .body(r#"{"queries":["x"]}"#)
            .send();
        admitted.spawn(async move { sent.await.unwrap().status().as_u16() });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..10 {
        let body = r#"{"queries":["x"]}"#;
        let refused = server
            .client
            .post(server.url("/retrieve"))
            .body(body)
            .send()
            .await
            .unwrap();
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["retry-after"]),
            (503, &"1".parse().unwrap())
        );
        let text = refused.text().await.unwrap();
        assert!(text.contains("\"overloaded\""), "{text}");
    }
    assert_eq!(server.get("/healthz").await.0, 200);
    let metrics = server.metrics().await;
    // All were refused before any of those that wait was answered.
    assert!(
        metrics.contains("forage_retriever_refused_total 10") && metrics.contains("in_flight 3"),
        "{metrics}"
    );
    while let Some(status) = admitted.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    assert_eq!(
        server.post("/retrieve", &json!({"queries": ["x"]})).await.0,
        200
    );
}

#[tokio::test]
async fn health_and_small_requests_pass_a_huge_batch() {
    let (services, _) = Difficult::services(Difficulty::Computes(Duration::from_millis(2)));
    let server = Running::start(config(), services).await;
    let (client, url) = (server.client.clone(), server.url("/retrieve"));
    let batch = tokio::spawn(async move {
        let body = json!({"queries": vec!["x"; 2000]}).to_string();
        client
            .post(&url)
            .body(body)
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begin = Instant::now();
    for _ in 0..5 {
        assert_eq!(server.get("/healthz").await.0, 200);
        assert_eq!(
            server.post("/retrieve", &json!({"queries": ["y"]})).await.0,
            200
        );
    }
    // The batch takes 2 s on two workers; each small request waits for a job of 16 ms or two.
    assert!(
        !batch.is_finished(),
        "the batch ended after {:?}",
        begin.elapsed()
    );
    assert_eq!(batch.await.unwrap(), 200);
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_queries_along() {
    let (services, asked) = Difficult::services(Difficulty::Waits(Duration::from_millis(100)));
    let server = Running::start(config(), services).await;
    let body = json!({"queries": vec!["x"; 800]}).to_string();
    let mut socket = tokio::net::TcpStream::connect(server.address())
        .await
        .unwrap();
    let head = format!(
        "POST /retrieve HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(350)).await;
    drop(socket);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let then = asked.load(Ordering::SeqCst);
    assert!(then > 0 && then < 800, "{then}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(asked.load(Ordering::SeqCst), then);
    let metrics = server.metrics().await;
    assert!(
        metrics.contains("cancelled_total 1") && metrics.contains("jobs_waiting 0"),
        "{metrics}"
    );
    assert!(
        metrics.contains("jobs_running 0") && metrics.contains("in_flight 0"),
        "{metrics}"
    );
}

#[tokio::test]
async fn requests_do_not_outlive_their_deadline() {
    let (services, _) = Difficult::services(Difficulty::Waits(Duration::from_secs(20)));
    let server = Running::start(
        ServerConfig {
            deadline: Duration::from_millis(200),
            ..config()
        },
        services,
    )
    .await;
    let (status, answer) = server.post("/retrieve", &json!({"queries": ["x"]})).await;
    assert_eq!((status, &answer["cause"]), (503, &json!("deadline")));
}

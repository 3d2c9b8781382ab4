//! The end of a server.

use std::time::{Duration, Instant};

use forage_retriever::Mode;
use forage_retriever::server::{BaseConfig, ServeError, ServerConfig, Services, Summary};
use serde_json::json;

use super::support::{Difficult, Difficulty, Running, config, corpus};

#[tokio::test]
async fn requests_in_flight_finish_and_new_ones_are_sent_away() {
    let (services, _) = Difficult::services(Difficulty::Waits(Duration::from_millis(800)));
    let mut server = Running::start(config(), services).await;
    let sent = server
        .client
        .post(server.url("/retrieve"))
        .body(r#"{"queries":["last"]}"#)
        .send();
    let last = tokio::spawn(async move { sent.await.unwrap().text().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.get("/readyz").await.0, 200);
    server.tell_to_stop();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.get("/healthz").await.0, 200);
    assert_eq!(server.get("/readyz").await.0, 503);
    let (status, answer) = server
        .post("/retrieve", &json!({"queries": ["late"]}))
        .await;
    assert_eq!((status, &answer["cause"]), (503, &json!("stopped")));
    assert!(last.await.unwrap().contains("\"id\":\"last\""));
    let address = server.address().to_owned();
    let summary = server.ended().await;
    assert_eq!(
        summary,
        Summary {
            served: 1,
            refused: 1,
            dropped: 0
        }
    );
    assert!(
        tokio::net::TcpStream::connect(address).await.is_err(),
        "nothing listens any more"
    );
}

#[tokio::test]
async fn what_takes_too_long_is_given_up_with_an_answer() {
    let (services, _) = Difficult::services(Difficulty::Waits(Duration::from_secs(20)));
    let mut server = Running::start(
        ServerConfig {
            base: BaseConfig {
                drain: Duration::from_millis(200),
                ..BaseConfig::default()
            },
            ..config()
        },
        services,
    )
    .await;
    let sent = server
        .client
        .post(server.url("/retrieve"))
        .body(r#"{"queries":["x"]}"#)
        .send();
    let stuck = tokio::spawn(async move { sent.await.unwrap() });
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.tell_to_stop();
    let answer = stuck.await.unwrap();
    assert_eq!(answer.status(), 503);
    assert!(answer.text().await.unwrap().contains("stopped"));
    assert_eq!(server.ended().await.dropped, 1);
}

#[tokio::test]
async fn an_idle_server_ends_at_once() {
    let mut server = Running::small().await;
    assert_eq!(server.get("/healthz").await.0, 200);
    let begin = Instant::now();
    server.tell_to_stop();
    assert_eq!(
        server.ended().await,
        Summary {
            served: 0,
            refused: 0,
            dropped: 0
        }
    );
    assert!(
        begin.elapsed() < Duration::from_secs(1),
        "idle connections are closed, {:?}",
        begin.elapsed()
    );
}

#[tokio::test]
async fn contradictions_are_named_before_anything_starts() {
    let bad = [
        (
            ServerConfig {
                base: BaseConfig {
                    queue: 0,
                    ..BaseConfig::default()
                },
                ..config()
            },
            Mode::BM25,
        ),
        (
            ServerConfig {
                topk: 0,
                ..config()
            },
            Mode::BM25,
        ),
        (
            ServerConfig {
                max_answer_bytes: 4 << 30,
                ..config()
            },
            Mode::BM25,
        ),
        (
            ServerConfig {
                base: BaseConfig {
                    token: Some(String::new()),
                    ..BaseConfig::default()
                },
                ..config()
            },
            Mode::BM25,
        ),
        (config(), Mode::DENSE),
    ];
    for (config, mode) in bad {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut services = Services::of_index(corpus());
        services.default_mode = mode;
        let refused = services
            .serve(listener, config, std::future::pending())
            .await;
        assert!(matches!(refused, Err(ServeError::Config(_))));
    }
}

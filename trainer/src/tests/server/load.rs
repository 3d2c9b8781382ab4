//! Many clients, clients that leave, and the end of a server.

use std::time::Duration;

use forage_trainer::server::{BaseConfig, ServerConfig, Summary};
use futures::future::join_all;
use serde_json::{Value, json};

use super::support::{Running, quickstart};

const PATH: &str = "/v1/completions";

/// Hundreds of tokens in several sequences: it takes a good part of a second at least.
fn long(stream: bool) -> Value {
    json!({"prompt": "The", "max_tokens": 500, "n": 8, "ignore_eos": true, "stream": stream})
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_take_their_completions_along() {
    let server = Running::quickstart().await;
    let mut streamed = server.send(PATH, &long(true)).await;
    streamed.chunk().await.unwrap().unwrap();
    let body = long(false);
    let whole = server.send(PATH, &body);
    let waited = tokio::time::timeout(Duration::from_millis(100), whole).await;
    assert!(waited.is_err(), "the answer came before the client left");
    let before = server.model.engine.stats();
    assert!(before.running + before.waiting >= 8, "{before:?}");
    drop(streamed);
    assert!(server.idle().await, "{:?}", server.model.engine.stats());
    let stats = server.model.engine.stats();
    assert_eq!(stats.cancelled, 16, "{stats:?}");
    assert_eq!(stats.cache_tokens_used, 0, "{stats:?}");
    assert!(stats.generated_tokens < 2 * 8 * 400, "{stats:?}");
    let metrics = server.metrics().await;
    for line in [
        "forage_policy_cancelled_total 2",
        "forage_policy_running 0",
        "forage_policy_in_flight 0",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\nis not in\n{metrics}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_of_clients_that_leave_about_when_all_is_generated() {
    let server = Running::quickstart().await;
    let body =
        json!({"prompt": "The", "max_tokens": 6, "n": 4, "ignore_eos": true, "stream": true});
    for pause in 0..40 {
        let mut streamed = server.send(PATH, &body).await;
        streamed.chunk().await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_micros(100 * pause)).await;
        drop(streamed);
    }
    server
        .answer(
            PATH,
            &json!({"prompt": "The", "max_tokens": 100, "ignore_eos": true}),
        )
        .await;
    assert!(server.idle().await);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(
        server.model.engine.stats().cache_tokens_used,
        0,
        "{:?}",
        server.model.engine.stats()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn overload_is_refused_at_once() {
    let server = Running::start(
        ServerConfig {
            base: BaseConfig {
                queue: 2,
                ..BaseConfig::default()
            },
            ..ServerConfig::default()
        },
        quickstart(),
    )
    .await;
    // Streams answer with their first tokens, so both are in flight now; neither is read on.
    let held = [
        server.send(PATH, &long(true)).await,
        server.send(PATH, &long(true)).await,
    ];
    // A request that waited for a place would be answered in the end.
    let refused = server.send(PATH, &json!({"prompt": "a"})).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["error"]["code"], "rate_limit_exceeded");
    assert_eq!(server.get("/healthz").await.0, 200);
    drop(held);
    assert!(server.idle().await);
    server.answer(PATH, &json!({"prompt": "a"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_end_with_the_time_of_their_request() {
    let config = ServerConfig {
        deadline: Duration::from_millis(600),
        ..ServerConfig::default()
    };
    let server = Running::start(config, quickstart()).await;
    // More tokens than can be drawn in the time.
    let endless = |stream: bool| {
        let mut body = long(stream);
        body["n"] = json!(128);
        body
    };
    let mut streamed = server.send(PATH, &endless(true)).await;
    assert_eq!(streamed.status(), 200);
    streamed.chunk().await.unwrap().unwrap();
    let body = endless(false);
    let (whole, events) = tokio::join!(server.send(PATH, &body), streamed.text());
    assert_eq!(whole.status(), 503);
    assert_eq!(whole.headers()["retry-after"], "1");
    let answer: Value = whole.json().await.unwrap();
    assert_eq!(answer["error"]["code"], "deadline", "{answer}");
    let events = events.unwrap();
    let last = events.split_terminator("\n\n").last().unwrap();
    assert!(
        last.starts_with("data: {\"error\":{\"message\":\"not done within"),
        "{last}"
    );
    assert!(server.idle().await, "{:?}", server.model.engine.stats());
    let stats = server.model.engine.stats();
    assert!(stats.cancelled > 128, "{stats:?}");
    let metrics = server.metrics().await;
    for line in [
        "forage_policy_errors_total{cause=\"deadline\"} 2",
        "forage_policy_requests_total{route=\"completions\",status=\"503\"} 1",
        "forage_policy_cancelled_total 0",
        "forage_policy_in_flight 0",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\nis not in\n{metrics}"
        );
    }
    server
        .answer(PATH, &json!({"prompt": "a", "max_tokens": 1}))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_get_their_own_answers() {
    let server = Running::quickstart().await;
    let body = |number: usize| json!({"prompt": format!("Entity {number}"), "max_tokens": 20, "seed": number, "ignore_eos": true});
    let alone = join_all((0..4).map(|number| async move { number })).await;
    let mut expected = Vec::new();
    for number in alone {
        expected.push(server.answer(PATH, &body(number)).await["choices"][0]["text"].clone());
    }
    let bodies: Vec<Value> = (0..48).map(|number| body(number % 4)).collect();
    let answers = join_all(bodies.iter().map(|body| server.answer(PATH, body))).await;
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!(
            answer["choices"][0]["text"],
            expected[number % 4],
            "request {number}"
        );
    }
    assert!(server.idle().await);
    let metrics = server.metrics().await;
    for line in [
        "forage_policy_requests_total{route=\"completions\",status=\"200\"} 52",
        "forage_policy_request_seconds_count{route=\"completions\"} 52",
        "forage_policy_first_token_seconds_count 52",
        "forage_policy_token_seconds_count 988",
        "forage_policy_generated_tokens_total 1040",
        "forage_policy_waiting 0",
        "# EOF",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\nis not in\n{metrics}"
        );
    }
    assert!(
        metrics.contains("forage_policy_cached_prompt_tokens_total")
            && metrics.contains("forage_policy_preemptions")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_in_flight_finish_and_new_requests_are_sent_away() {
    let config = ServerConfig {
        base: BaseConfig {
            // More than any machine needs for what is in flight.
            drain: Duration::from_mins(2),
            ..BaseConfig::default()
        },
        ..ServerConfig::default()
    };
    let mut server = Running::start(config, quickstart()).await;
    let mut last = server.send(PATH, &long(true)).await;
    last.chunk().await.unwrap().unwrap();
    server.tell_to_stop();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(server.get("/healthz").await.0, 200);
    assert_eq!(server.get("/readyz").await.0, 503);
    let (status, answer) = server.post(PATH, &json!({"prompt": "late"})).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (503, &json!("service_unavailable"))
    );
    assert!(last.text().await.unwrap().ends_with("data: [DONE]\n\n"));
    assert_eq!(
        server.ended().await,
        Summary {
            served: 1,
            refused: 1,
            dropped: 0
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_too_long_is_given_up_with_an_error() {
    let config = ServerConfig {
        base: BaseConfig {
            drain: Duration::from_millis(20),
            ..BaseConfig::default()
        },
        ..ServerConfig::default()
    };
    let mut server = Running::start(config, quickstart()).await;
    let mut stuck = server.send(PATH, &long(true)).await;
    stuck.chunk().await.unwrap().unwrap();
    let sent = server
        .client
        .post(server.url(PATH))
        .body(long(false).to_string())
        .send();
    let whole = tokio::spawn(async move { sent.await.unwrap() });
    tokio::time::sleep(Duration::from_millis(30)).await;
    server.tell_to_stop();
    let text = stuck.text().await.unwrap();
    let event = text.split_terminator("\n\n").last().unwrap();
    assert!(
        event.starts_with("data: {\"error\":{\"message\":\"the server is stopping"),
        "{event}"
    );
    assert_eq!(whole.await.unwrap().status(), 503);
    assert!(server.idle().await);
    assert_eq!(server.ended().await.dropped, 2);
}

//! A small server on the base: what passes, what is refused, and how it ends.

use std::time::Duration;

use axum::http::StatusCode;
use forage_net::{BaseConfig, Summary};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{Running, config, soon};

#[tokio::test]
async fn a_token_is_asked_for_in_every_form_that_clients_send() {
    let server = Running::start(BaseConfig {
        token: Some("s3cret".to_owned()),
        ..config()
    })
    .await;
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status();
    assert_eq!(status(server.post("").bearer_auth("s3cret")).await, 200);
    assert_eq!(
        status(server.post("").header("x-api-key", "s3cret")).await,
        200
    );
    assert_eq!(
        status(server.post("").basic_auth("any", Some("s3cret"))).await,
        200
    );
    // "s3cret" as the password of "any", among others.
    for authorization in ["bearer s3cret", "BEARER  s3cret", "basic YW55OnMzY3JldA=="] {
        let request = server.post("").header("authorization", authorization);
        assert_eq!(status(request).await, 200, "{authorization}");
    }
    let beside = server.post("").basic_auth("proxy", Some("its own"));
    assert_eq!(status(beside.header("x-api-key", "s3cret")).await, 200);
    for request in [
        server.post(""),
        server.post("").header("authorization", "s3cret"),
        server.post("").bearer_auth("s3cre"),
        server.post("").bearer_auth("s3cret2"),
        server.post("").header("x-api-key", ""),
        server.post("").header("authorization", "Basic !"),
    ] {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.headers()["www-authenticate"], "Bearer");
        assert_eq!(answer.status(), 401);
    }
    assert_eq!(server.get("/metrics").await.0, 401);
    for open in ["/healthz", "/health", "/readyz", "/open"] {
        assert_eq!(server.get(open).await.0, 200, "{open}");
    }
}

#[tokio::test]
async fn an_empty_token_lets_nobody_in_by_not_starting() {
    let server = Running::start(BaseConfig {
        token: Some(String::new()),
        ..config()
    })
    .await;
    let error = server.server.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the token is empty"), "{error}");
}

#[tokio::test]
async fn a_limit_that_cannot_be_counted_is_refused_at_the_start() {
    let server = Running::start(BaseConfig {
        max_body_bytes: 4 << 30,
        ..config()
    })
    .await;
    let error = server.server.await.unwrap().unwrap_err().to_string();
    assert!(
        error.contains("max_body_bytes must be below 4 GiB"),
        "{error}"
    );
}

#[tokio::test]
async fn refusals_that_no_route_makes_are_counted() {
    let server = Running::start(BaseConfig {
        token: Some("s3cret".to_owned()),
        ..config()
    })
    .await;
    assert_eq!(server.get("/nope").await.0, 404);
    assert_eq!(server.get("/metrics").await.0, 401);
    let posted = server.client.post(format!("{}/open", server.base));
    assert_eq!(posted.send().await.unwrap().status(), 405);
    let metrics = server.client.get(format!("{}/metrics", server.base));
    let metrics = metrics.bearer_auth("s3cret").send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for cause in ["not_found", "unauthorized", "method"] {
        let counted = format!("test_errors_total{{cause=\"{cause}\"}} 1");
        assert!(metrics.contains(&counted), "{metrics}");
    }
}

#[tokio::test]
async fn bodies_are_taken_up_to_the_limit() {
    let server = Running::start(config()).await;
    assert_eq!(
        server.post(" ".repeat(1000)).send().await.unwrap().status(),
        200
    );
    // Read to its end, so that the client gets to hear the answer; refused unread; and of unknown length.
    for length in [1001, 4001] {
        let answer = server.post(" ".repeat(length)).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["connection"]),
            (413, &"close".parse().unwrap())
        );
        let words = answer.text().await.unwrap();
        assert_eq!(
            words,
            "the request body has over 1000 bytes; send less at a time"
        );
    }
    let mut stream = TcpStream::connect(&server.base["http://".len()..])
        .await
        .unwrap();
    let head = "POST /wait HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("1f4\r\n{}\r\n", " ".repeat(500));
    for _ in 0..12 {
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let metrics = server.get("/metrics").await.1;
    assert!(
        metrics.contains("test_errors_total{cause=\"too_large\"} 3"),
        "{metrics}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_is_given_up() {
    let server = Running::start(config()).await;
    let mut stream = TcpStream::connect(&server.base["http://".len()..])
        .await
        .unwrap();
    let head = "POST /wait HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let trickle = tokio::spawn(async move {
        while write.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let mut answer = [0; 12];
    read.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    trickle.abort();
}

#[tokio::test]
async fn more_requests_than_places_are_refused_at_once() {
    let server = Running::start(BaseConfig {
        queue: 1,
        ..config()
    })
    .await;
    let first = server.sent("400").await;
    let refused = server.post("0").send().await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert_eq!(first.await.unwrap().0, 200);
    assert_eq!(server.post("0").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_server_that_stops_finishes_its_requests_and_takes_no_others() {
    let server = Running::start(config()).await;
    let last = server.sent("500").await;
    server.stop.send(()).unwrap();
    let base = server.base;
    let ask = async |path: &str| {
        server
            .client
            .get(format!("{base}{path}"))
            .send()
            .await
            .unwrap()
    };
    soon(async { while ask("/readyz").await.status() == 200 {} }).await;
    assert_eq!(ask("/healthz").await.status(), 200);
    let late = server
        .client
        .post(format!("{base}/wait"))
        .send()
        .await
        .unwrap();
    assert_eq!(late.status(), 503);
    assert_eq!(last.await.unwrap(), (StatusCode::OK, "3".to_owned()));
    let summary = server.server.await.unwrap().unwrap();
    let Summary {
        served,
        refused,
        dropped,
    } = summary;
    assert_eq!((served, refused, dropped), (1, 1, 0));
    let address = base.trim_start_matches("http://").to_owned();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_given_up_with_an_answer() {
    let server = Running::start(BaseConfig {
        drain: Duration::from_millis(100),
        ..config()
    })
    .await;
    let endless = server.sent("100000").await;
    server.stop.send(()).unwrap();
    let (status, words) = endless.await.unwrap();
    assert_eq!(status, 503);
    assert!(words.contains("the server is stopping"), "{words}");
    assert_eq!(server.server.await.unwrap().unwrap().dropped, 1);
}

#[tokio::test]
async fn every_request_is_counted_also_when_its_client_goes_away() {
    let server = Running::start(config()).await;
    let gone = server.sent("100000").await;
    gone.abort();
    assert_eq!(server.post("0").send().await.unwrap().status(), 200);
    let cancelled = "test_cancelled_total 1";
    soon(async {
        while !server.get("/metrics").await.1.contains(cancelled) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let metrics = server.get("/metrics").await.1;
    for line in [
        "test_in_flight 0",
        "test_requests_total{route=\"wait\",status=\"200\"} 1",
        "test_request_seconds_count{route=\"wait\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert_eq!(
        server.get("/nowhere").await,
        (StatusCode::NOT_FOUND, "no route /nowhere".to_owned())
    );
    assert_eq!(server.get("/wait").await.0, StatusCode::METHOD_NOT_ALLOWED);
}

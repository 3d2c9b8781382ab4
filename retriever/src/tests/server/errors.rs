//! Bodies that do not fit, backends that fail, doors that are shut.

use std::time::Duration;

use forage_retriever::server::{BaseConfig, ServerConfig, Services};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{Difficult, Difficulty, Running, config, corpus};

/// Status 422 with one problem of this kind at this place.
fn problem(answer: &(u16, Value), kind: &str, loc: &Value) {
    let (status, body) = answer;
    assert_eq!(*status, 422, "{body}");
    let detail = body["detail"].as_array().unwrap();
    assert_eq!(detail.len(), 1, "{body}");
    assert_eq!(
        (&detail[0]["type"], &detail[0]["loc"]),
        (&json!(kind), loc),
        "{body}"
    );
    assert!(!detail[0]["msg"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn values_that_do_not_fit() {
    let server = Running::small().await;
    let at = |key: &str| json!(["body", key]);
    let cases = [
        (json!({}), "missing", at("queries")),
        (json!({"queries": "moon"}), "list_type", at("queries")),
        (json!({"queries": null}), "list_type", at("queries")),
        (
            json!({"queries": {"0": "moon"}}),
            "list_type",
            at("queries"),
        ),
        (
            json!({"queries": ["moon", 7]}),
            "string_type",
            json!(["body", "queries", 1]),
        ),
        (
            json!({"queries": [["moon"]]}),
            "string_type",
            json!(["body", "queries", 0]),
        ),
        (json!({"query": ["moon"]}), "string_type", at("query")),
        (
            json!({"queries": ["moon"], "topk": -1}),
            "greater_than_equal",
            at("topk"),
        ),
        (
            json!({"queries": ["moon"], "topk": 1001}),
            "less_than_equal",
            at("topk"),
        ),
        (
            json!({"queries": ["moon"], "topk": u64::MAX}),
            "less_than_equal",
            at("topk"),
        ),
        (
            json!({"queries": ["moon"], "topk": 1e300}),
            "less_than_equal",
            at("topk"),
        ),
        (
            json!({"queries": ["moon"], "topk": 2.5}),
            "int_from_float",
            at("topk"),
        ),
        (
            json!({"queries": ["moon"], "topk": "many"}),
            "int_parsing",
            at("topk"),
        ),
        (
            json!({"queries": ["moon"], "topk": [3]}),
            "int_type",
            at("topk"),
        ),
        (
            json!({"queries": ["moon"], "return_scores": "maybe"}),
            "bool_type",
            at("return_scores"),
        ),
        (
            json!({"queries": ["moon"], "return_scores": null}),
            "bool_type",
            at("return_scores"),
        ),
        (
            json!({"queries": ["moon"], "mode": "magic"}),
            "enum",
            at("mode"),
        ),
        (
            json!({"queries": ["moon"], "mode": "dense"}),
            "unsupported",
            at("mode"),
        ),
        (
            json!({"queries": ["moon"], "filter": "x"}),
            "dict_type",
            at("filter"),
        ),
        (
            json!({"queries": ["moon"], "filter": {"id": [3]}}),
            "string_type",
            json!(["body", "filter", "id", 0]),
        ),
        (
            json!({"queries": ["moon"], "statistics": {"passages": -1}}),
            "statistics",
            at("statistics"),
        ),
        (
            json!({"queries": ["moon"], "topk_rerank": 3}),
            "unsupported",
            at("topk_rerank"),
        ),
        (
            json!({"queries": vec!["moon"; 16_385]}),
            "too_long",
            at("queries"),
        ),
        (
            json!({"queries": vec!["moon"; 300], "topk": 1000}),
            "too_long",
            json!(["body"]),
        ),
        (json!([]), "model_attributes_type", json!(["body"])),
        (json!("queries"), "model_attributes_type", json!(["body"])),
    ];
    for (body, kind, loc) in cases {
        problem(&server.post("/retrieve", &body).await, kind, &loc);
    }
    let (_, body) = server
        .post(
            "/retrieve",
            &json!({"queries": [1, 2], "topk": -1, "return_scores": 7}),
        )
        .await;
    assert_eq!(
        body["detail"].as_array().unwrap().len(),
        4,
        "every fault is named: {body}"
    );
}

#[tokio::test]
async fn bodies_that_are_no_json() {
    let server = Running::small().await;
    let cases: [(&[u8], usize); 7] = [
        (b"{\"queries\": [\"moon\"", 19),
        (b"queries=moon", 0),
        (b"{\"queries\": [\"moon\"], \"topk\": NaN}", 31),
        (b"{\"queries\": [\"\xff\xfe\"]}", 15),
        (b"{\n \"queries\": [\n \"moon\",]}", 24),
        (b"{\"queries\": [\"\\ud800\"]}", 20),
        (b"\x00", 0),
    ];
    for (body, offset) in cases {
        let answer = server.post_bytes("/retrieve", body.to_vec()).await;
        let place = answer.1["detail"][0]["loc"][1].as_u64().unwrap() as usize;
        problem(&answer, "json_invalid", &json!(["body", place]));
        assert!(
            place.abs_diff(offset) <= 2,
            "{answer:?}, expected about {offset}"
        );
    }
    problem(
        &server.post_bytes("/retrieve", Vec::new()).await,
        "missing",
        &json!(["body"]),
    );
    let deep = [b"{\"x\": ".to_vec(), vec![b'['; 100_000]].concat();
    assert_eq!(server.post_bytes("/retrieve", deep).await.0, 422);
    // Everything still works.
    assert_eq!(
        server
            .post("/retrieve", &json!({"queries": ["moon"]}))
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn sizes() {
    let limits = ServerConfig {
        base: BaseConfig {
            max_body_bytes: 100_000,
            ..BaseConfig::default()
        },
        ..config()
    };
    let server = Running::start(limits, Services::of_index(corpus())).await;
    let long = "moon ".repeat(65_536 / 5);
    let (status, answer) = server.post("/retrieve", &json!({"queries": [long]})).await;
    assert_eq!(
        (status, &answer["result"][0][0]["id"]),
        (200, &json!("moon"))
    );
    let longer = format!("{long}moon");
    let answer = server
        .post("/retrieve", &json!({"queries": [longer]}))
        .await;
    problem(&answer, "string_too_long", &json!(["body", "queries", 0]));

    let (status, answer) = server.post_bytes("/retrieve", vec![b' '; 100_001]).await;
    assert_eq!(status, 413, "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("100000 bytes"));
    // A body without an announced length, sent in pieces.
    let mut socket = tokio::net::TcpStream::connect(server.address())
        .await
        .unwrap();
    socket
        .write_all(
            b"POST /retrieve HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .await
        .unwrap();
    for _ in 0..15 {
        socket.write_all(b"2710\r\n").await.unwrap();
        socket.write_all(&[b' '; 10_000]).await.unwrap();
        socket.write_all(b"\r\n").await.unwrap();
    }
    socket.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 413"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[tokio::test]
async fn pieces_make_a_whole_body() {
    let server = Running::small().await;
    let mut socket = tokio::net::TcpStream::connect(server.address())
        .await
        .unwrap();
    socket
        .write_all(b"POST /retrieve HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 20\r\n\r\n")
        .await
        .unwrap();
    for byte in b"{\"queries\":[\"moon\"]}" {
        socket.write_all(&[*byte]).await.unwrap();
        socket.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("raises tides"),
        "{answer}"
    );
}

#[tokio::test]
async fn routes_and_methods() {
    let server = Running::small().await;
    assert_eq!(server.get("/nowhere").await.0, 404);
    assert_eq!(
        server.get("/retrieve").await,
        (
            405,
            json!({"detail": "Method Not Allowed", "cause": "method"})
        )
    );
    assert_eq!(server.post("/healthz", &json!({})).await.0, 405);
    let (status, answer) = server
        .post("/rerank", &json!({"queries": [], "documents": []}))
        .await;
    assert_eq!(status, 404, "{answer}");
}

#[tokio::test]
async fn backends_that_fail_never_look_like_empty_results() {
    let cases = [
        (Difficulty::Remote, 502, "remote", "no answer within 5 ms"),
        (Difficulty::Model, 503, "model", "no memory"),
        (
            Difficulty::Unsupported,
            422,
            "unsupported",
            "filter by field",
        ),
        (Difficulty::Panics, 500, "panic", "stderr"),
        (Difficulty::Short, 500, "panic", "stderr"),
    ];
    for (difficulty, expected, cause, words) in cases {
        let server = Running::start(config(), Difficult::services(difficulty).0).await;
        for count in [1, 2, 40] {
            let (status, answer) = server
                .post("/retrieve", &json!({"queries": vec!["x"; count]}))
                .await;
            assert_eq!(
                (status, &answer["cause"]),
                (expected, &json!(cause)),
                "{answer}"
            );
            assert!(
                answer["detail"].as_str().unwrap().contains(words),
                "{answer}"
            );
        }
        assert_eq!(server.get("/healthz").await.0, 200);
        let metrics = server.metrics().await;
        let counted = format!("forage_retriever_errors_total{{cause=\"{cause}\"}} 3");
        assert!(metrics.contains(&counted), "{metrics}");
    }
}

#[tokio::test]
async fn a_token_guards_everything_but_health_and_the_page() {
    let locked = ServerConfig {
        base: BaseConfig {
            token: Some("s3cret".to_owned()),
            ..BaseConfig::default()
        },
        ..config()
    };
    let server = Running::start(locked, Services::of_index(corpus())).await;
    assert_eq!(server.get("/healthz").await.0, 200);
    assert_eq!(server.get("/readyz").await.0, 200);
    assert_eq!(
        server
            .client
            .get(server.url("/"))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    for path in ["/info", "/metrics", "/doc/moon"] {
        assert_eq!(server.get(path).await.0, 401, "{path}");
    }
    let body = json!({"queries": ["moon"]}).to_string();
    let send = |header: &'static str, value: &'static str| {
        server
            .client
            .post(server.url("/retrieve"))
            .header(header, value)
            .body(body.clone())
            .send()
    };
    for (header, value) in [
        ("authorization", "Bearer s3cre"),
        ("authorization", "Bearer s3cret2"),
        ("authorization", "s3cret"),
        ("authorization", "Basic s3cret"),
        ("x-api-key", ""),
        ("x-other", "s3cret"),
    ] {
        let answer = send(header, value).await.unwrap();
        assert_eq!(
            (
                answer.status().as_u16(),
                &answer.headers()["www-authenticate"]
            ),
            (401, &"Bearer".parse().unwrap())
        );
    }
    assert_eq!(
        send("authorization", "Bearer s3cret")
            .await
            .unwrap()
            .status(),
        200
    );
    assert_eq!(send("x-api-key", "s3cret").await.unwrap().status(), 200);
}

//! Everything that goes wrong between here and a server is a typed error, after the retries it deserves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forage_net::{Auth, Fault, HttpOptions, NetError};
use forage_retriever::{Query, Retriever, RetrieverError};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::server::{Reply, Seen, Server, hasty, open, token_file};

const FINE: &str =
    r#"{"result": [[{"document": {"id": "1", "contents": "\"A\"\nb"}, "score": 2.5}]]}"#;

/// A foreign server: no `/info`, and these replies to `/retrieve`.
async fn server(retrieve: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |seen, before| match seen.target.as_str() {
        "/info" => Reply::new(404, r#"{"detail": "Not Found"}"#),
        _ => retrieve(seen, before),
    })
    .await
}

async fn client(server: &Server, http: HttpOptions) -> Arc<dyn Retriever> {
    connect(&server.url(), 64, &http).await.unwrap()
}

async fn connect(
    url: &str,
    batch_queries: usize,
    http: &HttpOptions,
) -> Result<Arc<dyn Retriever>, RetrieverError> {
    let settings = json!({"url": url, "batch_queries": batch_queries, "http": http});
    open("search-r1", settings).await
}

async fn search(
    server: &Server,
    http: HttpOptions,
) -> Result<Vec<Vec<forage_retriever::Hit>>, RetrieverError> {
    client(server, http)
        .await
        .search(&[Query::new("a")], 3)
        .await
}

fn remote(error: RetrieverError) -> (Fault, u32) {
    match error {
        RetrieverError::Remote(error) => {
            let error = error.downcast::<NetError>().unwrap();
            (error.fault, error.attempts)
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let connected = connect(&url, 1, &hasty()).await;
    let (fault, attempts) = remote(connected.err().unwrap());
    assert!(matches!(fault, Fault::Connect(_)), "{fault}");
    assert_eq!(attempts, 3);
}

#[tokio::test]
async fn a_slow_answer_is_a_timeout() {
    let server = server(|_, _| Reply::new(200, FINE).after(Duration::from_secs(5))).await;
    let (fault, attempts) = remote(search(&server, hasty()).await.unwrap_err());
    assert_eq!(
        (fault.to_string().as_str(), attempts),
        ("no answer within 300 ms", 3)
    );
}

#[tokio::test]
async fn a_slow_first_answer_is_asked_again() {
    let server = server(|_, before| {
        Reply::new(200, FINE).after(Duration::from_secs(if before == 0 { 5 } else { 0 }))
    })
    .await;
    assert_eq!(search(&server, hasty()).await.unwrap()[0][0].id, "1");
}

#[tokio::test]
async fn an_overloaded_server_is_asked_again_when_it_says() {
    let server = server(|_, before| match before {
        0 => Reply::new(503, "busy").with_header("retry-after", "1"),
        _ => Reply::new(200, FINE),
    })
    .await;
    let started = Instant::now();
    assert_eq!(search(&server, hasty()).await.unwrap()[0][0].id, "1");
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.seen_at("/retrieve").len(), 2);
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_is_not_waited() {
    let server = server(|_, _| Reply::new(503, "busy").with_header("retry-after", "3600")).await;
    let started = Instant::now();
    let (fault, attempts) = remote(search(&server, hasty()).await.unwrap_err());
    assert_eq!(
        (fault.to_string().as_str(), attempts),
        ("HTTP status 503: busy", 1)
    );
    // The longest wait between attempts is 30 s.
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn every_passing_status_is_tried_again_and_no_other() {
    for (status, tries) in [
        (429, 3),
        (500, 3),
        (502, 3),
        (503, 3),
        (504, 3),
        (400, 1),
        (401, 1),
        (403, 1),
        (422, 1),
        (302, 1),
    ] {
        let server =
            server(move |_, _| Reply::new(status, "no").with_header("location", "/elsewhere"))
                .await;
        let (fault, attempts) = remote(search(&server, hasty()).await.unwrap_err());
        let said = match status {
            302 => "it sends on to /elsewhere, which is not followed; give that address",
            _ => "no",
        };
        assert_eq!(
            (fault.to_string(), attempts),
            (format!("HTTP status {status}: {said}"), tries)
        );
        // A server that refuses is asked a harmless query too: one that takes none is at fault itself.
        let more = usize::from(matches!(status, 400 | 422));
        assert_eq!(server.seen_at("/retrieve").len(), tries as usize + more);
        assert!(server.seen_at("/elsewhere").is_empty());
    }
}

#[tokio::test]
async fn what_is_no_answer_at_all_is_tried_again_and_a_wrong_one_is_not() {
    for (body, part, tries) in [
        ("", "EOF", 3),
        ("<html>", "expected value", 3),
        (
            r#"{"result": [[{"document": {"id": "1", "contents": "a"}, "score": NaN}]]}"#,
            "expected value",
            3,
        ),
        (r#"{"result": [[], []]}"#, "2 lists for 1 queries", 1),
        (r#"{"result": []}"#, "0 lists for 1 queries", 1),
        (r#"{"results": [[]]}"#, "missing field `result`", 3),
    ] {
        let server = server(move |_, _| Reply::new(200, body)).await;
        let (fault, attempts) = remote(search(&server, hasty()).await.unwrap_err());
        let (Fault::Protocol(what) | Fault::Unusable(what)) = fault else {
            panic!("{fault}")
        };
        assert!(what.contains(part), "{what}");
        assert_eq!(attempts, tries, "{what}");
    }
}

/// A server with a limit on the length of a request, as most have; it refuses whole batches.
#[tokio::test]
async fn a_refused_query_is_told_apart_from_a_server_that_refuses_everything() {
    for status in [400, 413, 414, 422, 431] {
        let server = server(move |seen, _| {
            let queries = seen.json()["queries"].as_array().unwrap().len();
            if seen.body.len() > 200 {
                return Reply::new(status, "too long");
            }
            let list = r#"[{"document": {"id": "1", "contents": "a"}, "score": 1.0}]"#;
            Reply::new(
                200,
                format!("{{\"result\": [{}]}}", vec![list; queries].join(",")),
            )
        })
        .await;
        let client = client(&server, hasty()).await;
        let short: Vec<Query> = (0..20)
            .map(|at| Query::new(format!("query {at}")))
            .collect();
        let found = client.search(&short, 3).await.unwrap();
        assert_eq!(found.len(), 20, "only together they were too long");
        let mut queries = short;
        queries[7] = Query::new("x".repeat(300));
        let error = client.search(&queries, 3).await.unwrap_err();
        assert!(error.is_refusal(), "{error}");
        let RetrieverError::Refused { query, refusal } = &error else {
            panic!("{error}")
        };
        assert!(query.len() < 100 && query.starts_with("xxx"), "{query}");
        let refusal: &NetError = refusal.downcast_ref().unwrap();
        assert!(matches!(refusal.fault, Fault::Status { status: found, .. } if found == status));
        let alone = server
            .seen_at("/retrieve")
            .iter()
            .filter(|seen| seen.json()["queries"] == json!(["x".repeat(300)]))
            .count();
        assert_eq!(alone, 1, "a refused query is not asked again");
    }
}

/// How large the passages of an index are is not the doing of who writes a query.
#[tokio::test]
async fn an_answer_that_is_too_large_is_no_refusal_of_the_query() {
    let server = server(|seen, _| {
        let queries = seen.json()["queries"].as_array().unwrap().len();
        if seen.json()["queries"] != json!(["water"]) {
            let body = r#"{"detail": "too much at a time", "cause": "answer_too_large"}"#;
            return Reply::new(413, body);
        }
        Reply::new(
            200,
            format!("{{\"result\": [{}]}}", vec!["[]"; queries].join(",")),
        )
    })
    .await;
    let error = search(&server, hasty()).await.unwrap_err();
    assert!(!error.is_refusal(), "{error}");
    let (fault, _) = remote(error);
    assert!(
        matches!(fault, Fault::Status { status: 413, .. }),
        "{fault}"
    );
}

/// Anserini takes a query in the address, which servers refuse at lengths of their own.
#[tokio::test]
async fn a_query_too_long_for_an_address_is_refused_and_no_failure() {
    let options = |server: &Server| json!({"url": server.url(), "index": "wiki"});
    for status in [400, 414, 431] {
        let server = Server::start(move |seen, _| match seen.target.len() {
            ..300 => Reply::new(
                200,
                r#"{"candidates": [{"docid": "1", "score": 2.5, "doc": "text"}]}"#,
            ),
            _ => Reply::new(status, "too long"),
        })
        .await;
        let client = open("anserini", options(&server)).await.unwrap();
        let short = [Query::new("a"), Query::new("b")];
        assert_eq!(client.search(&short, 3).await.unwrap().len(), 2);
        let refused = client
            .search(&[Query::new("x".repeat(400))], 3)
            .await
            .unwrap_err();
        assert!(refused.is_refusal(), "{refused}");
        // No client sends so long an address, of a query that every other server may be asked.
        let asked = server.seen().len();
        let longest = Query::new("é".repeat(Query::MAX_BYTES / 2));
        let refused = client.search(&[longest], 3).await.unwrap_err();
        assert!(refused.is_refusal(), "{refused}");
        assert_eq!(server.seen().len(), asked);

        let server = Server::start(move |_, _| Reply::new(status, "no such index")).await;
        let client = open("anserini", options(&server)).await.unwrap();
        let (fault, _) = remote(client.search(&short, 3).await.unwrap_err());
        assert!(fault.to_string().contains("no such index"), "{fault}");
    }
}

#[tokio::test]
async fn a_huge_body_is_not_read() {
    let server = server(|_, _| Reply::new(200, " ".repeat(10_000))).await;
    let (fault, attempts) = remote(
        search(
            &server,
            HttpOptions {
                max_answer_bytes: 9_999,
                ..hasty()
            },
        )
        .await
        .unwrap_err(),
    );
    assert_eq!(attempts, 1);
    assert!(
        fault.to_string().contains("longer than 9999 bytes"),
        "{fault}"
    );
}

#[tokio::test]
async fn a_body_that_breaks_off_is_asked_for_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await.unwrap();
            let answer = if request[..read].starts_with(b"GET /info") {
                "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            } else {
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1000\r\n\r\n{\"result\": [["
            };
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let client = connect(&url, 1, &hasty()).await.unwrap();
    let (fault, attempts) = remote(client.search(&[Query::new("a")], 3).await.unwrap_err());
    assert!(
        fault.to_string().contains("breaks off after 13 bytes"),
        "{fault}"
    );
    assert_eq!(attempts, 3);
}

#[tokio::test]
async fn credentials_are_sent_and_never_shown() {
    let secret = "s3cr3t-t0ken";
    let (_folder, path) = token_file(secret);
    for (auth, header, value) in [
        (Auth::Bearer, "authorization", format!("Bearer {secret}")),
        (Auth::ApiKey, "x-api-key", secret.to_owned()),
    ] {
        let server = server(|seen, _| {
            let sent = seen
                .header("authorization")
                .or(seen.header("x-api-key"))
                .unwrap_or_default();
            Reply::new(
                401,
                json!({"detail": format!("`{sent}` is not known")}).to_string(),
            )
        })
        .await;
        let http = HttpOptions {
            token_file: Some(path.clone()),
            auth,
            ..hasty()
        };
        let error = search(&server, http).await.unwrap_err();
        assert_eq!(
            server.seen_at("/retrieve")[0].header(header),
            Some(value.as_str())
        );
        for shown in [error.to_string(), format!("{error:?}")] {
            assert!(
                shown.contains("401") && shown.contains("[credentials]") && !shown.contains(secret),
                "{shown}"
            );
        }
        assert_eq!(remote(error).1, 1);
    }
}

#[tokio::test]
async fn basic_credentials_are_encoded() {
    let (_folder, path) = token_file("ada:love lace");
    let server = server(|_, _| Reply::new(200, FINE)).await;
    let http = HttpOptions {
        token_file: Some(path),
        auth: Auth::Basic,
        ..hasty()
    };
    search(&server, http.clone()).await.unwrap();
    let sent = "Basic YWRhOmxvdmUgbGFjZQ==";
    assert_eq!(
        server.seen_at("/retrieve")[0].header("authorization"),
        Some(sent)
    );
    let echoing =
        Server::start(move |_, _| Reply::new(403, format!("`{sent}`, that is love lace, may not")))
            .await;
    let error = connect(&echoing.url(), 1, &http)
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("`Basic [credentials]`, that is [credentials], may not"),
        "{error}"
    );
}

#[tokio::test]
async fn no_more_calls_than_allowed_are_in_flight() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (Arc::clone(&now), Arc::clone(&most));
    let server = server(move |_, _| {
        counted.1.fetch_max(
            counted.0.fetch_add(1, Ordering::SeqCst) + 1,
            Ordering::SeqCst,
        );
        let now = Arc::clone(&counted.0);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(30)).await;
            now.fetch_sub(1, Ordering::SeqCst);
        });
        Reply::new(200, FINE).after(Duration::from_millis(40))
    })
    .await;
    let http = HttpOptions {
        concurrency: 3,
        timeout_ms: 5_000,
        ..hasty()
    };
    let client = connect(&server.url(), 1, &http).await.unwrap();
    let queries: Vec<Query> = (0..12)
        .map(|number| Query::new(format!("q{number}")))
        .collect();
    assert_eq!(client.search(&queries, 3).await.unwrap().len(), 12);
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

/// Batches of a search wait for each other without using up the time of a call.
#[tokio::test]
async fn a_search_may_have_more_batches_than_a_call_has_time_for() {
    let server = server(|_, _| Reply::new(200, FINE).after(Duration::from_millis(100))).await;
    let http = HttpOptions {
        concurrency: 2,
        timeout_ms: 2_000,
        deadline_ms: 2_000,
        ..hasty()
    };
    let client = connect(&server.url(), 1, &http).await.unwrap();
    let queries: Vec<Query> = (0..60)
        .map(|number| Query::new(format!("q{number}")))
        .collect();
    assert_eq!(client.search(&queries, 3).await.unwrap().len(), 60);
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_before_anything_is_sent() {
    let (_folder, empty) = token_file("");
    for (url, http, part) in [
        ("ftp://host", hasty(), "use http or https"),
        ("host:8000", hasty(), "use http or https"),
        ("http://ada:love-lace@host", hasty(), "token_file"),
        ("http://host?key=love-lace", hasty(), "query"),
        (
            "http://host",
            HttpOptions {
                attempts: 0,
                ..hasty()
            },
            "`attempts`: is 0",
        ),
        (
            "http://host",
            HttpOptions {
                token_file: Some("/nowhere/token".into()),
                ..hasty()
            },
            "cannot be read",
        ),
        (
            "http://host",
            HttpOptions {
                token_file: Some(empty),
                ..hasty()
            },
            "is empty",
        ),
        (
            "https://host",
            HttpOptions {
                ca_file: Some("/nowhere/ca.pem".into()),
                ..hasty()
            },
            "`ca_file`",
        ),
    ] {
        let error = connect(url, 1, &http).await.err().unwrap();
        assert!(matches!(error, RetrieverError::Setting { .. }), "{error}");
        // The secret is longer than the random part of a temporary folder's name, which the error may name.
        assert!(
            error.to_string().contains(part) && !error.to_string().contains("love-lace"),
            "{error}"
        );
    }
}

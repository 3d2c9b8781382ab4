//! Clients that mean no good: what they can take from a server, and for how long.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use forage_net::{Base, BaseConfig, Refusal, Url, connector};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{LARGE, Running, config, soon, turns};

const HALF_A_HEAD: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n";
/// Half of the time after which a head that does not arrive is given up: what happens within it did not wait for that.
const NOT_GIVEN_UP: Duration = Duration::from_secs(15);

/// Everything up to the end of a connection, which must come before `limit`.
async fn rest(mut stream: TcpStream, limit: Duration) -> Vec<u8> {
    let mut all = Vec::new();
    let read = async {
        // A reset is an end too.
        let _ = stream.read_to_end(&mut all).await;
    };
    tokio::time::timeout(limit, read).await.expect("it ends");
    all
}

#[tokio::test]
async fn connections_without_a_request_keep_nobody_out() {
    let server = Running::start(BaseConfig {
        max_connections: 16,
        ..config()
    })
    .await;
    let outcome = async {
        let mut slow = Vec::new();
        for _ in 0..100 {
            slow.push(server.raw(HALF_A_HEAD).await);
        }
        for _ in 0..20 {
            let healthy = connector(&Url::parse(&server.base).unwrap())
                .build()
                .unwrap();
            let answer = healthy.get(format!("{}/healthz", server.base)).send();
            assert_eq!(answer.await.unwrap().status(), 200);
        }
        // Those that have waited longest had to go.
        for stream in slow.drain(..80) {
            assert!(rest(stream, NOT_GIVEN_UP).await.is_empty());
        }
    };
    let ended = tokio::time::timeout(NOT_GIVEN_UP, outcome).await;
    ended.expect("nobody waits until the others' heads are given up");
}

#[tokio::test]
async fn a_request_that_is_answered_gives_no_way() {
    let server = Running::start(BaseConfig {
        max_connections: 2,
        ..config()
    })
    .await;
    let answered = server.sent("300").await;
    let _idle = [
        server.raw(HALF_A_HEAD).await,
        server.raw(HALF_A_HEAD).await,
        server.raw(HALF_A_HEAD).await,
    ];
    assert_eq!(answered.await.unwrap(), (StatusCode::OK, "3".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn heads_that_do_not_arrive_and_idle_connections_are_given_up() {
    let server = Running::start(config()).await;
    let begin = tokio::time::Instant::now();
    let half = server.raw(HALF_A_HEAD).await;
    let idle = server.raw(format!("{HALF_A_HEAD}\r\n")).await;
    assert_eq!(rest(half, Duration::from_mins(2)).await, b"");
    let answer = rest(idle, Duration::from_mins(2)).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    assert!(
        begin.elapsed() < Duration::from_secs(61),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_of_its_answer_is_given_up() {
    let server = Running::start(config()).await;
    let ask = "GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let stream = server.raw(ask).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let taken = rest(stream, Duration::from_mins(2)).await.len();
    assert!(taken < LARGE, "{taken}");
}

#[tokio::test]
async fn bodies_take_so_much_memory_together() {
    let server = Running::start(BaseConfig {
        max_body_bytes: 1024 * 1024,
        ..config()
    })
    .await;
    let head = "POST /wait HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1048576\r\n\r\n";
    let almost = vec![b' '; 1_048_575];
    let mut unfinished = Vec::new();
    for _ in 0..100 {
        let mut stream = server.raw(head).await;
        // The server may refuse it before it is sent.
        let _ = stream.write_all(&almost).await;
        unfinished.push(stream);
    }
    let large = async || {
        let answer = server.post(vec![b' '; 1_000_000]).send().await.unwrap();
        (
            answer.status().as_u16(),
            answer.headers().get("retry-after").cloned(),
        )
    };
    let begin = Instant::now();
    while large().await.0 == 200 {
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
    // There is no more for bodies over 64 KiB; smaller ones are always taken.
    assert_eq!(large().await, (503, Some("1".parse().unwrap())));
    assert_eq!(server.post("0").send().await.unwrap().status(), 200);
    drop(unfinished);
    while server
        .post(vec![b' '; 1_000_000])
        .send()
        .await
        .unwrap()
        .status()
        != 200
    {
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
}

#[tokio::test]
async fn large_requests_are_read_beside_the_threads_that_move_bytes() {
    let (base, ()) = Base::new(config(), "test", &[1.0], |_| ());
    let here = std::thread::current().id();
    let reader = async |length: usize| {
        let body = Bytes::from(vec![b' '; length]);
        let read = |_: &[u8]| Ok::<_, Refusal>(std::thread::current().id());
        base.read(body, read).await.unwrap()
    };
    assert_eq!(reader(64 * 1024).await, here);
    assert_ne!(reader(64 * 1024 + 1).await, here);
    let failed = base.heavy(|| -> Result<(), Refusal> { panic!("on purpose") });
    assert_eq!(failed.await, Err(Refusal::Panicked));
}

#[tokio::test]
async fn heavy_work_keeps_its_turn_when_its_client_goes_away() {
    let mut server = Running::start(BaseConfig {
        queue: 64,
        ..config()
    })
    .await;
    for _ in 0..turns() + 20 {
        server.abandoned(1).await;
    }
    let most = server.app.most_running.load(Ordering::SeqCst);
    assert_eq!(most, turns());
    server.gate = None;
    let url = format!("{}/heavy", server.base);
    let answer = server.client.post(url).body("0").send().await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_body_that_is_read_for_nobody_still_takes_its_memory() {
    const LARGE_BODY: usize = 16 * 1024 * 1024;
    let mut server = Running::start(BaseConfig {
        max_body_bytes: LARGE_BODY,
        ..config()
    })
    .await;
    let gate = server.gate.take();
    // Four of the largest have room.
    server.abandoned(LARGE_BODY).await;
    let mut waiting = Vec::new();
    for number in 2..=4 {
        let mut body = vec![b' '; LARGE_BODY - 6];
        body.extend(b"600000");
        waiting.push(tokio::spawn(server.post(body).send()));
        soon(async {
            while server.app.admitted.load(Ordering::SeqCst) < number {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
    let one_more = async || {
        let answer = server.post(vec![b' '; LARGE_BODY]).send().await;
        answer.unwrap().status().as_u16()
    };
    assert_eq!(one_more().await, 503);
    drop(gate);
    let begin = Instant::now();
    while one_more().await != 200 {
        assert!(begin.elapsed() < Duration::from_mins(1));
    }
    for request in waiting {
        request.abort();
    }
}

#[tokio::test]
async fn pages_of_others_do_not_reach_a_server_of_this_machine() {
    let open = Running::start(config()).await;
    let token = Running::start(BaseConfig {
        token: Some("s3cret".to_owned()),
        ..config()
    })
    .await;
    let status = async |request: reqwest::RequestBuilder| {
        let request = request.bearer_auth("s3cret");
        request.send().await.unwrap().status().as_u16()
    };
    for (name, value, refused) in [
        (HOST, "evil.example", 403),
        (ORIGIN, "https://evil.example", 403),
        (ORIGIN, "null", 403),
        (CONTENT_TYPE, "text/plain", 415),
        (CONTENT_TYPE, "application/x-www-form-urlencoded", 415),
    ] {
        let asked = |server: &Running| server.post("0").header(name.clone(), value);
        assert_eq!(status(asked(&open)).await, refused, "{name}: {value}");
        assert_eq!(status(asked(&token)).await, 200, "{name}: {value}");
    }
    for path in ["/healthz", "/readyz", "/metrics", "/open", "/nowhere"] {
        let request = open.client.get(format!("{}{path}", open.base));
        assert_eq!(
            status(request.header(HOST, "evil.example")).await,
            403,
            "{path}"
        );
    }
    for (name, value) in [
        (ORIGIN, "http://localhost:3000"),
        (HOST, "localhost"),
        (CONTENT_TYPE, "application/json; charset=utf-8"),
    ] {
        assert_eq!(
            status(open.post("0").header(name, value)).await,
            200,
            "{value}"
        );
    }
}

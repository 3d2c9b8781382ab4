//! Capacity, idle sessions, the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use forage_contracts::{ByteTokenizer, Resources};
use forage_env::registry;
use forage_env::server::{BaseConfig, Served, ServerConfig};
use forage_retriever::{Fingerprint, Hit, Query, Retriever, RetrieverError};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::support::{Server, Socket, search};

#[tokio::test]
async fn places_are_few_and_come_back() {
    let config = ServerConfig {
        max_sessions: 2,
        ..ServerConfig::default()
    };
    let server = Server::start(search(), config).await;
    let first = server.ok("/reset", json!({})).await["episode_id"].clone();
    let mut socket = server.socket().await;
    socket.observe(json!({"type": "reset"})).await;
    let answer = server
        .client
        .post(server.url("/reset"))
        .send()
        .await
        .expect("answered");
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    let body: Value = answer.json().await.expect("JSON");
    assert_eq!(
        (&body["code"], &body["max_sessions"]),
        (&json!("CAPACITY_REACHED"), &json!(2))
    );
    let mut refused = server.socket().await;
    let answer = refused.hear().await.expect("told");
    assert_eq!(answer["data"]["code"], "CAPACITY_REACHED");
    assert_eq!(
        (
            &answer["data"]["active_sessions"],
            &answer["data"]["max_sessions"]
        ),
        (&json!(2), &json!(2))
    );
    assert_eq!(refused.hear().await, None);
    assert_eq!(
        server.post("/gym/make", json!({"num_envs": 1})).await.0,
        503
    );
    // Each of these gives a place back: the end of an episode, a farewell, a connection that breaks off, a closing.
    server
        .ok(
            "/step",
            json!({"episode_id": first, "action": {"text": "<answer>x</answer>"}}),
        )
        .await;
    let second = server.ok("/reset", json!({})).await["episode_id"].clone();
    drop(socket);
    wait_for(&server, "sessions_active", 1).await;
    let mut third = server.socket().await;
    third.observe(json!({"type": "reset"})).await;
    assert_eq!(server.post("/reset", json!({})).await.0, 503);
    assert_eq!(third.ask_end(json!({"type": "close"})).await, None);
    assert_eq!(server.metric("sessions_active").await, 1);
    assert_eq!(
        server.ok("/close", json!({"episode_id": second})).await["closed"],
        true
    );
    assert_eq!(server.metric("sessions_active").await, 0);
    let (status, answer) = server
        .post(
            "/step",
            json!({"episode_id": second, "action": {"text": "x"}}),
        )
        .await;
    assert_eq!((status, &answer["cause"]), (410, &json!("session_closed")));
    // All or none.
    assert_eq!(
        server.post("/gym/make", json!({"num_envs": 3})).await.0,
        422
    );
    server.ok("/reset", json!({})).await;
    assert_eq!(
        server.post("/gym/make", json!({"num_envs": 2})).await.0,
        503
    );
    assert_eq!(server.metric("sessions_active").await, 1);
}

async fn wait_for(server: &Server, metric: &str, value: u64) {
    let begin = Instant::now();
    while server.metric(metric).await != value {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{metric} stays {}",
            server.metric(metric).await
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn idle_sessions_expire_and_busy_ones_do_not() {
    let config = ServerConfig {
        session_ttl: Duration::from_millis(300),
        ..ServerConfig::default()
    };
    let server = Server::start(search(), config).await;
    let idle = server.ok("/reset", json!({})).await["episode_id"].clone();
    let handle = server.ok("/gym/make", json!({})).await["env_id"].clone();
    let busy = server.ok("/gym/make", json!({})).await["env_id"].clone();
    let mut socket = server.socket().await;
    socket.observe(json!({"type": "reset"})).await;
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.ok("/gym/reset", json!({"env_id": busy})).await;
    }
    let told = socket.hear().await.expect("told");
    assert_eq!(
        (&told["data"]["code"], &told["data"]["cause"]),
        (&json!("SESSION_ERROR"), &json!("session_closed"))
    );
    assert_eq!(socket.hear().await, None);
    assert_eq!(server.metric("sessions_active").await, 1);
    assert_eq!(
        server
            .metric("sessions_closed_total{how=\"expired\"}")
            .await,
        3
    );
    for (route, body) in [
        (
            "/step",
            json!({"episode_id": idle, "action": {"text": "x"}}),
        ),
        ("/gym/reset", json!({"env_id": handle})),
    ] {
        let (status, _) = server.post(route, body).await;
        // Remembered for as long again, then forgotten.
        assert!(status == 410 || status == 404, "{status}");
    }
}

/// Resident memory of this process, MiB.
fn resident() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096.0 / 1_048_576.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_abandoned_sessions_leave_nothing() {
    let config = ServerConfig {
        max_sessions: 4000,
        session_ttl: Duration::from_millis(500),
        ..ServerConfig::default()
    };
    let server = Server::start(search(), config).await;
    let round = async || {
        for batch in 0..20 {
            let http = (0..400).map(|_| server.ok("/reset", json!({})));
            join_all(http).await;
            let sockets: Vec<Socket> = join_all((0..100).map(|_| async {
                let mut socket = server.socket().await;
                socket.observe(json!({"type": "reset"})).await;
                socket
            }))
            .await;
            // Half of them are left open, for the server to close.
            let kept: Vec<Socket> = sockets.into_iter().take(50).collect();
            if batch % 5 == 4 {
                wait_for(&server, "sessions_active", 0).await;
            }
            drop(kept);
        }
        wait_for(&server, "sessions_active", 0).await;
    };
    // The first round fills what is kept for later: pools, arenas, the memory of closed sessions.
    round().await;
    let before = resident();
    round().await;
    let after = resident();
    assert_eq!(server.metric("sessions_opened_total").await, 20_000);
    let Some((before, after)) = before.zip(after) else {
        return;
    };
    assert!(
        after < before + 32.0,
        "resident memory went from {before:.1} to {after:.1} MiB"
    );
    report(&format!(
        "10,000 abandoned sessions: resident memory {before:.1} MiB before, {after:.1} MiB after"
    ));
}

#[expect(clippy::print_stderr, reason = "a figure for whoever runs the test")]
fn report(text: &str) {
    eprintln!("{text}");
}

#[tokio::test]
async fn a_server_that_stops_finishes_its_steps_and_waits_for_no_idle_session() {
    let config = ServerConfig {
        base: BaseConfig {
            drain: Duration::from_mins(10),
            ..BaseConfig::default()
        },
        ..ServerConfig::default()
    };
    let mut server = Server::start(slow(), config).await;
    let id = server.ok("/reset", json!({})).await["episode_id"].clone();
    let handle = server.ok("/gym/make", json!({})).await["env_id"].clone();
    let mut idle = server.socket().await;
    idle.observe(json!({"type": "reset"})).await;
    let mut busy = server.socket().await;
    busy.observe(json!({"type": "reset"})).await;
    let search = "<search>a</search>";
    busy.say(json!({"type": "step", "data": {"text": search}}))
        .await;
    let (client, url) = (server.client.clone(), server.url("/step"));
    let step = tokio::spawn(async move {
        let body = json!({"episode_id": id, "action": {"text": search}});
        let answer = client.post(url).body(body.to_string()).send().await;
        answer.expect("answered").json::<Value>().await
    });
    wait_for(&server, "in_flight", 1).await;
    server.begin_stop();
    while server.get("/readyz").await.0 == 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for (route, body) in [
        ("/reset", json!({})),
        ("/gym/make", json!({})),
        ("/gym/reset", json!({"env_id": handle})),
    ] {
        let (status, answer) = server.post(route, body).await;
        assert_eq!(
            (status, &answer["cause"]),
            (503, &json!("stopped")),
            "{route}"
        );
    }
    let answer = step.await.expect("no panic").expect("JSON");
    assert_eq!(answer["observation"]["turn"], 1, "{answer}");
    let answer = busy.hear().await.expect("answered");
    assert_eq!(answer["data"]["observation"]["turn"], 1, "{answer}");
    for mut socket in [idle, busy] {
        assert_eq!(
            socket.hear().await.expect("told")["data"]["cause"],
            "stopped"
        );
        assert_eq!(socket.hear().await, None);
    }
    // Long before the time for draining is over.
    assert_eq!(server.ended().await.requests.dropped, 0);
}

#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_ever() {
    let config = ServerConfig {
        base: BaseConfig {
            drain: Duration::from_millis(200),
            ..BaseConfig::default()
        },
        ..ServerConfig::default()
    };
    let mut server = Server::start(slow(), config).await;
    let mut socket = server.socket().await;
    socket.observe(json!({"type": "reset"})).await;
    socket
        .say(json!({"type": "step", "data": {"text": "<search>for ever</search>"}}))
        .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.begin_stop();
    assert_eq!(
        socket.hear().await.expect("told")["data"]["cause"],
        "stopped"
    );
    assert!(server.ended().await.requests.dropped > 0);
}

/// A retriever that takes a second, or for ever.
struct Slow;

#[async_trait]
impl Retriever for Slow {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint("slow".to_owned())
    }

    async fn search(&self, queries: &[Query], _k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        if queries[0].text == "for ever" {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(vec![Vec::new(); queries.len()])
    }
}

pub(crate) fn slow() -> Served {
    let resources = Resources::new(Arc::new(Slow), Arc::new(ByteTokenizer));
    let factory = registry::make("search-r1", Value::Null, resources);
    Served {
        factory: factory.expect("made"),
        ..search()
    }
}

#[tokio::test]
async fn a_connection_gives_signs_of_life_while_a_step_is_done() {
    let server = Server::start(slow(), ServerConfig::default()).await;
    let mut socket = server.socket().await;
    socket.observe(json!({"type": "reset"})).await;
    let search = "<search>a</search>";
    socket
        .say(json!({"type": "step", "data": {"text": search}}))
        .await;
    assert!(socket.is_alive().await, "the answer is what comes first");
    // What is said meanwhile is answered afterwards.
    socket.say(json!({"type": "state"})).await;
    let answer = socket.hear().await.expect("answered");
    assert_eq!(answer["data"]["observation"]["turn"], 1, "{answer}");
    let state = socket.hear().await.expect("answered");
    assert_eq!(state["data"]["step_count"], 1, "{state}");
}

#[tokio::test]
async fn a_browser_is_told_what_the_server_is_for() {
    let defaults = ServerConfig::default();
    let base = BaseConfig {
        token: Some("secret".to_owned()),
        ..defaults.base
    };
    let config = ServerConfig { base, ..defaults };
    let server = Server::start(search(), config).await;
    let page = server.client.get(server.url("/")).send().await;
    let page = page.expect("answered");
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str();
    assert!(policy.expect("text").starts_with("default-src 'none'"));
    let page = page.text().await.expect("text");
    for route in ["/info", "/tasks?limit=10", "/openapi.json", "/healthz"] {
        assert!(page.contains(&format!("href=\"{route}\"")), "{route}");
    }
    let described: Value = serde_json::from_str(include_str!("../../src/server/openapi.json"))
        .expect("a description in JSON");
    let routes = described["paths"].as_object().expect("routes").keys();
    for route in routes.filter(|route| !route.contains('{')) {
        assert!(page.contains(route.as_str()), "{route} is not on the page");
    }
    let info = server.client.get(server.url("/info")).send().await;
    assert_eq!(info.expect("answered").status(), 401);
}

#[tokio::test]
async fn pages_of_others_reach_no_route_without_a_token() {
    let server = Server::start(search(), ServerConfig::default()).await;
    for route in ["/", "/tasks", "/info", "/state", "/mcp", "/ws", "/healthz"] {
        let request = server.client.get(server.url(route));
        let answer = request.header("host", "evil.example").send().await;
        assert_eq!(answer.expect("answered").status(), 403, "{route}");
    }
    for route in ["/reset", "/gym/make", "/seed_session", "/verify", "/mcp"] {
        let post = |name, value| {
            let request = server.client.post(server.url(route)).body("{}");
            request.header(name, value).send()
        };
        let foreign = post("origin", "https://evil.example").await;
        assert_eq!(foreign.expect("answered").status(), 403, "{route}");
        let text = post("content-type", "text/plain").await;
        assert_eq!(text.expect("answered").status(), 415, "{route}");
    }
    let socket = |origin: &'static str| {
        let mut request = format!("ws://{}/ws", server.addr)
            .into_client_request()
            .expect("a request");
        let origin = origin.parse().expect("a header");
        request.headers_mut().insert("origin", origin);
        tokio_tungstenite::connect_async(request)
    };
    let refused = socket("https://evil.example").await.expect_err("foreign");
    assert!(refused.to_string().contains("403"), "{refused}");
    let _open = socket("http://localhost:3000").await.expect("its own");
    wait_for(&server, "sessions_active", 1).await;
}

#[tokio::test]
async fn a_batch_has_as_many_members_as_there_are_places() {
    let config = ServerConfig {
        max_sessions: 2,
        ..ServerConfig::default()
    };
    let server = Server::start(search(), config).await;
    for (route, mut body) in [
        ("/gym/reset", json!({})),
        ("/gym/step", json!({"actions": ["a", "a", "a"]})),
        ("/gym/close", json!({})),
    ] {
        body["env_ids"] = json!(["a", "b", "c"]);
        let (status, answer) = server.post(route, body).await;
        assert_eq!(status, 422, "{route}: {answer}");
        let words = answer["detail"].to_string();
        assert!(words.contains("at most 2"), "{route}: {words}");
    }
    let both = server
        .ok("/gym/reset", json!({"env_ids": ["a", "b"]}))
        .await;
    assert_eq!(both["errors"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn what_a_client_wrote_is_not_repeated_at_length() {
    let server = Server::start(search(), ServerConfig::default()).await;
    let id = server.ok("/reset", json!({})).await["episode_id"].clone();
    let long = "x".repeat(500_000);
    let call = |tool: &str, more: Value| {
        let call = json!({"type": "call_tool", "tool_name": tool, "arguments": more});
        json!({"episode_id": id, "action": call})
    };
    for (route, body) in [
        ("/reset", json!({(long.clone()): 1})),
        ("/reset", json!({"task_id": long})),
        (
            "/step",
            json!({"episode_id": long, "action": {"text": "x"}}),
        ),
        ("/step", call(&long, json!({}))),
        ("/step", call("write_turn", json!({(long.clone()): 1}))),
        ("/close", json!({"episode_id": long})),
        ("/gym/make", json!({"id": long})),
        ("/gym/step", json!({"env_ids": [long], "actions": ["x"]})),
    ] {
        let (_, answer) = server.post(route, body).await;
        let length = answer.to_string().len();
        assert!(length < 16_384, "{route}: {length}");
    }
    let mut socket = server.socket().await;
    let answer = socket.ask(json!({"type": long})).await;
    assert_eq!(answer["data"]["code"], "UNKNOWN_TYPE");
    assert!(answer.to_string().len() < 16_384);
}

#[tokio::test]
async fn bodies_are_small_by_default() {
    let server = Server::start(search(), ServerConfig::default()).await;
    let row = |bytes: usize| json!({"task_index": 0, "more": "x".repeat(bytes)});
    let (status, answer) = server.post("/seed_session", row(1_100_000)).await;
    assert_eq!((status, &answer["cause"]), (413, &json!("too_large")));
    server.ok("/seed_session", row(1_000_000)).await;
}

fn limited(max_body_bytes: usize) -> ServerConfig {
    let usual = ServerConfig::default();
    ServerConfig {
        max_action_bytes: usual.max_action_bytes.min(max_body_bytes),
        base: BaseConfig {
            max_body_bytes,
            ..BaseConfig::default()
        },
        ..usual
    }
}

/// A turn of so many bytes.
fn said(bytes: usize) -> Value {
    json!({"type": "step", "data": {"text": "x".repeat(bytes)}})
}

#[tokio::test]
async fn messages_have_the_limit_of_bodies() {
    let server = Server::start(search(), limited(1000)).await;
    let mut socket = server.socket().await;
    let long = socket.ask(said(2000)).await;
    assert_eq!(
        (&long["data"]["cause"], &long["data"]["code"]),
        (&json!("too_large"), &json!("VALIDATION_ERROR"))
    );
    // The connection and its session go on, until the client sends what will not even be received.
    socket.observe(json!({"type": "reset"})).await;
    assert_eq!(server.metric("sessions_active").await, 1);
    let longer = socket.ask(said(100_000)).await;
    assert_eq!(longer["data"]["cause"], "too_large");
    assert_eq!(socket.hear().await, None);
    assert_eq!(server.metric("sessions_active").await, 0);
    // Frames that are larger than anything that is read are refused by what they announce.
    let mut stream = upgraded(&server).await;
    stream.write_all(&head(1_000_000)).await.expect("sent");
    let mut told = Vec::new();
    let end = stream.read_to_end(&mut told);
    let ended = tokio::time::timeout(Duration::from_secs(10), end).await;
    ended.expect("in time").expect("read");
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains(r#""cause":"invalid""#), "{told}");
    // Clients that go away in the middle are not a fault.
    let gone = server.socket().await;
    wait_for(&server, "sessions_active", 1).await;
    drop(gone);
    wait_for(&server, "sessions_active", 0).await;
}

/// A WebSocket whose frames are written by hand.
async fn upgraded(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr).await.expect("a connection");
    let ask = format!(
        "GET /ws HTTP/1.1\r\nhost: {}\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.addr
    );
    stream.write_all(ask.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("a head"));
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"));
    stream
}

/// The head of a binary frame that is masked with zeros.
fn head(bytes: usize) -> Vec<u8> {
    let mut head = vec![0x82, 0xff];
    head.extend((bytes as u64).to_be_bytes());
    head.extend([0; 4]);
    head
}

/// A connection that has sent all but the last byte of a message.
async fn unfinished(server: &Server, bytes: usize) -> TcpStream {
    let mut stream = upgraded(server).await;
    let mut frame = head(bytes);
    frame.resize(frame.len() + bytes - 1, b' ');
    // The server may have closed it by then.
    let _ = stream.write_all(&frame).await;
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_take_their_memory_from_that_of_all_bodies() {
    let limit = 16 << 20;
    let server = Server::start(search(), limited(limit)).await;
    let large = json!({"task_index": 0, "more": "x".repeat(1_500_000)});
    let begin = Instant::now();
    let mut held = Vec::new();
    // The last one is refused, or finds just enough.
    for _ in 0..5 {
        held.push(unfinished(&server, limit).await);
    }
    while server.post("/seed_session", large.clone()).await.0 == 200 {
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
    let (status, answer) = server.post("/seed_session", large.clone()).await;
    assert_eq!((status, &answer["cause"]), (503, &json!("overloaded")));
    let mut socket = server.socket().await;
    let answer = socket.ask(said(1_500_000)).await;
    assert_eq!(answer["data"]["cause"], "overloaded", "{answer}");
    assert_eq!(socket.hear().await, None);
    // Small ones are always taken, and everything is once the others are gone.
    let mut socket = server.socket().await;
    socket.observe(json!({"type": "reset"})).await;
    drop(held);
    let begin = Instant::now();
    while server.post("/seed_session", large.clone()).await.0 != 200 {
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
    let answer = socket.ask(said(1_500_000)).await;
    assert_ne!(answer["data"]["cause"], "overloaded", "{answer}");
}

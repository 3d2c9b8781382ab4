//! Bounds of memory: what sessions keep, and answers that nobody reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use forage_contracts::reward::{Reward, RewardError};
use forage_contracts::{Episode, Provenance, Task};
use forage_env::reward::RewardSet;
use forage_env::server::{BaseConfig, Served, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{Server, search};

/// The number of the policy's tokens, where nothing else is known of them.
struct Tokens;

#[async_trait]
impl Reward for Tokens {
    fn name(&self) -> &'static str {
        "tokens"
    }

    async fn score(&self, _task: &Task, episode: &Episode) -> Result<f32, RewardError> {
        let tokens = episode.tokens.count(Provenance::Policy);
        let known = episode.tokens.has_ids();
        Ok(if known { -1.0 } else { tokens as f32 })
    }
}

#[tokio::test]
async fn tokens_are_counted_and_not_kept() {
    let served = Served {
        rewards: Arc::new(RewardSet::exact_match().with(Box::new(Tokens), 1.0)),
        ..search()
    };
    let server = Server::start(served, ServerConfig::default()).await;
    let id = server.ok("/reset", json!({})).await["episode_id"].clone();
    let mut answer = Value::Null;
    for text in ["<search>a</search>", "<answer>x</answer>"] {
        let step = json!({"episode_id": id, "action": {"text": text}});
        answer = server.ok("/step", step).await;
    }
    let parts = &answer["observation"]["info"]["score"]["parts"];
    assert_eq!(parts["tokens"], 36.0, "{answer}");
}

#[tokio::test]
async fn turns_are_refused_where_sessions_keep_too_much() {
    const TURN: usize = 8 << 20;
    let config = ServerConfig {
        max_sessions: 2,
        max_action_bytes: TURN,
        base: BaseConfig {
            max_body_bytes: 2 * TURN,
            ..BaseConfig::default()
        },
        ..ServerConfig::default()
    };
    let server = Server::start(search(), config).await;
    let long = "x".repeat(TURN);
    let step = async |id: &Value, text: &str| {
        let body = json!({"episode_id": id, "action": {"text": text}});
        server.post("/step", body).await
    };
    let first = server.ok("/reset", json!({})).await["episode_id"].clone();
    let second = server.ok("/reset", json!({})).await["episode_id"].clone();
    for id in [&first, &second, &first, &second] {
        assert_eq!(step(id, &long).await.0, 200);
    }
    let (status, refused) = step(&first, &long).await;
    assert_eq!(
        (status, &refused["code"], &refused["cause"]),
        (503, &json!("CAPACITY_REACHED"), &json!("overloaded")),
        "{refused}"
    );
    assert!(
        refused["detail"].to_string().contains("64 MiB"),
        "{refused}"
    );
    assert_eq!(server.metric("refused_total").await, 1);
    // Both episodes go on: with less, or with as much once the other has made room.
    assert_eq!(step(&second, "<search>a</search>").await.0, 200);
    server.ok("/close", json!({"episode_id": second})).await;
    let (status, taken) = step(&first, &long).await;
    assert_eq!((status, &taken["observation"]["turn"]), (200, &json!(3)));
}

/// A server whose questions have so many bytes each.
async fn lengthy(question: usize, max_answer_bytes: usize) -> Server {
    let served = search();
    let lengthen = |task: &Arc<Task>| {
        Arc::new(Task {
            question: "q".repeat(question),
            ..Task::clone(task)
        })
    };
    let tasks = served.tasks.iter().map(lengthen).collect();
    let config = ServerConfig {
        max_answer_bytes,
        ..ServerConfig::default()
    };
    Server::start(Served { tasks, ..served }, config).await
}

#[tokio::test]
async fn an_answer_has_so_many_bytes_at_most() {
    let server = lengthy(100_000, 1 << 20).await;
    let (status, refused) = server.get("/tasks").await;
    assert_eq!(
        (status, &refused["cause"]),
        (413, &json!("answer_too_large")),
        "{refused}"
    );
    let (status, some) = server.get("/tasks?limit=9").await;
    assert_eq!((status, &some["total"]), (200, &json!(12)));
    let (_, info) = server.get("/info").await;
    assert_eq!(info["limits"]["answer_bytes"], 1 << 20);
}

/// A connection that reads nothing of the tasks but that they are there.
async fn unread(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr).await.expect("a connection");
    let ask = format!("GET /tasks HTTP/1.1\r\nhost: {}\r\n\r\n", server.addr);
    stream.write_all(ask.as_bytes()).await.expect("sent");
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.expect("a head");
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_take_so_much_together() {
    let server = lengthy(1 << 20, 16 << 20).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(unread(&server).await);
    }
    let (status, refused) = server.get("/tasks").await;
    assert_eq!(
        (status, &refused["code"], &refused["cause"]),
        (503, &json!("CAPACITY_REACHED"), &json!("overloaded")),
        "{refused}"
    );
    // Small ones find room, and all do once the others are gone.
    server.ok("/gym/make", json!({})).await;
    drop(held);
    let begin = Instant::now();
    while server.get("/tasks").await.0 != 200 {
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
}

#[tokio::test]
async fn members_of_a_batch_have_one_answer_together() {
    let config = ServerConfig {
        max_answer_bytes: 1 << 20,
        ..ServerConfig::default()
    };
    let server = Server::start(search(), config).await;
    let id = server.ok("/gym/make", json!({})).await["env_id"].clone();
    server.ok("/gym/reset", json!({"env_id": id})).await;
    let last = format!("<answer>{}</answer>", "x".repeat(100_000));
    let step = json!({"env_id": id, "action": last, "request_id": "last"});
    server.ok("/gym/step", step).await;
    // Each member asks for the same answer again.
    let (ids, actions) = (vec![id; 20], vec!["x"; 20]);
    let again = json!({"env_ids": ids, "actions": actions, "request_id": "last"});
    let answer = server.ok("/gym/step", again).await;
    assert_eq!(answer["errors"][0], Value::Null);
    assert_eq!(answer["infos"][0]["info"]["kind"]["kind"], "answer");
    assert_eq!(answer["errors"][19]["cause"], "answer_too_large");
    assert_eq!(answer["infos"][19], Value::Null);
}

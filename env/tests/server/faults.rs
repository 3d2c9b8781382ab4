//! What is refused, and what fails on our side.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use forage_contracts::environment::{EnvFactory, EnvSpec, Environment};
use forage_contracts::reward::{Reward, RewardError};
use forage_contracts::{ByteTokenizer, Episode, Resources, Task, Tokenizer};
use forage_env::registry;
use forage_env::reward::RewardSet;
use forage_env::server::{BaseConfig, Served, ServerConfig};
use forage_retriever::{
    Bm25Retriever, Fingerprint, Hit, Passage, Query, RerankedRetriever, Reranker, Retriever,
    RetrieverError,
};
use serde_json::{Value, json};

use super::support::{Server, search};

#[tokio::test]
async fn bad_requests_are_named() {
    let config = ServerConfig {
        max_action_bytes: 1000,
        ..ServerConfig::default()
    };
    let server = Server::start(search(), config).await;
    let id = server.ok("/reset", json!({})).await["episode_id"].clone();
    let step = |text: &str| json!({"episode_id": id, "action": {"text": text}});
    let cases = [
        (
            "/reset",
            json!({"task_id": "nonsense"}),
            422,
            "GET /tasks lists them",
        ),
        (
            "/reset",
            json!({"task_index": 99}),
            422,
            "there are 12 tasks",
        ),
        ("/reset", json!({"sed": 1}), 422, "unknown field `sed`"),
        ("/reset", json!({"seed": -1}), 422, "`seed`: invalid value"),
        (
            "/step",
            json!({"episode_id": true, "action": {"text": "x"}}),
            422,
            "`episode_id`: invalid type",
        ),
        (
            "/reset",
            json!({"episode_id": "x".repeat(256)}),
            422,
            "1 to 255 bytes",
        ),
        (
            "/step",
            json!({"action": {"text": "x"}}),
            422,
            "`episode_id` is missing",
        ),
        (
            "/step",
            json!({"episode_id": id, "action": {"query": "x"}}),
            422,
            "unknown field `query`",
        ),
        (
            "/step",
            json!({"episode_id": id, "action": {"text": "x"}, "timeout_s": 0.0}),
            422,
            "above 0",
        ),
        (
            "/step",
            json!({"episode_id": "nobody", "action": {"text": "x"}}),
            404,
            "no session `nobody`",
        ),
        (
            "/step",
            step(&"x".repeat(1001)),
            422,
            "the turn has 1001 bytes",
        ),
        (
            "/gym/make",
            json!({"id": "serach-r1"}),
            422,
            "did you mean `search-r1`?",
        ),
        (
            "/gym/make",
            json!({"id": "code-search"}),
            422,
            "this server has `forage/search-r1-v0`",
        ),
        (
            "/gym/step",
            json!({"env_id": "a", "actions": []}),
            422,
            "`env_id` goes with `action`",
        ),
        ("/nothing", json!({}), 404, "no route /nothing"),
    ];
    for (route, body, status, words) in cases {
        let (got, answer) = server.post(route, body).await;
        assert_eq!(got, status, "{route}: {answer}");
        assert!(
            answer["detail"].to_string().contains(words),
            "{route}: {answer}"
        );
        assert!(
            answer["code"].is_string() && answer["cause"].is_string(),
            "{answer}"
        );
    }
    let (status, answer) = server.post_text("/reset", "{".to_owned()).await;
    assert_eq!((status, &answer["code"]), (422, &json!("INVALID_JSON")));
    for (route, status) in [("/reset", 405), ("/search", 405), ("/nothing", 404)] {
        assert_eq!(server.get(route).await.0, status, "{route}");
    }
    // Nothing of this touched the session.
    assert_eq!(
        server.ok("/step", step("<search>a</search>")).await["observation"]["turn"],
        1
    );
    server.ok("/step", step("<answer>a</answer>")).await;
    let (status, answer) = server.post("/step", step("<answer>a</answer>")).await;
    assert_eq!((status, &answer["cause"]), (409, &json!("episode_over")));
    let closed = server.ok("/close", json!({"episode_id": id})).await;
    assert_eq!(closed["closed"], false);
}

#[tokio::test]
async fn bad_messages_leave_the_connection_open() {
    let config = ServerConfig {
        max_action_bytes: 1000,
        ..ServerConfig::default()
    };
    let server = Server::start(search(), config).await;
    let mut socket = server.socket().await;
    let cases = [
        ("{", "INVALID_JSON"),
        ("[]", "VALIDATION_ERROR"),
        (r#"{"type": "jump"}"#, "UNKNOWN_TYPE"),
        (
            r#"{"type": "step", "data": {"text": "x"}}"#,
            "SESSION_ERROR",
        ),
        (r#"{"type": "step"}"#, "VALIDATION_ERROR"),
        (r#"{"type": "reset", "seed": 7}"#, "VALIDATION_ERROR"),
        (
            r#"{"type": "reset", "data": {"task_id": "nonsense"}}"#,
            "VALIDATION_ERROR",
        ),
    ];
    for (text, code) in cases {
        let answer = socket.ask_text(text.to_owned()).await;
        assert_eq!(
            (&answer["type"], &answer["data"]["code"]),
            (&json!("error"), &json!(code)),
            "{answer}"
        );
    }
    let reset = socket.observe(json!({"type": "reset"})).await;
    assert_eq!(reset["observation"]["turn"], 0);
    let long = json!({"type": "step", "data": {"text": "x".repeat(1001)}});
    assert_eq!(socket.ask(long).await["data"]["code"], "VALIDATION_ERROR");
    let end = socket
        .observe(json!({"type": "step", "data": {"text": "<answer>x</answer>", "metadata": {}}}))
        .await;
    assert_eq!(end["done"], true);
    let after = socket
        .ask(json!({"type": "step", "data": {"text": "x"}}))
        .await;
    assert_eq!(
        (&after["data"]["code"], &after["data"]["cause"]),
        (&json!("SESSION_ERROR"), &json!("episode_over"))
    );
}

#[tokio::test]
async fn a_token_is_asked_for() {
    let config = ServerConfig {
        base: BaseConfig {
            token: Some("secret".to_owned()),
            ..BaseConfig::default()
        },
        ..ServerConfig::default()
    };
    let server = Server::start(search(), config).await;
    for route in [
        "/reset",
        "/gym/make",
        "/mcp",
        "/seed_session",
        "/search",
        "/verify",
        "/aggregate_metrics",
    ] {
        let (status, answer) = server.post(route, json!({})).await;
        assert_eq!(
            (status, &answer["cause"]),
            (401, &json!("unauthorized")),
            "{route}"
        );
    }
    let refused = tokio_tungstenite::connect_async(format!("ws://{}/ws", server.addr)).await;
    assert!(refused.expect_err("no token").to_string().contains("401"));
    assert_eq!(
        server.get("/health").await,
        (200, json!({"status": "healthy"}))
    );
    let request = server
        .client
        .post(server.url("/reset"))
        .header("Authorization", "Bearer secret");
    assert_eq!(request.send().await.expect("answered").status(), 200);
    for (password, status) in [("secret", 200), ("guess", 401)] {
        let request = server
            .client
            .post(server.url("/reset"))
            .basic_auth("anyone", Some(password));
        assert_eq!(request.send().await.expect("answered").status(), status);
    }
}

/// A retriever that is down.
struct Down;

#[async_trait]
impl Retriever for Down {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint("down".to_owned())
    }

    async fn search(&self, queries: &[Query], _k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        match queries[0].text.as_str() {
            "panic" => panic!("index out of range"),
            "wait" => std::future::pending().await,
            "slow" => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok(vec![Vec::new(); queries.len()])
            }
            _ => {
                let source = std::io::Error::other("disk unplugged");
                Err(RetrieverError::Postings {
                    path: "index".into(),
                    source,
                })
            }
        }
    }
}

/// A judge that does not answer.
struct Silent;

#[async_trait]
impl Reward for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    async fn score(&self, _task: &Task, _episode: &Episode) -> Result<f32, RewardError> {
        Err(RewardError {
            name: "silent".to_owned(),
            message: "no answer after 3 tries".to_owned(),
        })
    }
}

fn over(retriever: Arc<dyn Retriever>) -> Served {
    let resources = Resources::new(retriever, Arc::new(ByteTokenizer));
    let factory = registry::make("search-r1", Value::Null, resources).expect("made");
    Served {
        factory,
        ..search()
    }
}

fn down() -> Served {
    let rewards = Arc::new(RewardSet::exact_match().with(Box::new(Silent), 0.0));
    Served {
        rewards,
        ..over(Arc::new(Down))
    }
}

#[tokio::test]
async fn faults_of_ours_end_the_episode_without_a_reward() {
    let server = Server::start(down(), ServerConfig::default()).await;
    let turns = [
        ("<search>x</search>", "retriever", "disk unplugged"),
        (
            "<search>panic</search>",
            "environment",
            "index out of range",
        ),
        ("<answer>x</answer>", "reward", "no answer after 3 tries"),
        ("<search>wait</search>", "deadline", "over 0.05 s"),
    ];
    for (text, cause, words) in turns {
        let id = server.ok("/reset", json!({})).await["episode_id"].clone();
        let step = json!({"episode_id": id, "action": {"text": text}, "timeout_s": 0.05});
        let (status, answer) = server.post("/step", step.clone()).await;
        assert_eq!(
            (status, &answer["cause"], &answer["code"]),
            (503, &json!(cause), &json!("EXECUTION_ERROR"))
        );
        assert!(
            answer["detail"].as_str().expect("words").contains(words),
            "{answer}"
        );
        assert_eq!(answer.get("reward"), None);
        assert_eq!(server.post("/step", step).await.0, 410);
        assert_eq!(
            server
                .metric(&format!("faults_total{{cause=\"{cause}\"}}"))
                .await,
            1
        );
        let mut socket = server.socket().await;
        socket.observe(json!({"type": "reset"})).await;
        if cause != "deadline" {
            let answer = socket
                .ask(json!({"type": "step", "data": {"text": text}}))
                .await;
            assert_eq!(
                (&answer["data"]["code"], &answer["data"]["cause"]),
                (&json!("EXECUTION_ERROR"), &json!(cause))
            );
            // The connection goes on with a new episode.
            assert_eq!(
                socket.ask(json!({"type": "state"})).await["data"]["status"],
                "empty"
            );
            socket.observe(json!({"type": "reset"})).await;
        }
    }
    assert_eq!(
        server.metric("sessions_closed_total{how=\"failed\"}").await,
        4
    );
    assert_eq!(
        server.metric("episodes_total{ending=\"answered\"}").await,
        0
    );
}

/// A model behind a gate, and how often it was asked.
struct Gated {
    asked: AtomicUsize,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Reranker for Gated {
    fn identity(&self) -> String {
        "gated".to_owned()
    }

    fn score(&self, _query: &str, passages: &[&str]) -> Result<Vec<f32>, RetrieverError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        // It fails once the gate is open.
        let _ = self.gate.lock().expect("whole").recv();
        Ok(vec![0.0; passages.len()])
    }
}

#[tokio::test]
async fn a_step_over_its_limit_ends_its_reranking() {
    const PASSAGES: usize = 300;
    let passage = |number: usize| Passage::new(number.to_string(), "", "a river");
    let first = Bm25Retriever::in_memory((0..PASSAGES).map(passage).collect());
    let (open, gate) = mpsc::channel();
    let model = Arc::new(Gated {
        asked: AtomicUsize::new(0),
        gate: Mutex::new(gate),
    });
    let first = Arc::new(first.expect("an index"));
    let reranked = RerankedRetriever::new(first, model.clone(), PASSAGES);
    let server = Server::start(over(Arc::new(reranked)), ServerConfig::default()).await;
    let id = server.ok("/reset", json!({})).await["episode_id"].clone();
    let action = json!({"text": "<search>river</search>"});
    let step = json!({"episode_id": id, "action": action, "timeout_s": 0.2});
    let (status, answer) = server.post("/step", step).await;
    assert_eq!(
        (status, &answer["cause"]),
        (503, &json!("deadline")),
        "{answer}"
    );
    drop(open);
    // The test and the retriever hold the model, and so does the step's search until it ends.
    let begin = Instant::now();
    while Arc::strong_count(&model) > 2 {
        assert!(begin.elapsed() < Duration::from_secs(30), "it goes on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let asked = model.asked.load(Ordering::SeqCst);
    assert!(asked <= 1, "{asked} blocks of passages for nobody");
}

/// Searches on the thread of its caller, as long as it may.
struct Inline;

#[async_trait]
impl Retriever for Inline {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint("inline".to_owned())
    }

    async fn search(&self, queries: &[Query], _k: usize) -> Result<Vec<Vec<Hit>>, RetrieverError> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_mins(1) {
            queries[0].cancel.check()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(vec![Vec::new(); queries.len()])
    }
}

#[tokio::test]
async fn a_search_that_lets_no_timer_fire_ends_with_its_step() {
    let server = Server::start(over(Arc::new(Inline)), ServerConfig::default()).await;
    let id = server.ok("/reset", json!({})).await["episode_id"].clone();
    let action = json!({"text": "<search>river</search>"});
    let step = json!({"episode_id": id, "action": action, "timeout_s": 0.05});
    let (status, answer) = server.post("/step", step).await;
    assert_eq!(
        (status, &answer["cause"]),
        (503, &json!("deadline")),
        "{answer}"
    );
    assert_eq!(server.metric("faults_total{cause=\"retriever\"}").await, 0);
}

/// A tokenizer with a defect.
struct Defective;

impl Tokenizer for Defective {
    fn encode(&self, text: &str) -> Vec<u32> {
        assert!(!text.contains("defect"), "on purpose");
        ByteTokenizer.encode(text)
    }

    fn decode(&self, ids: &[u32]) -> String {
        ByteTokenizer.decode(ids)
    }

    fn eos(&self) -> u32 {
        ByteTokenizer.eos()
    }

    fn vocab_size(&self) -> usize {
        ByteTokenizer.vocab_size()
    }
}

#[tokio::test]
async fn a_defect_is_told_as_one_and_frees_the_place() {
    let served = Served {
        tokenizer: Arc::new(Defective),
        ..search()
    };
    let server = Server::start(served, ServerConfig::default()).await;
    let id = server.ok("/reset", json!({})).await["episode_id"].clone();
    let step = json!({"episode_id": id, "action": {"text": "<answer>defect</answer>"}});
    let (status, answer) = server.post("/step", step.clone()).await;
    assert_eq!(
        (status, &answer["cause"], &answer["code"]),
        (500, &json!("panic"), &json!("EXECUTION_ERROR")),
        "{answer}"
    );
    assert_eq!(server.post("/step", step).await.0, 410);
    for (metric, value) in [
        ("sessions_active", 0),
        ("faults_total{cause=\"panic\"}", 1),
        ("episodes_total{ending=\"infra\"}", 1),
        ("refused_total", 0),
    ] {
        assert_eq!(server.metric(metric).await, value, "{metric}");
    }
}

#[tokio::test]
async fn a_second_request_at_a_time_is_refused() {
    let server = Server::start(down(), ServerConfig::default()).await;
    let id = server.ok("/gym/make", json!({})).await["env_id"].clone();
    server.ok("/gym/reset", json!({"env_id": id})).await;
    // The first waits when the second comes.
    let actions = ["<search>wait</search>", "<answer>b</answer>"];
    let answer = server
        .ok(
            "/gym/step",
            json!({"env_ids": [id, id], "actions": actions, "timeout_s": 0.2}),
        )
        .await;
    let errors = answer["errors"].as_array().expect("a list").iter();
    assert_eq!(
        errors.map(|error| &error["cause"]).collect::<Vec<_>>(),
        ["deadline", "busy"]
    );
}

#[tokio::test]
async fn a_step_that_is_sent_again_while_it_is_done_waits_for_its_answer() {
    let server = Server::start(down(), ServerConfig::default()).await;
    let id = server.ok("/gym/make", json!({})).await["env_id"].clone();
    server.ok("/gym/reset", json!({"env_id": id})).await;
    let step = |text: &str, request: &str, seconds: f64| {
        let actions = [text, text];
        json!({"env_ids": [id, id], "actions": actions, "timeout_s": seconds, "request_id": request})
    };
    let answer = server
        .ok("/gym/step", step("<search>slow</search>", "1", 60.0))
        .await;
    assert_eq!(answer["errors"], json!([null, null]));
    assert_eq!(answer["infos"][0]["turn"], 1);
    assert_eq!(answer["infos"][0], answer["infos"][1]);
    assert_eq!(server.metric("steps_total").await, 1);
    // A fault is an answer too, also to who asks for it again later.
    for (request, cause) in [("2", "deadline"), ("2", "deadline"), ("3", "not_reset")] {
        let answer = server
            .ok("/gym/step", step("<search>wait</search>", request, 0.2))
            .await;
        for error in answer["errors"].as_array().expect("a list") {
            assert_eq!(error["cause"], cause, "{answer}");
        }
    }
    assert_eq!(server.metric("faults_total{cause=\"deadline\"}").await, 1);
}

/// An environment nobody can make.
struct Unmakeable(Arc<dyn EnvFactory>);

impl EnvFactory for Unmakeable {
    fn make(&self) -> Box<dyn Environment> {
        panic!("out of sandboxes")
    }

    fn spec(&self) -> &EnvSpec {
        self.0.spec()
    }
}

#[tokio::test]
async fn an_episode_that_cannot_begin_holds_no_place() {
    let served = search();
    let served = Served {
        factory: Arc::new(Unmakeable(served.factory.clone())),
        ..served
    };
    let config = ServerConfig {
        max_sessions: 2,
        ..ServerConfig::default()
    };
    let server = Server::start(served, config).await;
    for _ in 0..5 {
        let (status, answer) = server.post("/reset", json!({})).await;
        assert_eq!(
            (status, &answer["cause"]),
            (503, &json!("environment")),
            "{answer}"
        );
    }
    let (status, answer) = server.post("/reset", json!({"task_id": "nonsense"})).await;
    assert_eq!(status, 422, "{answer}");
    assert_eq!(server.metric("sessions_active").await, 0);
    assert_eq!(
        server.get("/info").await.1["tools"]
            .as_array()
            .map_or(0, Vec::len),
        1
    );
    let (_, tasks): (_, Value) = server.get("/tasks?offset=10").await;
    assert_eq!(
        (
            &tasks["total"],
            tasks["tasks"].as_array().expect("a list").len()
        ),
        (&json!(12), 2)
    );
    assert_eq!(tasks["tasks"][0].get("golds"), None);
    let twice = "/state?episode_id=a&episode_id=b";
    for wrong in ["/tasks?offset=-1", "/tasks?ofset=1", twice] {
        let (status, refused): (_, Value) = server.get(wrong).await;
        assert_eq!(
            (status, &refused["cause"]),
            (422, &json!("invalid")),
            "{refused}"
        );
    }
}

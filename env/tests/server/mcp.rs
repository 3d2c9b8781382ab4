//! Tools over the Model Context Protocol.

use std::time::Duration;

use forage_env::server::{BaseConfig, ServerConfig};
use serde_json::{Value, json};

use super::limits::slow;
use super::support::{Server, search, served};

/// A client of the streamable HTTP transport.
struct Client<'a> {
    server: &'a Server,
    session: String,
    version: String,
    number: u64,
}

/// The JSON of an answer: as it is, or the last event of a stream.
fn message(text: &str) -> Value {
    let mut events = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .filter(|data| !data.trim().is_empty());
    serde_json::from_str(events.next_back().unwrap_or(text)).unwrap_or(Value::Null)
}

impl<'a> Client<'a> {
    async fn open(server: &'a Server) -> Self {
        let version = "2025-06-18".to_owned();
        let initialize = json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
        });
        let request = server
            .client
            .post(server.url("/mcp"))
            .header("accept", "application/json, text/event-stream");
        let answer = request
            .header("content-type", "application/json")
            .body(initialize.to_string())
            .send()
            .await;
        let answer = answer.expect("answered");
        assert_eq!(answer.status(), 200);
        let session = answer.headers()["mcp-session-id"]
            .to_str()
            .expect("text")
            .to_owned();
        let found = message(&answer.text().await.expect("a body"));
        assert_eq!(
            found["result"]["serverInfo"]["name"], "forage/search-r1-v0",
            "{found}"
        );
        let client = Self {
            server,
            session,
            version,
            number: 0,
        };
        client
            .send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        client
    }

    async fn send(&self, body: Value) -> Value {
        let request = self
            .server
            .client
            .post(self.server.url("/mcp"))
            .header("mcp-session-id", &self.session);
        let request = request.header("accept", "application/json, text/event-stream");
        let request = request
            .header("content-type", "application/json")
            .header("mcp-protocol-version", &self.version);
        let answer = request
            .body(body.to_string())
            .send()
            .await
            .expect("answered");
        message(&answer.text().await.expect("a body"))
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let answer = self
            .send(json!({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}))
            .await;
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        answer["result"].clone()
    }

    async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": name, "arguments": arguments}))
            .await
    }
}

#[tokio::test]
async fn a_session_is_an_episode() {
    let served = search();
    let (question, gold) = (
        served.tasks[2].question.clone(),
        served.tasks[2].golds[0].clone(),
    );
    let server = Server::start(served, ServerConfig::default()).await;
    let mut client = Client::open(&server).await;
    let tools = client.ask("tools/list", json!({})).await;
    let names: Vec<&str> = tools["tools"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["new_question", "search", "answer", "write_turn"]);
    let early = client.call("search", json!({"query": gold})).await;
    assert_eq!(early["isError"], true);
    assert!(
        early["content"][0]["text"]
            .as_str()
            .expect("words")
            .contains("call new_question first")
    );
    let wrong = json!({"seed": 1, "task_index": "two"});
    let wrong = client.call("new_question", wrong).await;
    let words = wrong["content"][0]["text"].as_str().expect("words");
    assert!(words.starts_with("`task_index`: invalid type"), "{wrong}");
    let asked = client.call("new_question", json!({"task_index": 2})).await;
    assert_eq!(asked["content"][0]["text"], format!("Question: {question}"));
    let found = client.call("search", json!({"query": gold})).await;
    assert!(
        found["content"][0]["text"]
            .as_str()
            .expect("text")
            .contains(&gold),
        "{found}"
    );
    let end = client.call("answer", json!({"answer": gold})).await;
    assert_eq!(
        (&end["structuredContent"]["reward"], &end["isError"]),
        (&json!(1.0), &json!(false)),
        "{end}"
    );
    assert!(
        end["content"][0]["text"]
            .as_str()
            .expect("text")
            .starts_with("The episode is over. Reward: 1 (em 1")
    );
    let after = client.call("search", json!({"query": gold})).await;
    assert_eq!(
        (&after["isError"], &after["structuredContent"]["cause"]),
        (&json!(true), &json!("episode_over"))
    );
    // Two sessions do not see each other's episodes.
    client.call("new_question", json!({})).await;
    let mut other = Client::open(&server).await;
    assert_eq!(
        other.call("search", json!({"query": gold})).await["isError"],
        true
    );
    assert_eq!(server.metric("sessions_active").await, 1);
    // Its episode ends with the session.
    let gone = server
        .client
        .delete(server.url("/mcp"))
        .header("mcp-session-id", &client.session);
    let gone = gone
        .header("mcp-protocol-version", &client.version)
        .send()
        .await
        .expect("answered");
    assert!(gone.status().is_success(), "{}", gone.status());
    for _ in 0..100 {
        if server.metric("sessions_active").await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the episode is still open");
}

#[tokio::test]
async fn a_call_that_takes_longer_than_a_session_may_idle_is_answered() {
    let config = ServerConfig {
        session_ttl: Duration::from_millis(600),
        ..ServerConfig::default()
    };
    let server = Server::start(slow(), config).await;
    let mut client = Client::open(&server).await;
    client.call("new_question", json!({})).await;
    let found = client.call("search", json!({"query": "river"})).await;
    assert_eq!(
        found["structuredContent"]["observation"]["turn"], 1,
        "{found}"
    );
}

#[tokio::test]
async fn questions_that_are_asked_for_at_once_leave_one_episode() {
    let server = Server::start(search(), ServerConfig::default()).await;
    let client = Client::open(&server).await;
    let begun = (1..=16).map(|number| {
        let params = json!({"name": "new_question", "arguments": {}});
        client
            .send(json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}))
    });
    for answer in futures::future::join_all(begun).await {
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    assert_eq!(server.metric("sessions_active").await, 1);
}

/// The result of a call by a client of a protocol without sessions.
async fn alone(server: &Server, name: &str, arguments: Value) -> Value {
    let version = "2026-07-28";
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": name, "arguments": arguments, "_meta": meta},
    });
    let request = server
        .client
        .post(server.url("/mcp"))
        .header("content-type", "application/json");
    let request = request.header("accept", "application/json, text/event-stream");
    let request = request
        .header("mcp-protocol-version", version)
        .header("mcp-method", "tools/call");
    let answer = request
        .header("mcp-name", name)
        .body(body.to_string())
        .send()
        .await
        .expect("answered");
    let answer = message(&answer.text().await.expect("a body"));
    assert!(answer.get("result").is_some(), "{answer}");
    answer["result"].clone()
}

#[tokio::test]
async fn an_episode_goes_on_beside_as_many_sessions_as_there_may_be() {
    let config = ServerConfig {
        max_sessions: 1,
        ..ServerConfig::default()
    };
    let server = Server::start(search(), config).await;
    let asked = alone(&server, "new_question", json!({})).await;
    let id = &asked["structuredContent"]["episode_id"];
    let _session = Client::open(&server).await;
    let found = alone(&server, "search", json!({"query": "x", "episode_id": id})).await;
    assert_eq!(
        found["structuredContent"]["observation"]["turn"], 1,
        "{found}"
    );
    let another = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}});
    let (status, refused) = server.post("/mcp", another).await;
    assert_eq!(
        (status, &refused["code"]),
        (503, &json!("CAPACITY_REACHED"))
    );
}

#[tokio::test]
async fn clients_without_sessions_name_the_episode() {
    let served = search();
    let gold = served.tasks[0].golds[0].clone();
    let server = Server::start(served, ServerConfig::default()).await;
    let call = async |name: &str, arguments: Value| alone(&server, name, arguments).await;
    let asked = call("new_question", json!({"task_index": 0})).await;
    let id = asked["structuredContent"]["episode_id"].clone();
    let told = asked["content"][0]["text"].as_str().expect("text");
    assert!(told.contains(&format!("Give episode_id {id} ")), "{told}");
    let unnamed = call("search", json!({"query": gold})).await;
    assert_eq!(unnamed["isError"], true);
    assert!(unnamed.to_string().contains("no episode is named"));
    let found = call("search", json!({"query": gold, "episode_id": id})).await;
    assert_eq!(
        found["structuredContent"]["observation"]["turn"], 1,
        "{found}"
    );
    let end = call("answer", json!({"answer": gold, "episode_id": id})).await;
    assert_eq!(end["structuredContent"]["reward"], 1.0);
}

#[tokio::test]
async fn a_server_that_stops_ends_idle_sessions_at_once() {
    let config = ServerConfig {
        base: BaseConfig {
            drain: Duration::from_mins(10),
            ..BaseConfig::default()
        },
        ..ServerConfig::default()
    };
    let mut server = Server::start(search(), config).await;
    let mut client = Client::open(&server).await;
    client.call("new_question", json!({})).await;
    // The stream on which a client waits for messages of the server.
    let listening = server
        .client
        .get(server.url("/mcp"))
        .header("accept", "text/event-stream")
        .header("mcp-session-id", &client.session)
        .send()
        .await
        .expect("answered");
    assert_eq!(listening.status(), 200);
    server.begin_stop();
    let told = tokio::time::timeout(Duration::from_secs(20), listening.text()).await;
    assert!(
        told.is_ok(),
        "the stream lasts as long as the server drains"
    );
    assert_eq!(server.ended().await.requests.dropped, 0);
}

#[tokio::test]
async fn programs_are_run_by_a_tool() {
    let served = served("code-search", json!({}));
    let (gold, tools) = (served.tasks[0].golds[0].clone(), served.factory.tools());
    assert_eq!(
        tools.iter().map(|tool| tool.name).collect::<Vec<_>>(),
        ["run_python", "answer"]
    );
    let server = Server::start(served, ServerConfig::default()).await;
    let id = server.ok("/reset", json!({"task_index": 0})).await["episode_id"].clone();
    let call = |name: &str, arguments: Value| json!({"episode_id": id, "action": {"type": "call_tool", "tool_name": name, "arguments": arguments}});
    let code = "print(\"<answer>not yet</answer>\")";
    let refused = server
        .ok("/step", call("run_python", json!({"code": code})))
        .await;
    let error = &refused["observation"]["error"];
    assert_eq!(error["error_type"], "invalid_args", "{refused}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|words| words.contains("`code` contains </answer>")),
        "{refused}"
    );
    let ran = server
        .ok(
            "/step",
            call("run_python", json!({"code": "x = 20 + 1\nprint(x * 2)"})),
        )
        .await;
    assert!(
        ran["observation"]["result"]
            .as_str()
            .expect("text")
            .contains("42"),
        "{ran}"
    );
    assert_eq!(
        server
            .ok("/step", call("answer", json!({"answer": gold})))
            .await["reward"],
        1.0
    );
}

#[tokio::test]
async fn requests_have_the_limits_of_bodies() {
    let server = Server::start(search(), ServerConfig::default()).await;
    let long = json!({"jsonrpc": "2.0", "id": 0, "method": "ping", "params": {"x": "x".repeat(1_100_000)}});
    let (status, answer) = server.post("/mcp", long).await;
    assert_eq!((status, &answer["cause"]), (413, &json!("too_large")));
}

#[tokio::test]
async fn a_message_of_very_many_values_is_not_read() {
    let server = Server::start(search(), ServerConfig::default()).await;
    let client = Client::open(&server).await;
    let listing = |values: usize| {
        let meta = json!({"all": vec![json!([]); values]});
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
    };
    let refused = client.send(listing(100_000)).await;
    assert_eq!(refused["code"], "VALIDATION_ERROR", "{refused}");
    assert!(
        refused["detail"].to_string().contains("JSON values"),
        "{refused}"
    );
    let read = client.send(listing(1000)).await;
    assert!(read.get("result").is_some(), "{read}");
}

#[tokio::test]
async fn a_session_is_opened_by_a_small_request() {
    let server = Server::start(search(), ServerConfig::default()).await;
    let initialize = |more: Value| {
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {"experimental": {"x": {"more": more}}},
            "clientInfo": {"name": "test", "version": "1"},
        });
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string()
    };
    let long = initialize("x".repeat(20_000).into());
    let spelled = long.replace("initialize", "\\u0069nitialize");
    for body in [long, spelled, initialize(json!(vec![0; 1000]))] {
        let (status, refused) = server.post_text("/mcp", body).await;
        assert_eq!(
            (status, &refused["cause"]),
            (422, &json!("invalid")),
            "{refused}"
        );
        let words = refused["detail"].to_string();
        assert!(words.contains("16384 bytes and 500 values"), "{words}");
    }
    assert_eq!(server.metric("errors_total{cause=\"invalid\"}").await, 3);
    // Calls may be as large as turns are.
    let mut client = Client::open(&server).await;
    client.call("new_question", json!({})).await;
    let text = "x".repeat(100_000);
    let turn = client.call("write_turn", json!({"text": text})).await;
    assert_eq!(turn["isError"], false, "{turn}");
}

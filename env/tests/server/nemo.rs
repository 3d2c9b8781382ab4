//! The routes of a NeMo-Gym resources server.

use forage_env::server::ServerConfig;
use serde_json::{Map, Value, json};

use super::support::{Server, search, served};

/// A Responses object whose last message says `text`.
fn response(text: &str) -> Value {
    json!({"id": "r", "object": "response", "output": [
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "name": "search", "arguments": "{}", "call_id": "c"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]},
    ]})
}

async fn send(
    server: &Server,
    route: &str,
    cookie: Option<&str>,
    body: Value,
) -> (u16, Value, Option<String>) {
    let mut request = server.client.post(server.url(route)).body(body.to_string());
    if let Some(cookie) = cookie {
        request = request.header("cookie", format!("other=1; {cookie}"));
    }
    let answer = request.send().await.expect("answered");
    let set = answer
        .headers()
        .get("set-cookie")
        .and_then(|value| value.to_str().ok());
    let set = set
        .and_then(|value| value.split(';').next())
        .map(str::to_owned);
    (
        answer.status().as_u16(),
        answer.json().await.expect("JSON"),
        set,
    )
}

#[tokio::test]
async fn a_rollout_is_seeded_played_and_verified() {
    let served = search();
    let (task, gold) = (served.tasks[3].id.clone(), served.tasks[3].golds[0].clone());
    let server = Server::start(served, ServerConfig::default()).await;
    let row = json!({"responses_create_params": {"input": "Who?"}, "verifier_metadata": {"task_id": task}});
    let (status, seeded, cookie) = send(&server, "/seed_session", None, row.clone()).await;
    assert_eq!((status, &seeded["task_id"]), (200, &json!(task)));
    // NeMo-Gym's agents keep the cookies of the last answer alone, a refusal's too.
    let cookie = cookie.expect("a cookie");
    let (_, found, cookie) = send(&server, "/search", Some(&cookie), json!({"query": gold})).await;
    assert!(
        found["result"].as_str().expect("text").contains(&gold),
        "{found}"
    );
    let cookie = cookie.expect("the cookie again");
    for route in ["/no_such_tool", "/close", "/search"] {
        let (status, refused, kept) = send(&server, route, Some(&cookie), json!([1])).await;
        assert!((400..500).contains(&status), "{route}: {refused}");
        assert_eq!(kept.as_ref(), Some(&cookie), "{route}");
    }
    let (status, wrong, _) = send(&server, "/search", Some(&cookie), json!({"text": 1})).await;
    assert_eq!(status, 200);
    assert!(
        wrong["error"]
            .as_str()
            .expect("words")
            .contains("it takes `query`")
    );
    let mut verify = row.clone();
    verify["response"] = response(&gold);
    let (_, verified, _) = send(&server, "/verify", Some(&cookie), verify.clone()).await;
    assert_eq!(
        (&verified["reward"], &verified["reward_components"]["em"]),
        (&json!(1.0), &json!(1.0))
    );
    assert_eq!(
        verified["responses_create_params"],
        row["responses_create_params"]
    );
    // What was scored stays scored.
    verify["response"] = response("wrong");
    assert_eq!(
        send(&server, "/verify", Some(&cookie), verify).await.1["reward"],
        1.0
    );
    assert_eq!(server.metric("sessions_active").await, 0);
}

#[tokio::test]
async fn rows_are_verified_without_a_session_too() {
    let served = search();
    let (task, gold) = (served.tasks[0].id.clone(), served.tasks[0].golds[0].clone());
    let server = Server::start(served, ServerConfig::default()).await;
    let cut_off =
        json!({"output": [{"type": "function_call", "name": "search", "arguments": "{}"}]});
    for (answer, reward) in [
        (response(&gold), 1.0),
        (
            response(&format!("<think>so</think><answer>{gold}</answer>")),
            1.0,
        ),
        (response("nobody knows"), 0.0),
        (cut_off, 0.0),
    ] {
        let (status, verified, _) = send(
            &server,
            "/verify",
            None,
            json!({"task_id": task, "response": answer}),
        )
        .await;
        assert_eq!(
            (status, &verified["reward"]),
            (200, &json!(reward)),
            "{verified}"
        );
    }
    for no_response in [
        json!(null),
        json!("Ada"),
        json!({}),
        json!({"output": gold}),
    ] {
        let row = json!({"task_id": task, "response": no_response});
        let (status, refused, _) = send(&server, "/verify", None, row).await;
        assert_eq!(status, 422, "{refused}");
        assert!(refused["detail"].to_string().contains("`output`"));
    }
    let (status, refused, _) = send(
        &server,
        "/verify",
        None,
        json!({"response": response(&gold)}),
    )
    .await;
    assert_eq!(status, 422);
    assert!(refused["detail"].to_string().contains("task_id"));
    assert_eq!(
        send(&server, "/search", None, json!({"query": "x"}))
            .await
            .0,
        422
    );
    assert_eq!(
        send(
            &server,
            "/verify",
            Some("forage_session=nobody"),
            json!({"response": response(&gold)})
        )
        .await
        .0,
        404
    );
    assert_eq!(server.metric("sessions_active").await, 0);
}

#[tokio::test]
async fn a_last_message_is_what_the_last_tool_would_write() {
    let settings = json!({"candidates": 8, "window": 8});
    let server = Server::start(served("rerank", settings), ServerConfig::default()).await;
    let scored = async |message: &str| {
        let row = json!({"task_index": 0, "response": response(message)});
        let (status, verified, _) = send(&server, "/verify", None, row).await;
        assert_eq!(status, 200, "{verified}");
        verified["reward_components"].clone()
    };
    let order = "[8] > [7] > [6] > [5] > [4] > [3] > [2] > [1]";
    let bare = scored(order).await;
    assert_eq!(bare, scored(&format!("<answer>{order}</answer>")).await);
    assert_ne!(bare, scored("no order").await);
}

#[tokio::test]
async fn metrics_are_aggregated_as_nemo_gym_does() {
    let fixture = include_str!("../fixtures/nemo_aggregate.json");
    let fixture: Value = serde_json::from_str(fixture).expect("JSON");
    let server = Server::start(search(), ServerConfig::default()).await;
    let request = fixture["request"].clone();
    let answer = server.ok("/aggregate_metrics", request).await;
    assert_alike(&answer, &fixture["answer"]);
    let nothing = server
        .ok("/aggregate_metrics", json!({"verify_responses": []}))
        .await;
    let empty = json!({"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}});
    assert_eq!(nothing, empty);
}

/// Equal but for the rounding of numbers.
fn assert_alike(found: &Value, expected: &Value) {
    match (found, expected) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let names = |map: &Map<String, Value>| {
                let mut names: Vec<String> = map.keys().cloned().collect();
                names.sort();
                names
            };
            assert_eq!(names(ours), names(theirs));
            for (name, value) in ours {
                assert_alike(value, &theirs[name]);
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            assert_eq!(ours.len(), theirs.len());
            for (ours, theirs) in ours.iter().zip(theirs) {
                assert_alike(ours, theirs);
            }
        }
        _ => match (found.as_f64(), expected.as_f64()) {
            (Some(ours), Some(theirs)) => assert!((ours - theirs).abs() < 1e-12, "{ours} {theirs}"),
            _ => assert_eq!(found, expected),
        },
    }
}

#[tokio::test]
async fn a_message_that_is_too_long_is_scored_as_none() {
    let config = ServerConfig {
        max_action_bytes: 1000,
        ..ServerConfig::default()
    };
    let server = Server::start(search(), config).await;
    let row = json!({"task_index": 0, "response": response(&"x".repeat(2000))});
    let (_, _, cookie) = send(&server, "/seed_session", None, row.clone()).await;
    for cookie in [None, cookie.as_deref()] {
        let (status, verified, _) = send(&server, "/verify", cookie, row.clone()).await;
        assert_eq!(
            (status, &verified["reward"]),
            (200, &json!(0.0)),
            "{verified}"
        );
    }
    assert_eq!(server.metric("sessions_active").await, 0);
}

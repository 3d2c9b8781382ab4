//! Episodes by every protocol are those of the rollout driver: same observations, same records, same scores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, EnvError, EnvFactory, EnvSpec, Environment, Observation, Step,
};
use forage_contracts::seed::Seed;
use forage_contracts::{Ending, Task};
use forage_env::server::{Served, ServerConfig};
use serde_json::{Value, json};

use super::support::{Server, assert_same_end, played, search, served};

/// Plays every episode of the driver again, turn by turn, over HTTP, WebSocket and Gymnasium's shape.
async fn replay(env: &str, settings: Value) {
    let served = served(env, settings);
    let episodes = played(&served).await;
    let server = Server::start(served, ServerConfig::default()).await;
    let handle = server.ok("/gym/make", json!({})).await["env_id"].clone();
    for (index, episode) in episodes.iter().enumerate() {
        let (seed, last) = (100 + index, episode.turns.len() - 1);
        let asked = json!({"seed": seed, "task_index": index, "member": 0});
        let http = server.ok("/reset", asked.clone()).await;
        let mut socket = server.socket().await;
        let ws = socket
            .observe(json!({"type": "reset", "data": asked}))
            .await;
        let options = json!({"task_index": index, "member": 0});
        let gym = server
            .ok(
                "/gym/reset",
                json!({"env_id": handle, "seed": seed, "options": options}),
            )
            .await;
        for text in [
            &http["observation"]["text"],
            &ws["observation"]["text"],
            &gym["observation"],
        ] {
            assert_eq!(*text, episode.prompt);
        }
        assert_eq!(http["reward"], Value::Null);
        assert_eq!(gym["info"]["task_id"], episode.task.id);
        let id = &http["episode_id"];
        assert_eq!(*id, http["observation"]["episode_id"]);
        for (number, turn) in episode.turns.iter().enumerate() {
            let action = json!({"text": turn.policy});
            let http = server
                .ok("/step", json!({"episode_id": id, "action": action}))
                .await;
            let ws = socket
                .observe(json!({"type": "step", "data": action}))
                .await;
            let gym = server
                .ok(
                    "/gym/step",
                    json!({"env_id": handle, "action": turn.policy}),
                )
                .await;
            let over = number == last;
            for answer in [&http, &ws] {
                assert_eq!(answer["observation"]["text"], turn.observation);
                assert_eq!(answer["done"], over);
            }
            assert_eq!(gym["observation"], turn.observation);
            assert_eq!(
                gym["terminated"].as_bool().unwrap() || gym["truncated"].as_bool().unwrap(),
                over
            );
            if over {
                let reward = json!(turn.reward + episode.reward().expect("scored"));
                assert_eq!(
                    [&http["reward"], &ws["reward"], &gym["reward"]],
                    [&reward; 3]
                );
                for view in [&http["observation"], &ws["observation"], &gym["info"]] {
                    assert_same_end(view, episode);
                }
            } else {
                assert_eq!(http["observation"]["info"]["kind"], json!(turn.kind));
                assert_eq!(http["reward"], json!(turn.reward));
            }
        }
    }
    // The handle and the last connection are open; the episodes over HTTP gave their places back when they ended.
    assert!(server.metric("sessions_active").await <= 2);
    let answered = episodes
        .iter()
        .filter(|episode| episode.ending == Ending::Answered)
        .count();
    assert_eq!(
        server.metric("episodes_total{ending=\"answered\"}").await,
        3 * answered as u64
    );
}

#[tokio::test]
async fn search_episodes_are_the_drivers() {
    replay("search-r1", json!({})).await;
}

#[tokio::test]
async fn rewarded_turns_are_the_drivers() {
    replay("search-r1", json!({"gold_shown_reward": 0.5})).await;
}

#[tokio::test]
async fn query_episodes_are_the_drivers() {
    replay("query-writer", json!({})).await;
}

#[tokio::test]
async fn ranking_episodes_are_the_drivers() {
    replay(
        "rerank",
        json!({"form": "setwise", "candidates": 7, "window": 3, "passes": 2}),
    )
    .await;
}

#[tokio::test]
async fn code_episodes_are_the_drivers() {
    replay("code-search", json!({})).await;
}

#[tokio::test]
async fn a_forced_prefix_is_announced_and_put_in_front() {
    let served = served(
        "search-r1",
        json!({"max_generations": 1, "closing_turn": "forced_answer"}),
    );
    let gold = served.tasks[0].golds[0].clone();
    let server = Server::start(served, ServerConfig::default()).await;
    let id = server.ok("/reset", json!({"task_index": 0})).await["episode_id"].clone();
    let step = json!({"episode_id": id, "action": {"text": "<search>anything</search>"}});
    let shown = server.ok("/step", step).await;
    assert_eq!(shown["observation"]["forced_prefix"], "<answer>");
    let text = format!("{gold}</answer> and more");
    let end = server
        .ok("/step", json!({"episode_id": id, "action": {"text": text}}))
        .await;
    assert_eq!(end["reward"], 1.0);
    assert_eq!(end["observation"]["info"]["ignored_chars"], 9);
}

/// An environment with other stop strings.
struct Stopping(Arc<dyn EnvFactory>, EnvSpec);

impl EnvFactory for Stopping {
    fn make(&self) -> Box<dyn Environment> {
        self.0.make()
    }

    fn spec(&self) -> &EnvSpec {
        &self.1
    }
}

#[tokio::test]
async fn a_stop_string_in_a_forced_prefix_ends_no_turn() {
    let mut served = served(
        "search-r1",
        json!({"max_generations": 1, "closing_turn": "forced_answer"}),
    );
    let gold = served.tasks[0].golds[0].clone();
    let mut spec = served.factory.spec().clone();
    spec.stop.push("<ans".to_owned());
    served.factory = Arc::new(Stopping(served.factory, spec));
    let server = Server::start(served, ServerConfig::default()).await;
    let id = server.ok("/reset", json!({"task_index": 0})).await["episode_id"].clone();
    let step = json!({"episode_id": id, "action": {"text": "<search>anything</search>"}});
    let shown = server.ok("/step", step).await;
    assert_eq!(shown["observation"]["forced_prefix"], "<answer>");
    let step = json!({"episode_id": id, "action": {"text": format!("{gold}</answer>")}});
    assert_eq!(server.ok("/step", step).await["reward"], 1.0);
}

#[tokio::test]
async fn a_limit_truncates_and_still_scores() {
    let server = Server::start(search(), ServerConfig::default()).await;
    let id = server.ok("/reset", json!({"task_index": 0})).await["episode_id"].clone();
    let step = json!({"episode_id": id, "action": {"text": "I wonder.", "finish": "context"}});
    let end = server.ok("/step", step).await;
    assert_eq!((&end["done"], &end["reward"]), (&json!(true), &json!(0.0)));
    assert_eq!(end["observation"]["truncated"], true);
    assert_eq!(end["observation"]["terminated"], false);
    assert_eq!(
        end["observation"]["info"]["ending"],
        json!({"how": "truncated", "limit": "context"})
    );
}

#[tokio::test]
async fn a_batch_steps_many_and_keeps_faults_apart() {
    let served = search();
    let golds: Vec<String> = served
        .tasks
        .iter()
        .map(|task| task.golds[0].clone())
        .collect();
    let server = Server::start(served, ServerConfig::default()).await;
    let made = server
        .ok("/gym/make", json!({"id": "search-r1", "num_envs": 4}))
        .await;
    let mut ids: Vec<Value> = made["env_ids"].as_array().expect("a list").clone();
    let options: Vec<Value> = (0..4).map(|index| json!({"task_index": index})).collect();
    let reset = server
        .ok(
            "/gym/reset",
            json!({"env_ids": ids, "seed": 7, "options": options}),
        )
        .await;
    assert_eq!(
        reset["infos"][3]["seed"], 10,
        "the seed of member i is i more"
    );
    assert_eq!(reset["errors"], json!([null, null, null, null]));
    for (mut body, words) in [
        (json!({"seed": "x"}), "`seed`: invalid type"),
        (
            json!({"options": [null, {"sed": 1}]}),
            "`options`: unknown field `sed`",
        ),
        (
            json!({"options": {"task_index": "x"}}),
            "`options`: `task_index`: invalid type",
        ),
    ] {
        body["env_ids"] = json!(ids);
        let (status, refused) = server.post("/gym/reset", body).await;
        assert_eq!(status, 422);
        assert!(refused["detail"].to_string().contains(words), "{refused}");
    }
    let answer = |gold: &str| json!(format!("<answer>{gold}</answer>"));
    ids[2] = json!("nobody");
    let actions = json!([
        answer(&golds[0]),
        "<search>x</search>",
        answer(&golds[2]),
        answer("wrong")
    ]);
    let step = server
        .ok("/gym/step", json!({"env_ids": ids, "actions": actions}))
        .await;
    assert_eq!(step["rewards"], json!([1.0, 0.0, null, 0.0]));
    assert_eq!(step["terminations"], json!([true, false, null, true]));
    assert_eq!(step["errors"][2]["cause"], "unknown_session");
    assert_eq!(step["errors"][0], Value::Null);
    // A handle outlives its episode.
    let again = server
        .ok(
            "/gym/reset",
            json!({"env_id": ids[0], "seed": 7, "options": {"task_index": 0}}),
        )
        .await;
    assert_eq!(again["observation"], reset["observations"][0]);
    let closed = server
        .ok("/gym/close", json!({"env_ids": made["env_ids"]}))
        .await;
    assert_eq!(closed["closed"], 4);
    assert_eq!(server.metric("sessions_active").await, 0);
}

#[tokio::test]
async fn a_lost_answer_can_be_asked_for_again() {
    let served = search();
    let gold = served.tasks[0].golds[0].clone();
    let server = Server::start(served, ServerConfig::default()).await;
    let id = server
        .ok("/reset", json!({"task_index": 0, "episode_id": "mine"}))
        .await["episode_id"]
        .clone();
    assert_eq!(id, "mine");
    let step =
        json!({"episode_id": id, "action": {"text": "<search>a</search>"}, "request_id": "1"});
    let first = server.ok("/step", step.clone()).await;
    assert_eq!(server.ok("/step", step).await, first);
    let (_, state) = server.get("/state?episode_id=mine").await;
    assert_eq!(
        (&state["step_count"], &state["status"]),
        (&json!(1), &json!("running"))
    );
    let text = format!("<answer>{gold}</answer>");
    let last = json!({"episode_id": id, "action": {"text": text}, "request_id": "2"});
    let end = server.ok("/step", last.clone()).await;
    assert_eq!(end["reward"], 1.0);
    assert_eq!(server.ok("/step", last).await, end);
    assert_eq!(server.metric("steps_total").await, 2);
    let (_, state) = server.get("/state?episode_id=mine").await;
    assert_eq!(
        (&state["status"], &state["score"]["total"]),
        (&json!("over"), &json!(1.0))
    );
}

/// Environments that take their time to begin, and how many were made; the first of them fails.
struct Slow(Arc<dyn EnvFactory>, AtomicUsize);

impl EnvFactory for Slow {
    fn make(&self) -> Box<dyn Environment> {
        let fails = self.1.fetch_add(1, Ordering::SeqCst) == 0;
        Box::new(Slowly(self.0.make(), fails))
    }

    fn spec(&self) -> &EnvSpec {
        self.0.spec()
    }
}

/// One of them, and whether it fails.
struct Slowly(Box<dyn Environment>, bool);

#[async_trait]
impl Environment for Slowly {
    async fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError> {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if self.1 {
            return Err(EnvError::own("out of order"));
        }
        self.0.reset(task, seed).await
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        self.0.step(action).await
    }

    fn spec(&self) -> &EnvSpec {
        self.0.spec()
    }
}

#[tokio::test]
async fn a_reset_that_is_sent_again_while_it_is_done_waits_for_its_answer() {
    let served = search();
    let slow = Arc::new(Slow(served.factory.clone(), AtomicUsize::new(0)));
    let served = Served {
        factory: slow.clone(),
        ..served
    };
    let server = Server::start(served, ServerConfig::default()).await;
    let id = server.ok("/gym/make", json!({})).await["env_id"].clone();
    let reset = json!({"env_ids": [id, id], "seed": 7});
    // A fault is the answer to both.
    let failed = server.ok("/gym/reset", reset.clone()).await;
    for error in failed["errors"].as_array().expect("a list") {
        assert_eq!(error["cause"], "environment", "{failed}");
    }
    assert_eq!(slow.1.load(Ordering::SeqCst), 1);
    let begun = server.ok("/gym/reset", reset).await;
    assert_eq!(begun["errors"], json!([null, null]), "{begun}");
    let step = json!({"env_id": id, "action": "<search>a</search>"});
    let step = server.ok("/gym/step", step).await;
    assert_eq!(
        (&step["info"]["turn"], &step["info"]["seed"]),
        (&json!(1), &json!(8))
    );
}

#[tokio::test]
async fn an_openenv_client_may_call_tools() {
    let served = search();
    let gold = served.tasks[0].golds[0].clone();
    let server = Server::start(served, ServerConfig::default()).await;
    let mut socket = server.socket().await;
    socket
        .observe(json!({"type": "reset", "data": {"task_index": 0}}))
        .await;
    let listed = socket
        .observe(json!({"type": "step", "data": {"type": "list_tools"}}))
        .await;
    assert_eq!(listed["observation"]["tools"][0]["name"], "search");
    let call = |name: &str, arguments: Value| json!({"type": "step", "data": {"type": "call_tool", "tool_name": name, "arguments": arguments}});
    let found = socket.observe(call("search", json!({"query": gold}))).await;
    assert!(
        found["observation"]["result"]
            .as_str()
            .expect("text")
            .contains("<information>")
    );
    let wrong = socket.observe(call("search", json!({"q": gold}))).await;
    assert_eq!(wrong["observation"]["error"]["error_type"], "invalid_args");
    let missing = socket.observe(call("dig", json!({}))).await;
    assert_eq!(
        missing["observation"]["error"]["error_type"],
        "tool_not_found"
    );
    let end = socket
        .observe(call("answer", json!({"answer": gold})))
        .await;
    assert_eq!(
        (&end["reward"], &end["observation"]["turn"]),
        (&json!(1.0), &json!(2))
    );
    let state = socket.ask(json!({"type": "state"})).await;
    assert_eq!(
        (&state["type"], &state["data"]["step_count"]),
        (&json!("state"), &json!(2))
    );
}

#[tokio::test]
async fn a_client_that_closes_its_connection_is_answered() {
    let server = Server::start(search(), ServerConfig::default()).await;
    let mut socket = server.socket().await;
    socket.observe(json!({"type": "reset"})).await;
    assert!(socket.close().await, "the connection breaks off");
    assert_eq!(server.metric("sessions_active").await, 0);
}

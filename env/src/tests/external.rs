//! An environment on a server plays as it does here; what fails there is a fault, and nothing else is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use forage_contracts::environment::{EnvFactory, Outcome};
use forage_contracts::scripted::{Cast, ScriptEntry};
use forage_contracts::seed::Seed;
use forage_contracts::{
    Boundary, ByteTokenizer, Ending, Episode, OracleHop, RegistryError, Split, Task,
};
use forage_env::CheckPlan;
use forage_env::registry::{find, make};
use forage_env::reward::RewardSet;
use forage_env::search_r1::SearchR1Settings;
use forage_env::server::{Served, ServerConfig};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::common::{Down, factory, jobs, library, lines, resources, rollout, settings, task};

/// Serves an environment as `forage serve env` does, for as long as the test runs.
async fn serve(factory: Arc<dyn EnvFactory>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let served = Served {
        factory,
        tasks: Arc::from([Arc::new(task())]),
        rewards: Arc::new(RewardSet::measure(Outcome::Answer)),
        tokenizer: Arc::new(ByteTokenizer),
    };
    tokio::spawn(served.serve(listener, ServerConfig::default(), std::future::pending()));
    url
}

fn external(settings: Value) -> Result<Arc<dyn EnvFactory>, RegistryError> {
    make("external", settings, resources())
}

async fn played(factory: Arc<dyn EnvFactory>, turns: &[&str]) -> Episode {
    let mut rollout = rollout(lines(turns), factory);
    let weights = BTreeMap::from([("em".to_owned(), 1.0), ("return".to_owned(), 1.0)]);
    let rewards = RewardSet::new(Outcome::Answer, &weights, Seed::root(0));
    rollout.rewards = Arc::new(rewards.expect("registered"));
    rollout.run(jobs(task(), 1)).await.remove(0)
}

const TURNS: [&str; 3] = [
    "<search>mayor of Orlen</search>",
    "I wonder",
    "<answer>Velm</answer>",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_environment_on_a_server_plays_as_here() {
    let local = factory(settings(), library());
    let servers = [serve(local.clone()).await, serve(local.clone()).await];
    let far = external(json!({"url": servers})).expect("served");
    assert_eq!(far.spec(), local.spec());
    assert_eq!(far.entry(), "forage/external-v0");
    let (here, there) = (
        played(local, &TURNS).await,
        played(far.clone(), &TURNS).await,
    );
    assert_eq!((&there.prompt, &there.ending), (&here.prompt, &here.ending));
    assert_eq!(there.tokens, here.tokens);
    assert_eq!(there.environment, "forage/search-r1-v0");
    for (there, here) in there.turns.iter().zip(&here.turns) {
        assert_eq!(
            (&there.kind, &there.observation),
            (&here.kind, &here.observation)
        );
    }
    // The server pays its own score with the last turn.
    let parts = |episode: &Episode| episode.score.clone().expect("scored").parts;
    assert_eq!((parts(&here)["em"], parts(&here)["return"]), (1.0, 0.0));
    assert_eq!((parts(&there)["em"], parts(&there)["return"]), (1.0, 1.0));

    let plan = CheckPlan::of(find("external").expect("registered"));
    let rewards = RewardSet::exact_match();
    let checked = plan
        .check(far.as_ref(), &[task()], &rewards, Seed::root(0))
        .await;
    assert_eq!(checked, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oracle_writes_the_turns_that_a_question_brings() {
    let shown = TURNS.map(|turn| OracleHop {
        query: turn.to_owned(),
        finding: String::new(),
    });
    let brings = Task {
        oracle: shown.into(),
        ..task()
    };
    let local = factory(settings(), library());
    let far = external(json!({"url": serve(local).await})).expect("served");
    let entry = find("external").expect("registered");
    // The queries of a question for another environment are not turns.
    for (task, expected) in [(brings, 3), (task(), 1)] {
        let cast = Cast::new(Arc::new(ByteTokenizer), [Arc::new(task.clone())]);
        let oracle = entry.script(ScriptEntry::ORACLE, cast).expect("a script");
        let rollout = rollout(oracle, far.clone());
        let episode = rollout.run(jobs(task, 1)).await.remove(0);
        assert_eq!(
            (episode.turns.len(), episode.reward()),
            (expected, Some(1.0))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_there_is_a_fault_of_the_environment() {
    let dead = factory(settings(), Arc::new(Down));
    let far = external(json!({"url": serve(dead).await})).expect("served");
    let episode = played(far, &TURNS).await;
    let Ending::Infra { boundary, message } = &episode.ending else {
        panic!("{:?}", episode.ending)
    };
    assert_eq!(*boundary, Boundary::Environment);
    assert!(
        message.contains("the retriever failed") && message.contains("after 1 attempt"),
        "{message}"
    );
    assert!(episode.score.is_none() && episode.turns.is_empty());
}

/// A server with fixed answers, and the number of its steps.
async fn fixed(info: Value, (status, body): (u16, impl ToString)) -> (String, Arc<AtomicUsize>) {
    let steps = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&steps);
    let reset = |body: String| async move {
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(body["task"], json!(task()), "the whole task");
        json!({"observation": {"text": "Begin."}}).to_string()
    };
    let status = StatusCode::from_u16(status).expect("a status");
    let step = (status, body.to_string());
    let step = move || {
        count.fetch_add(1, Ordering::SeqCst);
        let step = step.clone();
        async move { step }
    };
    let asked = json!({"tasks": [task()]}).to_string();
    let router = Router::new()
        .route("/info", get(move || async move { info.to_string() }))
        .route("/reset", post(reset))
        .route("/step", post(step))
        .route("/questions", post(move || async move { asked }));
    (listen(router).await, steps)
}

async fn listen(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// A server that says these limits and refuses with a status the turns that it does not take.
async fn choosy(limits: Value, status: u16, takes: fn(&Value) -> bool) -> String {
    let mut told = info(&json!({"max_turn_tokens": 4000, "max_episode_tokens": 16000}));
    told["limits"] = limits;
    let kind = json!({"kind": "invalid", "fault": "no tag"});
    let taken = json!({"observation": {"text": "On.", "info": {"kind": kind}}, "reward": 0});
    let refused = StatusCode::from_u16(status).expect("a status");
    let step = move |body: String| {
        let body: Value = serde_json::from_str(&body).expect("JSON");
        let answer = if takes(&body["action"]) {
            (StatusCode::OK, taken.to_string())
        } else {
            (refused, "not such a turn".to_owned())
        };
        async move { answer }
    };
    let begun = || async { json!({"observation": {"text": "Begin."}}).to_string() };
    let router = Router::new()
        .route("/info", get(move || async move { told.to_string() }))
        .route("/reset", post(begun))
        .route("/step", post(step))
        .route("/close", post(|| async {}));
    listen(router).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_the_server_does_not_take_is_the_policys_doing() {
    let long = format!("{} <answer>Velm</answer>", "x".repeat(2000));
    let all: fn(&Value) -> bool = |_| true;
    let short: fn(&Value) -> bool = |action| {
        action["text"]
            .as_str()
            .is_some_and(|text| text.len() < 1000)
    };
    for (limits, status, takes, part) in [
        (json!({"action_bytes": 1000}), 413, all, "at most 1000"),
        (json!({"body_bytes": 1500}), 413, all, "as JSON has"),
        (json!({}), 400, short, "HTTP status 400"),
        (json!({}), 413, short, "HTTP status 413"),
        (json!({}), 422, short, "HTTP status 422"),
    ] {
        let url = choosy(limits, status, takes).await;
        let far = external(json!({"url": url})).expect("served");
        let episode = played(far, &["I wonder", &long]).await;
        let Ending::Malformed { fault } = &episode.ending else {
            panic!("{part}: {:?}", episode.ending)
        };
        assert!(fault.contains(part), "{fault}");
        assert_eq!((episode.turns.len(), episode.reward()), (2, Some(0.0)));
    }
    // A server that takes no turn at all says nothing of this one.
    for status in [400, 413, 422] {
        let url = choosy(json!({}), status, |_| false).await;
        let far = external(json!({"url": url})).expect("served");
        assert!(played(far, &[&long]).await.ending.is_infra(), "{status}");
    }
    // Nor does one that knows no turn without a stop, or whose limits leave room for none.
    let stops: fn(&Value) -> bool = |action| action["finish"] == "stop";
    let cut = "x".repeat(5000);
    for (limits, takes, part) in [
        (json!({}), stops, "HTTP status 422"),
        (json!({"action_bytes": 0}), all, "at most 0"),
        (json!({"body_bytes": 60}), all, "at most 60"),
    ] {
        let url = choosy(limits, 422, takes).await;
        let far = external(json!({"url": url})).expect("served");
        let episode = played(far, &[&cut]).await;
        let Ending::Infra { message, .. } = &episode.ending else {
            panic!("{part}: {:?}", episode.ending)
        };
        assert!(message.contains(part), "{message}");
    }
    // As forage's own server says it.
    let roomy = SearchR1Settings {
        max_turn_tokens: 300_000,
        max_episode_tokens: 400_000,
        ..settings()
    };
    let far = external(json!({"url": serve(factory(roomy, library())).await})).expect("served");
    let episode = played(far, &[&"x".repeat(262_145)]).await;
    assert!(
        format!("{:?}", episode.ending).contains("262145 bytes, at most 262144"),
        "{:?}",
        episode.ending
    );
    assert_eq!(episode.reward(), Some(0.0));
}

fn info(changes: &Value) -> Value {
    let mut spec = json!({
        "id": "mine/guess-v0", "max_turns": 4, "max_turn_tokens": 64, "max_episode_tokens": 512, "stop": ["</answer>"],
    });
    for (key, value) in changes.as_object().expect("changes") {
        spec[key] = value.clone();
    }
    json!({"spec": spec, "takes_tasks": true})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_servers_limits_questions_and_rewards_are_taken() {
    let kind = json!({"kind": "answer", "answer": "Velm"});
    let end = json!({"observation": {"text": "", "terminated": true, "info": {"kind": kind}}, "reward": 2.5});
    let (url, _) = fixed(info(&json!({})), (200, end)).await;
    let written = json!({"url": url, "max_episode_tokens": 256});
    let far = external(written.clone()).expect("served");
    let spec = far.spec();
    assert_eq!(
        (spec.max_turns, spec.stop.as_slice()),
        (4, ["</answer>".to_owned()].as_slice())
    );
    assert_eq!((spec.max_turn_tokens, spec.max_episode_tokens), (64, 256));
    let questions = find("external").expect("registered").questions;
    let questions = questions.expect("the server's");
    let found: Vec<Task> = questions(written, Split::Train, 1, Seed(7)).expect("served");
    assert_eq!(found, [task()]);
    let episode = played(far, &["<answer>Velm</answer>"]).await;
    assert_eq!(
        (episode.prompt.as_str(), episode.reward()),
        ("Begin.", Some(3.5))
    );
    assert_eq!(episode.environment, "mine/guess-v0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_environment_that_failed_is_asked_once_and_a_busy_server_again() {
    // Programs differ in what they write first.
    let why = format!("guess.py:12 in step: ValueError: {}", "no ".repeat(1000));
    let (first, last) = (
        json!({"code": "EXECUTION_ERROR", "cause": "environment", "detail": why}),
        json!({"detail": why, "code": "EXECUTION_ERROR", "cause": "environment"}),
    );
    for failed in [first, last] {
        let (url, steps) = fixed(info(&json!({})), (503, failed)).await;
        let episode = played(external(json!({"url": url})).expect("served"), &TURNS).await;
        assert!(episode.ending.is_infra());
        assert!(format!("{:?}", episode.ending).contains("guess.py:12"));
        assert_eq!(steps.load(Ordering::SeqCst), 1);
    }

    for busy in [
        (503, r#"{"code": "CAPACITY_REACHED"}"#),
        (409, r#"{"code": "SESSION_ERROR", "cause": "busy"}"#),
        (200, r#"{"observation": {"te"#),
    ] {
        let (url, steps) = fixed(info(&json!({})), busy).await;
        let http = json!({"attempts": 3, "backoff_ms": 1});
        let far = external(json!({"url": url, "http": http})).expect("served");
        assert!(played(far, &TURNS).await.ending.is_infra());
        assert_eq!(steps.load(Ordering::SeqCst), 3);
    }

    let (url, steps) = fixed(info(&json!({})), (200, json!({"observation": 7}))).await;
    let episode = played(external(json!({"url": url})).expect("served"), &TURNS).await;
    assert!(format!("{:?}", episode.ending).contains("does not fit the protocol"));
    assert_eq!(
        steps.load(Ordering::SeqCst),
        1,
        "the shape stays what it is"
    );

    let kind = json!({"kind": "invalid", "fault": "no tag"});
    for (half, missing) in [
        (json!({"text": "more"}), "no `info.kind`"),
        (
            json!({"text": "more", "info": {"kind": kind}}),
            "no `reward`",
        ),
    ] {
        let answer = (200, json!({"observation": half}));
        let (url, _) = fixed(info(&json!({})), answer).await;
        let episode = played(external(json!({"url": url})).expect("served"), &TURNS).await;
        assert!(format!("{:?}", episode.ending).contains(missing));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_takes_too_long_names_the_settings() {
    let told = info(&json!({}));
    let begun = || async { json!({"observation": {"text": "Begin."}}).to_string() };
    let router = Router::new()
        .route("/info", get(move || async move { told.to_string() }))
        .route("/reset", post(begun))
        .route("/step", post(std::future::pending::<String>));
    let busy = (409, r#"{"code": "SESSION_ERROR", "cause": "busy"}"#);
    let (busy, _) = fixed(info(&json!({})), busy).await;
    for (url, part) in [
        (listen(router).await, "/step: no answer within"),
        (busy, "/step: HTTP status 409"),
    ] {
        let http = json!({"timeout_ms": 1000, "attempts": 1});
        let far = external(json!({"url": url, "http": http})).expect("served");
        let episode = played(far, &TURNS).await;
        let Ending::Infra { message, .. } = &episode.ending else {
            panic!("{:?}", episode.ending)
        };
        for part in [
            part,
            "environment.settings.http.timeout_ms",
            "--env-workers",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_played_is_refused_with_the_reason() {
    let refused = |settings: Value| {
        let error = external(settings).err().expect("refused");
        let cause = std::error::Error::source(&error).expect("a cause");
        format!("{error}: {cause}")
    };
    assert!(refused(json!({})).contains("--env-command"));
    assert!(
        refused(json!({"url": "http://127.0.0.1:9", "max_turn_tokens": 0})).contains("at least 1")
    );
    assert!(refused(json!({"url": "localhost"})).contains("http://HOST:PORT"));
    let http = json!({"attempts": 1});
    let absent = refused(json!({"url": "http://127.0.0.1:9", "http": http}));
    for part in ["cannot connect", "started it by --env-command"] {
        assert!(absent.contains(part), "{part}: {absent}");
    }
    let end = || (200, json!({}));
    for (changes, reason) in [
        (json!({"outcome": "query"}), "judged by a ranking"),
        (json!({"id": ""}), "its id is empty"),
        (json!({"max_turns": 0}), "at least 1"),
        (json!({"stop": [""]}), "leave it out"),
        (json!({"stop": "x"}), "does not fit the protocol"),
    ] {
        let (url, _) = fixed(info(&changes), end()).await;
        let found = refused(json!({"url": url, "http": {"backoff_ms": 1}}));
        assert!(found.contains(reason), "{found}");
    }
    let (one, _) = fixed(info(&json!({})), end()).await;
    let (other, _) = fixed(info(&json!({"max_turns": 5})), end()).await;
    assert!(refused(json!({"url": [one, other]})).contains("different environments"));
}

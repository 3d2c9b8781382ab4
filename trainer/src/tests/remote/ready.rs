//! Waiting for a server, and noticing that it is not the one meant.

use std::time::{Duration, Instant};

use forage_trainer::{RemoteConfig, RemoteError, RemoteKind, RemotePolicy};
use serde_json::json;
use tokio::net::TcpListener;

use super::fake::Fake;
use super::model::Model;
use super::support::{KINDS, config};

async fn refused(config: &RemoteConfig) -> String {
    let error = RemotePolicy::connect(config).await.unwrap_err();
    assert!(matches!(error, RemoteError::NotReady { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_server_that_never_comes_is_waited_for_and_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    for kind in KINDS {
        let config = RemoteConfig {
            ready_timeout_s: 0.4,
            ..config(kind, &url)
        };
        let started = Instant::now();
        let error = refused(&config).await;
        // It accepts and says nothing: a stall, not a refusal.
        assert!(
            started.elapsed() >= Duration::from_millis(300)
                && started.elapsed() < Duration::from_secs(20)
        );
        assert!(
            error.contains(&url) && error.contains("ready_timeout_s"),
            "{error}"
        );
    }
    drop(listener);
    let error = refused(&RemoteConfig {
        ready_timeout_s: 0.2,
        ..config(RemoteKind::Sglang, &url)
    })
    .await;
    assert!(
        error.contains(&url) && error.contains("cannot connect"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_is_starting_is_waited_for() {
    for (kind, path) in KINDS.into_iter().zip(["/v1/models", "/get_model_info"]) {
        let (fake, url) = Fake::new(Model::Hash).serve().await;
        fake.broken
            .lock()
            .unwrap()
            .insert(path.into(), (503, json!({"error": "loading"})));
        let config = config(kind, &url);
        let connecting = tokio::spawn(async move { RemotePolicy::connect(&config).await });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!connecting.is_finished());
        fake.broken.lock().unwrap().clear();
        connecting.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn waiting_ends_at_once_where_it_cannot_help() {
    let (fake, url) = Fake {
        token: Some("right".into()),
        ..Fake::new(Model::Hash)
    }
    .serve()
    .await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "right").unwrap();
    let with_token = |kind| RemoteConfig {
        token_file: Some(file.path().to_owned()),
        ..config(kind, &url)
    };
    let started = Instant::now();
    let error = refused(&config(RemoteKind::Vllm, &url)).await;
    assert!(
        error.contains("401") && error.contains("token_file"),
        "{error}"
    );
    let named = RemoteConfig {
        model: Some("huge".into()),
        ..with_token(RemoteKind::Vllm)
    };
    let error = refused(&named).await;
    assert!(error.contains("no model `huge` but tiny"), "{error}");
    let error = refused(&RemoteConfig {
        context: 513,
        ..with_token(RemoteKind::Vllm)
    })
    .await;
    assert!(error.contains("--max-model-len 513"), "{error}");
    fake.broken.lock().unwrap().insert(
        "/get_model_info".into(),
        (404, json!({"detail": "Not Found"})),
    );
    let error = refused(&with_token(RemoteKind::Sglang)).await;
    assert!(error.contains("kind = \"vllm\""), "{error}");
    fake.broken
        .lock()
        .unwrap()
        .insert("/v1/models".into(), (200, json!("hello")));
    let error = refused(&with_token(RemoteKind::Vllm)).await;
    assert!(error.contains("kind = \"sglang\""), "{error}");
    fake.broken
        .lock()
        .unwrap()
        .insert("/v1/models".into(), (308, json!("moved")));
    let error = refused(&with_token(RemoteKind::Vllm)).await;
    assert!(
        error.contains("HTTP status 308") && !error.contains("ready_timeout_s"),
        "{error}"
    );
    let embeds = json!({"model_path": "e5", "is_generation": false});
    fake.broken
        .lock()
        .unwrap()
        .insert("/get_model_info".into(), (200, embeds));
    let error = refused(&with_token(RemoteKind::Sglang)).await;
    assert!(error.contains("`e5` does not generate"), "{error}");
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "not the 20 s it would wait"
    );
}

#[tokio::test]
async fn settings_that_cannot_be_right_are_named() {
    let fine = config(RemoteKind::Vllm, "http://localhost:1");
    let read: RemoteConfig = serde_json::from_value(
        json!({"kind": "vllm", "url": "http://h", "model": "m", "context": 9}),
    )
    .unwrap();
    assert_eq!(
        read,
        RemoteConfig {
            model: Some("m".into()),
            ..RemoteConfig::new(RemoteKind::Vllm, "http://h", 9)
        }
    );
    let misspelt = serde_json::from_value::<RemoteConfig>(
        json!({"kind": "vllm", "url": "http://h", "context": 9, "retry": 1}),
    );
    assert!(misspelt.unwrap_err().to_string().contains("retry"));
    let empty = tempfile::NamedTempFile::new().unwrap();
    let control = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(control.path(), "two\nlines").unwrap();
    let cases = [
        (
            "url",
            RemoteConfig {
                url: vec!["localhost:8000".into()],
                ..fine.clone()
            },
        ),
        (
            "url",
            RemoteConfig {
                url: vec!["http://h/v1".into()],
                ..fine.clone()
            },
        ),
        (
            "url",
            RemoteConfig {
                url: vec!["http://user:word@h".into()],
                ..fine.clone()
            },
        ),
        (
            "url",
            RemoteConfig {
                url: Vec::new(),
                ..fine.clone()
            },
        ),
        (
            "url",
            RemoteConfig {
                url: ["http://h", "http://h/"].map(str::to_owned).to_vec(),
                ..fine.clone()
            },
        ),
        (
            "model",
            RemoteConfig {
                model: None,
                ..fine.clone()
            },
        ),
        (
            "model",
            RemoteConfig {
                kind: RemoteKind::Sglang,
                ..fine.clone()
            },
        ),
        (
            "context",
            RemoteConfig {
                context: 1,
                ..fine.clone()
            },
        ),
        (
            "request_timeout_s",
            RemoteConfig {
                request_timeout_s: 0.0,
                ..fine.clone()
            },
        ),
        (
            "push_timeout_s",
            RemoteConfig {
                push_timeout_s: f64::NAN,
                ..fine.clone()
            },
        ),
        (
            "give_up_after",
            RemoteConfig {
                give_up_after: 0,
                ..fine.clone()
            },
        ),
        (
            "token_file",
            RemoteConfig {
                token_file: Some("/no/such/file".into()),
                ..fine.clone()
            },
        ),
        (
            "token_file",
            RemoteConfig {
                token_file: Some(empty.path().to_owned()),
                ..fine.clone()
            },
        ),
        (
            "token_file",
            RemoteConfig {
                token_file: Some(control.path().to_owned()),
                ..fine.clone()
            },
        ),
    ];
    for (key, config) in cases {
        let error = RemotePolicy::connect(&config).await.unwrap_err();
        assert!(
            matches!(&error, RemoteError::Setting { key: named, .. } if *named == key),
            "{key}: {error:?}"
        );
    }
}

//! New weights on the server, and the versions of what is sampled around them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forage_contracts::policy::{Completion, Policy, PolicyError};
use forage_trainer::remote::{Probe, PushKind};
use forage_trainer::{RemoteError, RemoteFault, RemoteKind, RemotePolicy};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::fake::{Fake, Fault};
use super::model::Model;
use super::support::{KINDS, config, connected, expected, request};

/// Folders without weights: nothing is asked about them.
const UNASKED: Probe<'static> = Probe {
    texts: &[],
    drawn: 1,
    own: &|_, _| Vec::new(),
    bound: 0.0,
};

fn adapter(content: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("adapter_config.json"), "{}").unwrap();
    std::fs::write(folder.path().join("adapter_model.safetensors"), content).unwrap();
    folder
}

fn whole() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    folder
}

fn text(folder: &TempDir) -> String {
    folder.path().to_str().unwrap().to_owned()
}

fn adapters(fake: &Fake) -> Vec<(String, String)> {
    fake.adapters.lock().unwrap().clone().into_iter().collect()
}

/// Asks for a completion that the server holds until it is let go.
async fn under_way(
    fake: &Fake,
    policy: &Arc<RemotePolicy>,
) -> JoinHandle<Result<Completion, PolicyError>> {
    let mut held = fake.held.subscribe();
    let before = *held.borrow_and_update();
    fake.inject([Fault::Held]);
    let policy = Arc::clone(policy);
    let task = tokio::spawn(async move { policy.generate(request(5)).await });
    held.wait_for(|&held| held > before).await.unwrap();
    task
}

/// Waits until the server was asked for something.
async fn asked(fake: &Fake, path: &str) {
    while !fake
        .calls
        .lock()
        .unwrap()
        .iter()
        .any(|(called, _)| called == path)
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

const PAUSE: &str = "/pause?mode=wait&wait_for_inflight_requests=true";

fn versioned(completion: Completion, version: u64) -> Completion {
    Completion {
        version,
        ..completion
    }
}

#[tokio::test]
async fn an_adapter_serves_the_requests_after_it_and_the_one_before_those_under_way() {
    for kind in KINDS {
        let (fake, policy) = connected(kind).await;
        let folders = ["one", "two", "three", "four"].map(adapter);
        let mut before = "base".to_owned();
        for (version, folder) in (1..).zip(&folders) {
            let task = under_way(&fake, &policy).await;
            policy.servers()[0]
                .push(folder.path(), version, PushKind::Adapter, &UNASKED)
                .await
                .unwrap();
            assert_eq!(policy.version(), version, "{kind:?}");
            let loaded = adapters(&fake);
            let (name, _) = loaded
                .iter()
                .find(|(_, path)| *path == text(folder))
                .unwrap();
            assert!(name.starts_with(&format!("forage-{version}-")), "{name}");
            let after = policy.generate(request(6)).await.unwrap();
            assert_eq!(
                after,
                versioned(expected(&request(6), name), version),
                "{kind:?}"
            );
            // Neither the push nor what came after it waited.
            assert!(!task.is_finished(), "{kind:?}");
            fake.gate.add_permits(1);
            let old = task.await.unwrap().unwrap();
            assert_eq!(
                old,
                versioned(expected(&request(5), &before), version - 1),
                "{kind:?}"
            );
            // The present one and the one before; nobody can be under way under older ones.
            assert_eq!(loaded.len(), 2.min(version as usize), "{kind:?}");
            before.clone_from(name);
        }
        assert_eq!(policy.servers()[0].stats().pushes, 4);
    }
}

#[tokio::test]
async fn an_adapter_the_server_has_already_comes_anew() {
    for kind in KINDS {
        let (fake, url) = Fake {
            old: true,
            ..Fake::new(Model::Hash)
        }
        .serve()
        .await;
        let folder = adapter("same");
        for _ in 0..2 {
            // The second run resumes at the same version with the same adapter.
            let policy = RemotePolicy::connect(&config(kind, &url)).await.unwrap();
            fake.take_calls();
            policy.servers()[0]
                .push(folder.path(), 3, PushKind::Adapter, &UNASKED)
                .await
                .unwrap();
            policy.servers()[0]
                .push(folder.path(), 3, PushKind::Adapter, &UNASKED)
                .await
                .unwrap();
            assert_eq!(adapters(&fake).len(), 1, "{kind:?}");
            assert_eq!(policy.version(), 3);
        }
        // Another run's adapter of the same version has another name.
        let policy = RemotePolicy::connect(&config(kind, &url)).await.unwrap();
        policy.servers()[0]
            .push(adapter("other").path(), 3, PushKind::Adapter, &UNASKED)
            .await
            .unwrap();
        assert_eq!(adapters(&fake).len(), 2, "{kind:?}");
    }
}

#[tokio::test]
async fn vllm_replaces_whole_weights_in_a_pause() {
    let (fake, policy) = connected(RemoteKind::Vllm).await;
    let folder = whole();
    let task = under_way(&fake, &policy).await;
    let pushing = tokio::spawn({
        let (policy, path) = (Arc::clone(&policy), folder.path().to_owned());
        async move {
            policy.servers()[0]
                .push(&path, 4, PushKind::Full, &UNASKED)
                .await
        }
    });
    asked(&fake, PAUSE).await;
    // Comes in the pause and is sampled after it; what is known of it when it is sent is the old version.
    let between = tokio::spawn({
        let policy = Arc::clone(&policy);
        async move { policy.generate(request(6)).await }
    });
    while policy.servers()[0].stats().requests < 2 {
        tokio::task::yield_now().await;
    }
    fake.gate.add_permits(1);
    let between = between.await.unwrap().unwrap();
    assert_eq!(between, versioned(expected(&request(6), &text(&folder)), 0));
    pushing.await.unwrap().unwrap();
    assert_eq!(task.await.unwrap().unwrap(), expected(&request(5), "base"));
    let after = policy.generate(request(7)).await.unwrap();
    assert_eq!(after, versioned(expected(&request(7), &text(&folder)), 4));
    let mut steps: Vec<String> = fake
        .take_calls()
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    steps.retain(|path| path != "/v1/completions");
    assert_eq!(
        steps,
        [PAUSE, "/collective_rpc", "/reset_prefix_cache", "/resume"]
    );
}

#[tokio::test]
async fn sglang_says_under_which_weights_it_sampled() {
    let (fake, policy) = connected(RemoteKind::Sglang).await;
    let folder = whole();
    assert_eq!(
        policy.generate(request(1)).await.unwrap().version,
        0,
        "`default` is not ours yet"
    );
    let task = under_way(&fake, &policy).await;
    let pushing = tokio::spawn({
        let (policy, path) = (Arc::clone(&policy), folder.path().to_owned());
        async move {
            policy.servers()[0]
                .push(&path, 4, PushKind::Full, &UNASKED)
                .await
        }
    });
    asked(&fake, "/update_weights_from_disk").await;
    fake.gate.add_permits(1);
    let (between, pushed) = tokio::join!(policy.generate(request(6)), pushing);
    pushed.unwrap().unwrap();
    // It was sent under 0, but the server was at it already.
    let sampled = between.unwrap();
    let name = if sampled.version == 4 {
        text(&folder)
    } else {
        "base".to_owned()
    };
    assert_eq!(
        sampled,
        versioned(expected(&request(6), &name), sampled.version)
    );
    assert_eq!(task.await.unwrap().unwrap(), expected(&request(5), "base"));
    let after = policy.generate(request(7)).await.unwrap();
    assert_eq!(after, versioned(expected(&request(7), &text(&folder)), 4));

    // A request whose weights were replaced under it, as the server tells.
    fake.inject([Fault::Change(|answer| {
        answer["meta_info"]["weight_version"] = "3".into();
    })]);
    assert_eq!(policy.generate(request(7)).await.unwrap().version, 3);
    // A server that was restarted, or has another master: never version 4.
    for other in ["default", "5"] {
        fake.weights.lock().unwrap().1 = other.to_owned();
        let Err(PolicyError::Malformed(message)) = policy.generate(request(7)).await else {
            panic!("refused")
        };
        assert!(
            message.contains(&format!("`{other}`")) && message.contains("restarted"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_failure_inside_a_success_is_one() {
    for (kind, path) in KINDS
        .into_iter()
        .zip(["/v1/load_lora_adapter", "/load_lora_adapter"])
    {
        let (fake, policy) = connected(kind).await;
        fake.broken.lock().unwrap().insert(
            path.into(),
            (200, json!({"success": false, "error_message": "rank 99"})),
        );
        let error = policy.servers()[0]
            .push(adapter("x").path(), 1, PushKind::Adapter, &UNASKED)
            .await
            .unwrap_err();
        let RemoteError::Call {
            fault: RemoteFault::Refused(what),
            ..
        } = &error
        else {
            panic!("{error:?}")
        };
        assert!(what.contains("rank 99"), "{what}");
        assert_eq!(
            (
                policy.version(),
                policy.servers()[0].stats().refused,
                policy.servers()[0].stats().pushes
            ),
            (0, 1, 0),
            "{kind:?}"
        );
        // Nothing changed there, so the old weights go on.
        assert_eq!(
            policy.generate(request(1)).await.unwrap(),
            expected(&request(1), "base"),
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn whole_weights_replaced_in_part_are_not_sampled_from() {
    let cases = [
        (RemoteKind::Vllm, "/collective_rpc", 500),
        (RemoteKind::Vllm, "/reset_prefix_cache", 500),
        (RemoteKind::Sglang, "/update_weights_from_disk", 200),
    ];
    for (kind, path, status) in cases {
        let (fake, policy) = connected(kind).await;
        fake.broken.lock().unwrap().insert(
            path.into(),
            (status, json!({"success": false, "message": "no space"})),
        );
        let task = under_way(&fake, &policy).await;
        fake.gate.add_permits(1);
        let error = policy.servers()[0]
            .push(whole().path(), 2, PushKind::Full, &UNASKED)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no space"), "{error}");
        let Err(PolicyError::Gone(message)) = policy.generate(request(1)).await else {
            panic!("{kind:?}: refused")
        };
        assert!(message.contains("version 2 failed midway"), "{message}");
        drop(task.await.unwrap());
        assert_eq!(policy.version(), 0);
        // A push that succeeds brings it back; a vLLM left paused would not answer.
        fake.broken.lock().unwrap().clear();
        let folder = whole();
        policy.servers()[0]
            .push(folder.path(), 3, PushKind::Full, &UNASKED)
            .await
            .unwrap();
        let completion = policy.generate(request(1)).await.unwrap();
        assert_eq!(
            completion,
            versioned(expected(&request(1), &text(&folder)), 3),
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn a_push_survives_a_passing_fault_and_says_what_the_server_lacks() {
    for (kind, path) in KINDS
        .into_iter()
        .zip(["/v1/load_lora_adapter", "/load_lora_adapter"])
    {
        let (fake, policy) = connected(kind).await;
        fake.broken
            .lock()
            .unwrap()
            .insert(path.into(), (503, json!("busy")));
        let folder = adapter("x");
        let pushing = tokio::spawn({
            let (policy, path) = (Arc::clone(&policy), folder.path().to_owned());
            async move {
                policy.servers()[0]
                    .push(&path, 1, PushKind::Adapter, &UNASKED)
                    .await
            }
        });
        while policy.servers()[0].stats().retries == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        fake.broken.lock().unwrap().clear();
        pushing.await.unwrap().unwrap();
        assert_eq!(policy.version(), 1);
        fake.broken
            .lock()
            .unwrap()
            .insert(path.into(), (404, json!({"detail": "Not Found"})));
        let error = policy.servers()[0]
            .push(folder.path(), 2, PushKind::Adapter, &UNASKED)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("--enable-lora"), "{error}");
    }
}

#[tokio::test]
async fn folders_that_cannot_be_pushed_are_named() {
    let (fake, policy) = connected(RemoteKind::Vllm).await;
    let (empty, missing) = (tempfile::tempdir().unwrap(), Path::new("/no/such/folder"));
    let cases = [
        (missing, PushKind::Full, "not a folder"),
        (empty.path(), PushKind::Full, "config.json"),
        (empty.path(), PushKind::Adapter, "adapter_config.json"),
    ];
    for (folder, kind, word) in cases {
        let error = policy.servers()[0]
            .push(folder, 1, kind, &UNASKED)
            .await
            .unwrap_err();
        assert!(matches!(error, RemoteError::Folder { .. }), "{error:?}");
        let message = error.to_string();
        assert!(
            message.contains(folder.to_str().unwrap()) && message.contains(word),
            "{message}"
        );
    }
    assert_eq!(fake.take_calls().len(), 0);
}

//! Every fault is tried again where that can help, and ends typed and counted where it cannot.

use std::time::{Duration, Instant};

use forage_contracts::policy::{Policy, PolicyError};
use forage_trainer::remote::RemoteStats;
use forage_trainer::{RemoteError, RemoteFault, RemoteKind, RemotePolicy};
use serde_json::{Value, json};

use super::fake::{Fake, Fault};
use super::model::Model;
use super::support::{KINDS, config, connected, expected, hurried, request};

/// Place of the log-probabilities in an answer of either kind.
fn logprobs(answer: &mut Value) -> &mut Vec<Value> {
    let place = if answer.get("choices").is_some() {
        "/choices/0/logprobs/token_logprobs"
    } else {
        "/meta_info/output_token_logprobs"
    };
    answer.pointer_mut(place).unwrap().as_array_mut().unwrap()
}

fn ids(answer: &mut Value) -> &mut Vec<Value> {
    let place = if answer.get("choices").is_some() {
        "/choices/0/token_ids"
    } else {
        "/output_ids"
    };
    answer.pointer_mut(place).unwrap().as_array_mut().unwrap()
}

fn set_logprob(answer: &mut Value, number: Value) {
    match &mut logprobs(answer)[0] {
        Value::Array(pair) => pair[0] = number,
        place => *place = number,
    }
}

fn end(answer: &mut Value, kind: &str) {
    if answer.get("choices").is_some() {
        answer["choices"][0]["finish_reason"] = kind.into();
    } else {
        answer["meta_info"]["finish_reason"] =
            json!({"type": kind, "message": "weights are updated"});
    }
}

/// How often each counter of a fault must have been raised.
fn faults(stats: &RemoteStats) -> [u64; 8] {
    let RemoteStats {
        unreachable,
        timeouts,
        statuses,
        malformed,
        counts,
        logprobs,
        aborted,
        refused,
        ..
    } = *stats;
    [
        unreachable,
        timeouts,
        statuses,
        malformed,
        counts,
        logprobs,
        aborted,
        refused,
    ]
}

/// Where nothing stalls, a busy machine must not look as if.
fn patience(name: &str) -> f64 {
    if name == "stall" { 0.4 } else { 20.0 }
}

type Case = (&'static str, fn() -> Fault, usize, fn(&PolicyError) -> bool);

/// Name, fault, place of its counter, and what it becomes in the end.
const PASSING: [Case; 22] = {
    const UNAVAILABLE: fn(&PolicyError) -> bool =
        |error| matches!(error, PolicyError::Unavailable(_));
    const MALFORMED: fn(&PolicyError) -> bool = |error| matches!(error, PolicyError::Malformed(_));
    const NON_FINITE: fn(&PolicyError) -> bool = |error| matches!(error, PolicyError::NonFinite(_));
    [
        ("reset", || Fault::Reset, 0, UNAVAILABLE),
        ("broken off", || Fault::BreakOff, 0, UNAVAILABLE),
        ("stall", || Fault::Stall, 1, UNAVAILABLE),
        ("500", || Fault::Status(500), 2, UNAVAILABLE),
        ("502", || Fault::Status(502), 2, UNAVAILABLE),
        ("429", || Fault::Status(429), 2, UNAVAILABLE),
        ("later", || Fault::Later(0), 2, UNAVAILABLE),
        (
            "html",
            || Fault::Body("<html><body>Bad gateway</body></html>"),
            3,
            MALFORMED,
        ),
        (
            "half",
            || Fault::Body("{\"choices\": [{\"text\""),
            3,
            MALFORMED,
        ),
        ("empty", || Fault::Body(""), 3, MALFORMED),
        (
            "another object",
            || Fault::Body("{\"choices\": [], \"output_ids\": []}"),
            3,
            MALFORMED,
        ),
        (
            "a NaN",
            || Fault::Change(|answer| set_logprob(answer, "NaN".into())),
            3,
            MALFORMED,
        ),
        (
            "a negative id",
            || Fault::Change(|answer| ids(answer)[0] = (-1).into()),
            3,
            MALFORMED,
        ),
        (
            "unknown end",
            || Fault::Change(|answer| end(answer, "tired")),
            3,
            MALFORMED,
        ),
        (
            "one id less",
            || Fault::Change(|answer| drop(ids(answer).pop())),
            4,
            MALFORMED,
        ),
        (
            "one logprob less",
            || Fault::Change(|answer| drop(logprobs(answer).pop())),
            4,
            MALFORMED,
        ),
        (
            "no tokens",
            || {
                Fault::Change(|answer| {
                    ids(answer).clear();
                    logprobs(answer).clear();
                })
            },
            4,
            MALFORMED,
        ),
        (
            "too many",
            || {
                Fault::Change(|answer| {
                    let (id, logprob) = (ids(answer)[0].clone(), logprobs(answer)[0].clone());
                    *ids(answer) = vec![id; 41];
                    *logprobs(answer) = vec![logprob; 41];
                })
            },
            4,
            MALFORMED,
        ),
        (
            "null",
            || Fault::Change(|answer| set_logprob(answer, Value::Null)),
            5,
            NON_FINITE,
        ),
        (
            "positive",
            || Fault::Change(|answer| set_logprob(answer, 0.5.into())),
            5,
            NON_FINITE,
        ),
        (
            "beyond f32",
            || Fault::Change(|answer| set_logprob(answer, (-1e300).into())),
            5,
            NON_FINITE,
        ),
        (
            "abort",
            || Fault::Change(|answer| end(answer, "abort")),
            6,
            UNAVAILABLE,
        ),
    ]
};

#[tokio::test]
async fn tokens_beyond_the_policy_s_vocabulary_are_refused() {
    for kind in KINDS {
        let (_fake, url) = Fake::new(Model::Hash).serve().await;
        let policy = RemotePolicy::connect(&config(kind, &url)).await.unwrap();
        let policy = policy.of_vocabulary(97);
        let error = policy.generate(request(1)).await.unwrap_err();
        assert!(
            matches!(&error, PolicyError::Malformed(words) if words.contains("vocabulary ends at 97")),
            "{error:?}"
        );
        assert_eq!(policy.servers()[0].stats().counts, 4);
    }
}

#[tokio::test]
async fn a_passing_fault_is_mended_by_the_next_try() {
    for kind in KINDS {
        for (name, fault, counter, _) in PASSING {
            let (fake, policy) = hurried(kind, patience(name)).await;
            fake.inject([fault(), fault()]);
            let request = request(2);
            let completion = policy.generate(request.clone()).await;
            assert_eq!(
                completion.unwrap(),
                expected(&request, "base"),
                "{kind:?} {name}"
            );
            let stats = policy.servers()[0].stats();
            let mut counted = [0; 8];
            counted[counter] = 2;
            assert_eq!(faults(&stats), counted, "{kind:?} {name}");
            assert_eq!(
                (stats.requests, stats.completed, stats.failed, stats.retries),
                (1, 1, 0, 2),
                "{kind:?} {name}"
            );
        }
    }
}

#[tokio::test]
async fn a_fault_that_stays_ends_typed_after_the_tries() {
    for kind in KINDS {
        for (name, fault, counter, becomes) in PASSING {
            let (fake, policy) = hurried(kind, patience(name)).await;
            fake.inject((0..4).map(|_| fault()));
            let error = policy.generate(request(2)).await.unwrap_err();
            assert!(becomes(&error), "{kind:?} {name}: {error:?}");
            assert!(error.to_string().contains("try 4"), "{error}");
            let stats = policy.servers()[0].stats();
            let mut counted = [0; 8];
            counted[counter] = 4;
            assert_eq!(faults(&stats), counted, "{kind:?} {name}");
            assert_eq!(
                (stats.completed, stats.failed, stats.retries),
                (0, 1, 3),
                "{kind:?} {name}"
            );
            // The next one is as good as ever.
            let request = request(3);
            assert_eq!(
                policy.generate(request.clone()).await.unwrap(),
                expected(&request, "base"),
                "{kind:?} {name}"
            );
        }
    }
}

#[tokio::test]
async fn answers_to_another_prompt_or_with_two_opinions_are_refused() {
    let (fake, policy) = connected(RemoteKind::Vllm).await;
    fake.inject(
        (0..4).map(|_| {
            Fault::Change(|answer| answer["choices"][0]["prompt_token_ids"][0] = 255.into())
        }),
    );
    let Err(PolicyError::Malformed(message)) = policy.generate(request(2)).await else {
        panic!("refused")
    };
    assert!(message.contains("another prompt"), "{message}");
    let (fake, policy) = connected(RemoteKind::Sglang).await;
    fake.inject((0..4).map(|_| {
        Fault::Change(|answer| answer["meta_info"]["output_token_logprobs"][0][1] = 255.into())
    }));
    let Err(PolicyError::Malformed(message)) = policy.generate(request(2)).await else {
        panic!("refused")
    };
    assert!(message.contains("different ids at token 0"), "{message}");
    fake.inject(
        (0..4).map(|_| Fault::Change(|answer| answer["meta_info"]["prompt_tokens"] = 1.into())),
    );
    let Err(PolicyError::Malformed(message)) = policy.generate(request(2)).await else {
        panic!("refused")
    };
    assert!(message.contains("a prompt of 1 tokens"), "{message}");
}

#[tokio::test]
async fn what_the_server_refuses_is_not_asked_again() {
    for kind in KINDS {
        let (fake, policy) = connected(kind).await;
        for status in [400, 413, 422] {
            fake.inject([Fault::Status(status)]);
            let error = policy.generate(request(1)).await.unwrap_err();
            let PolicyError::BadRequest(message) = &error else {
                panic!("{kind:?} {status}: {error:?}")
            };
            assert!(
                message.contains("on demand") && message.contains("try 1"),
                "{message}"
            );
        }
        for status in [401, 403, 404] {
            fake.inject([Fault::Status(status)]);
            let error = policy.generate(request(1)).await.unwrap_err();
            assert!(
                matches!(error, PolicyError::Unavailable(_)),
                "{kind:?} {status}: {error:?}"
            );
        }
        assert_eq!(
            (
                fake.take_calls().len(),
                policy.servers()[0].stats().retries,
                policy.servers()[0].stats().statuses
            ),
            (6, 0, 6),
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn the_wait_a_server_asks_for_is_kept() {
    let (fake, policy) = connected(RemoteKind::Vllm).await;
    fake.inject([Fault::Later(1)]);
    let started = Instant::now();
    policy.generate(request(1)).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_engine_ends_the_run_and_does_not_hang_it() {
    for kind in KINDS {
        let (fake, url) = Fake::new(Model::Hash).serve().await;
        let mut config = config(kind, &url);
        (config.request_timeout_s, config.retries) = (0.3, 1);
        let policy = RemotePolicy::connect(&config).await.unwrap();
        policy.generate(request(0)).await.unwrap();
        *fake.stalled.lock().unwrap() = true;
        let started = Instant::now();
        let mut errors = Vec::new();
        for number in 0..40 {
            errors.push(policy.generate(request(number)).await.unwrap_err());
        }
        // Four requests of two tries of 0.3 s; the other 36 are not sent.
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{kind:?} {:?}",
            started.elapsed()
        );
        let asked = fake
            .take_calls()
            .iter()
            .filter(|(path, _)| path.ends_with("completions") || path == "/generate")
            .count();
        assert_eq!(asked, 1 + 4 * 2, "{kind:?}");
        assert!(
            errors[..4]
                .iter()
                .all(|error| matches!(error, PolicyError::Unavailable(_))),
            "{errors:?}"
        );
        for error in &errors[4..] {
            let PolicyError::Gone(message) = error else {
                panic!("{error:?}")
            };
            assert!(
                message.contains(&url)
                    && message.contains("4 requests in a row")
                    && message.contains("restart")
            );
        }
        // For good: the run's other requests have been refused.
        *fake.stalled.lock().unwrap() = false;
        assert!(matches!(
            policy.generate(request(0)).await,
            Err(PolicyError::Gone(_))
        ));
        assert_eq!(
            (
                policy.servers()[0].stats().failed,
                policy.servers()[0].stats().timeouts
            ),
            (41, 8)
        );
    }
}

#[tokio::test]
async fn a_success_in_between_keeps_the_server() {
    let (fake, policy) = connected(RemoteKind::Sglang).await;
    for round in 0..5 {
        for _ in 0..3 {
            fake.inject((0..4).map(|_| Fault::Status(500)));
            assert!(matches!(
                policy.generate(request(round)).await,
                Err(PolicyError::Unavailable(_))
            ));
        }
        policy.generate(request(round)).await.unwrap();
    }
    assert_eq!(policy.servers()[0].stats().failed, 15);
}

#[tokio::test]
async fn errors_name_the_address_and_not_the_token() {
    let (fake, url) = Fake {
        token: Some("s3cret".into()),
        ..Fake::new(Model::Hash)
    }
    .serve()
    .await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), " s3cret\n").unwrap();
    let config = forage_trainer::RemoteConfig {
        token_file: Some(file.path().to_owned()),
        retries: 0,
        ..config(RemoteKind::Vllm, &url)
    };
    let policy = RemotePolicy::connect(&config).await.unwrap();
    fake.broken.lock().unwrap().insert(
        "/v1/completions".into(),
        (500, json!({"error": "Bearer s3cret failed"})),
    );
    let error = policy.complete(request(0)).await.unwrap_err();
    let RemoteError::Call {
        url: called,
        tries: 1,
        fault:
            RemoteFault::Net(forage_net::Fault::Status {
                status: 500, body, ..
            }),
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(called, &format!("{url}/v1/completions"));
    assert!(body.contains("[credentials] failed"), "{body}");
    assert!(!format!("{error:?} {policy:?}").contains("s3cret"));
    // Nor where a success cannot be read, wherever the token stands in it.
    let long = format!("{}s3cret", "x".repeat(115));
    for answer in [json!({"error": "Bearer s3cret failed"}), json!(long)] {
        let broken = ("/v1/completions".to_owned(), (200, answer));
        fake.broken.lock().unwrap().extend([broken]);
        let error = policy.complete(request(0)).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("[credentials]"), "{shown}");
        assert!(!shown.contains("s3c"), "{shown}");
    }
}

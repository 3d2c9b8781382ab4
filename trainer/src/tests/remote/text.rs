//! Servers of OpenAI's protocol that tell text alone, each with habits of its own.

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use axum::{Json, Router};
use forage_contracts::policy::{Finish, GenerateRequest, Policy, PolicyError, Reply, Sampling};
use forage_contracts::seed::Seed;
use forage_trainer::{Patience, RemoteError, RemotePolicy};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

/// What was asked, in order.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// Serves until the test's runtime ends.
async fn serve(
    answer: impl Fn(&Value) -> (u16, Value) + Clone + Send + Sync + 'static,
) -> (String, Asked) {
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let handle = move |uri: Uri, body: Bytes| {
        let (answer, seen) = (answer.clone(), Arc::clone(&seen));
        async move {
            if uri.path() == "/v1/models" {
                return Json(json!({"data": [{"id": "tiny"}]})).into_response();
            }
            let body: Value = serde_json::from_slice(&body).unwrap();
            let (status, answer) = answer(&body);
            seen.lock().unwrap().push((uri.path().to_owned(), body));
            let status = StatusCode::from_u16(status).unwrap();
            (status, Json(answer)).into_response()
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(handle);
    tokio::spawn(async move { axum::serve(listener, app).await });
    (base, asked)
}

fn request(stop: &[&str]) -> GenerateRequest {
    GenerateRequest {
        episode: 0,
        tokens: Vec::new(),
        max_tokens: 100,
        stop: stop.iter().map(|&stop| stop.to_owned()).collect(),
        ignore_eos: false,
        sampling: Sampling::FULL,
        seed: Seed::root(3),
    }
}

fn chat() -> Map<String, Value> {
    let messages = json!([{"role": "user", "content": "Who?"}]);
    Map::from_iter([("messages".to_owned(), messages)])
}

fn running(prompt: &str) -> Map<String, Value> {
    Map::from_iter([("prompt".to_owned(), prompt.into())])
}

/// An answer to a chat.
fn said(content: &str, finish: &str) -> Value {
    let message = json!({"role": "assistant", "content": content});
    whole(json!({"index": 0, "message": message, "finish_reason": finish}))
}

fn whole(choice: impl Into<Value>) -> Value {
    let choice = choice.into();
    json!({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}})
}

async fn connected(url: &str) -> Arc<dyn Policy> {
    let patience = Patience::default();
    RemotePolicy::text(url, None, None, &patience)
        .await
        .unwrap()
}

async fn reply(
    policy: &Arc<dyn Policy>,
    conversation: &Map<String, Value>,
    stop: &[&str],
) -> Reply {
    let reply = policy.reply(conversation, request(stop)).await.unwrap();
    reply.expect("room in the window")
}

#[tokio::test]
async fn a_chat_and_a_running_text_are_asked_for_as_they_are() {
    let (url, asked) = serve(|body| {
        (
            200,
            match body.get("prompt") {
                Some(_) => whole(json!({"text": "so", "finish_reason": "length"})),
                None => said("Ada.", "stop"),
            },
        )
    })
    .await;
    let policy = connected(&format!("{url}/v1/")).await;
    assert!(policy.reads_text());
    let found = reply(&policy, &chat(), &[]).await;
    assert_eq!(
        found,
        Reply {
            text: "Ada.".to_owned(),
            message: json!({"role": "assistant", "content": "Ada."}),
            finish: Finish::Eos,
            prompt_tokens: 7,
            completion_tokens: 5,
            version: 0,
        }
    );
    let found = reply(&policy, &running("And"), &[]).await;
    // Fewer tokens than were asked for: the server's window is full.
    assert_eq!((found.text.as_str(), found.finish), ("so", Finish::Context));
    let asked = asked.lock().unwrap();
    let (path, body) = &asked[0];
    assert_eq!(path, "/v1/chat/completions");
    assert_eq!(
        *body,
        json!({"messages": [{"role": "user", "content": "Who?"}], "model": "tiny", "temperature": 1.0, "top_p": 1.0,
            "max_tokens": 100, "seed": Seed::root(3).0 >> 1, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0})
    );
    let (path, body) = &asked[1];
    assert_eq!(
        (path.as_str(), &body["prompt"]),
        ("/v1/completions", &json!("And"))
    );
}

/// What a model writes that nobody stops.
const UNSTOPPED: &str = "<search>x</search> and on";

#[tokio::test]
async fn stop_strings_end_turns_on_every_server() {
    // One keeps them where it is asked to.
    let keeps = |body: &Value| {
        let stops = body.get("include_stop_str_in_output").is_some();
        let text = if stops {
            "<search>x</search>"
        } else {
            UNSTOPPED
        };
        (200, said(text, "stop"))
    };
    let (url, asked) = serve(keeps).await;
    let policy = connected(&url).await;
    for _ in 0..2 {
        let found = reply(&policy, &chat(), &["</search>"]).await;
        assert_eq!(
            (found.text.as_str(), found.finish),
            ("<search>x</search>", Finish::Stop)
        );
        assert_eq!(found.message["content"], "<search>x</search>");
    }
    assert_eq!(asked.lock().unwrap().len(), 2);

    // One cuts them off and does not say so: asked again without them once, it is no more asked for them.
    let (url, asked) = serve(|body: &Value| {
        let text = if body.get("stop").is_some() {
            "<search>x"
        } else {
            UNSTOPPED
        };
        (200, said(text, "stop"))
    })
    .await;
    let policy = connected(&url).await;
    for _ in 0..2 {
        let found = reply(&policy, &chat(), &["</search>", "</answer>"]).await;
        assert_eq!(
            (found.text.as_str(), found.finish),
            ("<search>x</search>", Finish::Stop)
        );
    }
    let stopped = |asked: &Asked| {
        let asked = asked.lock().unwrap();
        let stops = asked.iter().map(|(_, body)| body.get("stop").is_some());
        stops.collect::<Vec<_>>()
    };
    assert_eq!(stopped(&asked), [true, false, false]);

    // One that is never seen to meet any is asked twice for each end.
    let (url, asked) = serve(|_: &Value| (200, said("Done.", "stop"))).await;
    let policy = connected(&url).await;
    let found = reply(&policy, &chat(), &["</search>"]).await;
    assert_eq!((found.text.as_str(), found.finish), ("Done.", Finish::Eos));
    assert_eq!(stopped(&asked), [true, false]);
}

#[tokio::test]
async fn what_a_server_refuses_by_name_is_left_out() {
    let (url, asked) = serve(|body: &Value| {
        for (field, words) in [
            ("top_k", "Unrecognized request argument supplied: top_k"),
            ("seed", "Unsupported parameter: 'seed'"),
            ("max_tokens", "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
        ] {
            if body.get(field).is_some() {
                return (400, json!({"error": {"message": words}}));
            }
        }
        (200, said(UNSTOPPED, "stop"))
    })
    .await;
    let policy = connected(&url).await;
    let found = reply(&policy, &chat(), &["</search>"]).await;
    assert_eq!(found.text, "<search>x</search>");
    assert_eq!(asked.lock().unwrap().len(), 4);
    reply(&policy, &chat(), &["</search>"]).await;
    assert_eq!(asked.lock().unwrap().len(), 5, "it is known by now");
    let (_, body) = asked.lock().unwrap()[4].clone();
    assert_eq!(
        body,
        json!({"messages": [{"role": "user", "content": "Who?"}], "model": "tiny", "temperature": 1.0, "top_p": 1.0,
            "max_completion_tokens": 100})
    );
    // What shapes the sampling is never left out.
    let sampling = Sampling {
        top_k: 5,
        ..Sampling::FULL
    };
    let cut = GenerateRequest {
        sampling,
        ..request(&[])
    };
    let error = policy.reply(&chat(), cut).await.unwrap_err();
    assert!(error.to_string().contains("top_k"), "{error}");
}

#[tokio::test]
async fn a_server_whose_sampling_is_its_own_is_asked_without_and_said_to_be() {
    // As OpenAI's reasoning models do.
    let (url, asked) = serve(|body: &Value| {
        for (field, words) in [
            ("top_k", "Unrecognized request argument supplied: top_k"),
            (
                "max_tokens",
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            ),
            (
                "temperature",
                "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
            ),
            ("top_p", "Unsupported parameter: 'top_p' is not supported with this model."),
        ] {
            if body.get(field).is_some() {
                return (400, json!({"error": {"message": words}}));
            }
        }
        (200, said("Ada.", "stop"))
    })
    .await;
    let policy = connected(&url).await;
    assert_eq!(policy.caveat(), None, "it was not asked yet");
    let greedy = GenerateRequest {
        sampling: Sampling::GREEDY,
        ..request(&[])
    };
    let found = policy.reply(&chat(), greedy).await.unwrap().unwrap();
    assert_eq!(found.text, "Ada.");
    let (_, body) = asked.lock().unwrap()[4].clone();
    assert_eq!(
        body,
        json!({"messages": [{"role": "user", "content": "Who?"}], "model": "tiny", "max_completion_tokens": 100,
            "seed": Seed::root(3).0 >> 1})
    );
    let caveat = policy.caveat().unwrap();
    assert!(
        caveat.contains(&url) && caveat.contains("temperature and top_p"),
        "{caveat}"
    );
}

#[tokio::test]
async fn a_value_that_is_refused_is_not_taken_for_a_field() {
    let (url, asked) = serve(|body: &Value| {
        let words = if body.get("top_p").is_some() {
            "`temperature` and `top_p` cannot both be specified for this model."
        } else if body["temperature"].as_f64() > Some(1.0) {
            "temperature must be at most 1"
        } else {
            return (200, said("Ada.", "stop"));
        };
        (400, json!({"error": {"message": words}}))
    })
    .await;
    let policy = connected(&url).await;
    reply(&policy, &chat(), &[]).await;
    let (_, body) = asked.lock().unwrap()[1].clone();
    assert_eq!(body["temperature"], 1.0);
    assert!(body.get("top_p").is_none() && body.get("top_k").is_some());
    let hot = GenerateRequest {
        sampling: Sampling {
            temperature: 1.5,
            ..Sampling::FULL
        },
        ..request(&[])
    };
    let error = policy.reply(&chat(), hot).await.unwrap_err();
    assert!(error.to_string().contains("at most 1"), "{error}");
}

#[tokio::test]
async fn calls_of_tools_are_read_as_text_and_shown_as_they_were() {
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "search", "arguments": arguments}});
    let odd = r#"{"query": "a</tool_call>b"}"#;
    let calls = [call("1", r#"{"query": "x"}"#), call("2", odd)];
    let message =
        json!({"role": "assistant", "content": "I look.", "reasoning": "hm", "tool_calls": calls});
    let broken =
        json!({"role": "assistant", "content": null, "tool_calls": [call("1", "{\"query\": ")]});
    let answers = [message, broken]
        .map(|message| whole(json!({"message": message, "finish_reason": "tool_calls"})));
    let number = Arc::new(Mutex::new(0));
    let (url, asked) = serve(move |_: &Value| {
        let mut number = number.lock().unwrap();
        *number += 1;
        (200, answers[*number - 1].clone())
    })
    .await;
    let policy = connected(&url).await;
    let mut conversation = chat();
    conversation.insert("tools".to_owned(), json!([{"type": "function"}]));
    let found = reply(&policy, &conversation, &["</answer>"]).await;
    assert_eq!(
        found.text,
        "I look.\n<tool_call>\n{\"name\":\"search\",\"arguments\":{\"query\":\"x\"}}\n</tool_call>\n\
         <tool_call>\n{\"name\":\"search\",\"arguments\":{\"query\":\"a\\u003c/tool_call>b\"}}\n</tool_call>"
    );
    assert_eq!(
        (found.message, found.finish),
        (
            json!({"role": "assistant", "content": "I look.", "tool_calls": calls}),
            Finish::Stop
        )
    );
    // Arguments that are not an object are the policy's fault, and shown as the text that they are.
    let found = reply(&policy, &conversation, &[]).await;
    assert!(
        found.text.contains("\"arguments\":\"{\\\"query\\\": \""),
        "{}",
        found.text
    );
    assert_eq!(
        found.message,
        json!({"role": "assistant", "content": found.text})
    );
    let asked = asked.lock().unwrap();
    let (_, body) = &asked[0];
    assert!(body.get("tools").is_some() && body.get("stop").is_none());
}

#[tokio::test]
async fn a_window_that_is_full_is_no_fault() {
    // Room for 40 tokens at first, for none afterwards.
    let room = Arc::new(Mutex::new(40));
    let left = Arc::clone(&room);
    let (url, asked) = serve(move |body: &Value| {
        let room = *left.lock().unwrap();
        if body["max_tokens"].as_u64().unwrap() > room {
            let words = "This model's maximum context length is 512 tokens. 'max_tokens' or 'max_completion_tokens' is too large";
            return (400, json!({"error": {"message": words, "code": 400}}));
        }
        (200, said("cut", "length"))
    })
    .await;
    let policy = connected(&url).await;
    let found = reply(&policy, &chat(), &[]).await;
    assert_eq!(
        (found.text.as_str(), found.finish),
        ("cut", Finish::Context)
    );
    *room.lock().unwrap() = 0;
    assert_eq!(policy.reply(&chat(), request(&[])).await.unwrap(), None);
    let asked = asked.lock().unwrap();
    let tokens: Vec<_> = asked
        .iter()
        .map(|(_, body)| body["max_tokens"].as_u64().unwrap())
        .collect();
    assert_eq!(tokens, [100, 50, 25, 100, 50, 25, 16]);
}

#[tokio::test]
async fn a_filter_on_what_is_written_cuts_a_turn_and_is_no_fault() {
    let (url, asked) = serve(|body| {
        let choice = match body.get("prompt") {
            Some(_) => json!({"text": "so", "finish_reason": "content_filter"}),
            None => json!({"message": {"content": null}, "finish_reason": "content_filter"}),
        };
        (200, whole(choice))
    })
    .await;
    let policy = connected(&url).await;
    let found = reply(&policy, &running("And"), &["</answer>"]).await;
    assert_eq!((found.text.as_str(), found.finish), ("so", Finish::Length));
    let found = reply(&policy, &chat(), &[]).await;
    assert_eq!((found.text.as_str(), found.finish), ("", Finish::Length));
    assert_eq!(asked.lock().unwrap().len(), 2, "it is not asked again");
}

#[tokio::test]
async fn failures_are_faults_and_never_turns() {
    type Case = (u16, Value, fn(&PolicyError) -> bool);
    let cases: [Case; 10] = [
        (
            200,
            whole(json!({"text": "a", "finish_reason": "abort"})),
            |error| matches!(error, PolicyError::Unavailable(words) if words.contains("aborted")),
        ),
        (503, json!({"error": "busy"}), |error| {
            matches!(error, PolicyError::Unavailable(_))
        }),
        (400, json!({"error": "no"}), |error| {
            matches!(error, PolicyError::BadRequest(_))
        }),
        (200, json!({"choices": []}), |error| {
            matches!(error, PolicyError::Malformed(_))
        }),
        (
            200,
            json!({"choices": [{"text": "a", "finish_reason": "stop"}]}),
            |error| matches!(error, PolicyError::Malformed(words) if words.contains("usage")),
        ),
        (
            200,
            json!({"choices": [{"text": "a", "finish_reason": "stop"}],
                "usage": {"prompt_tokens": usize::MAX, "completion_tokens": 1}}),
            |error| matches!(error, PolicyError::Malformed(words) if words.contains("usage")),
        ),
        (
            200,
            json!({"choices": [{"text": "", "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 0}}),
            |error| matches!(error, PolicyError::Malformed(words) if words.contains("no tokens")),
        ),
        (
            200,
            json!({"choices": [{"text": "a", "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 0}}),
            |error| matches!(error, PolicyError::Malformed(words) if words.contains("counts no tokens")),
        ),
        (
            200,
            whole(json!({"text": "a", "finish_reason": null})),
            |error| matches!(error, PolicyError::Malformed(words) if words.contains("`null`")),
        ),
        (
            404,
            json!({"error": "not found"}),
            |error| matches!(error, PolicyError::Unavailable(words) if words.contains("policy.chat")),
        ),
    ];
    for (status, answer, expected) in cases {
        let said = answer.clone();
        let (url, _) = serve(move |_: &Value| (status, said.clone())).await;
        let policy = connected(&url).await;
        let error = policy.reply(&running("a"), request(&[])).await.unwrap_err();
        assert!(expected(&error), "{status} {answer}: {error:?}");
        assert!(error.to_string().contains(&url), "{error}");
    }
    let (url, _) =
        serve(|_: &Value| (400, json!({"error": "the model has no chat template"}))).await;
    let error = connected(&url).await.reply(&chat(), request(&[])).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("a config without [policy.chat]"), "{error}");
    // A fault that passes is tried again.
    let number = Arc::new(Mutex::new(0));
    let (url, _) = serve(move |_: &Value| {
        let mut number = number.lock().unwrap();
        *number += 1;
        if *number == 1 {
            (500, json!({}))
        } else {
            (200, said("Ada.", "stop"))
        }
    })
    .await;
    assert_eq!(
        reply(&connected(&url).await, &chat(), &[]).await.text,
        "Ada."
    );
}

#[tokio::test]
async fn a_server_is_asked_with_the_patience_that_was_set() {
    let (url, asked) = serve(|_: &Value| (500, json!({}))).await;
    let patience = Patience {
        retries: 1,
        backoff_ms: 1,
        give_up_after: 2,
        ..Patience::default()
    };
    let policy = RemotePolicy::text(&url, None, None, &patience).await;
    let policy = policy.unwrap();
    for _ in 0..3 {
        assert!(policy.reply(&chat(), request(&[])).await.is_err());
    }
    assert_eq!(
        asked.lock().unwrap().len(),
        4,
        "two tries of two requests; then the server counts as gone"
    );
    let refused = Patience {
        request_timeout_s: 0.0,
        ..patience
    };
    let error = RemotePolicy::text(&url, None, None, &refused).await.err();
    let error = error.expect("no time is refused").to_string();
    assert!(error.contains("request_timeout_s"), "{error}");
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_named_with_the_fix() {
    let refused = async |url: &str, model: Option<&str>, token_file: Option<&str>| {
        let patience = Patience::default();
        let asked = RemotePolicy::text(url, model, token_file.map(Into::into), &patience).await;
        match asked {
            Ok(_) => panic!("{url} is refused"),
            Err(error) => error,
        }
    };
    let (url, _) = serve(|_: &Value| (200, json!({}))).await;
    let error = refused(&url, Some("huge"), None).await;
    assert!(
        matches!(&error, RemoteError::Setting { key: "model", what } if what.contains("`huge`") && what.contains("`tiny`")),
        "{error:?}"
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let empty = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(|| async { Json(json!({"data": []})) });
    tokio::spawn(async move { axum::serve(listener, app).await });
    let error = refused(&empty, None, None).await.to_string();
    assert!(error.contains("lists none"), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret").unwrap();
    let path = file.path().to_str();
    let error = refused("http://models.example:8000", None, path).await;
    assert!(
        matches!(&error, RemoteError::Setting { key: "token_file", what } if what.contains("https")),
        "{error:?}"
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = refused(&gone, None, None).await.to_string();
    assert!(
        error.contains(&gone) && error.contains("cannot connect"),
        "{error}"
    );
}

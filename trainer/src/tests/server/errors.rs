//! What is refused, and how.

use forage_trainer::server::{BaseConfig, ServerConfig};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::support::{Running, chat, quickstart};

fn check(status: u16, answer: &Value, expected: (u16, Option<&str>, &str), body: &Value) {
    let (code, param, words) = expected;
    let error = &answer["error"];
    assert_eq!(status, code, "{body} -> {answer}");
    assert_eq!(error["param"].as_str(), param, "{body} -> {answer}");
    assert!(
        error["message"].as_str().unwrap().contains(words),
        "{body} -> {answer}, not `{words}`"
    );
    assert!(error["type"].is_string() && error.get("code").is_some());
}

#[expect(clippy::too_many_lines, reason = "a table of requests")]
#[tokio::test(flavor = "multi_thread")]
async fn completions_that_do_not_fit() {
    let server = Running::start(
        ServerConfig {
            max_choices: 8,
            ..ServerConfig::default()
        },
        quickstart(),
    )
    .await;
    let table: Vec<(Value, Option<&str>, &str)> = vec![
        (json!([]), None, "JSON object"),
        (json!({}), Some("prompt"), "must be a string"),
        (json!({"prompt": ""}), Some("prompt"), "empty"),
        (json!({"prompt": []}), Some("prompt"), "empty"),
        (json!({"prompt": ["a", ""]}), Some("prompt"), "empty"),
        (json!({"prompt": ["a", 3]}), Some("prompt"), "must be"),
        (json!({"prompt": [3, "a"]}), Some("prompt"), "must be"),
        (json!({"prompt": [[1, -2]]}), Some("prompt"), "must be"),
        (
            json!({"prompt": [5000]}),
            Some("prompt"),
            "token id 5000 is outside the vocabulary of 1024",
        ),
        (
            json!({"prompt": "a b c d e f g h i j ".repeat(60)}),
            Some("prompt"),
            "context of 512",
        ),
        (
            json!({"prompt": "a", "max_tokens": 0}),
            Some("max_tokens"),
            "unless `echo`",
        ),
        (
            json!({"prompt": "a", "max_tokens": 1.5}),
            Some("max_tokens"),
            "whole number",
        ),
        (
            json!({"prompt": "a", "n": 0}),
            Some("n"),
            "between 1 and 128",
        ),
        (
            json!({"prompt": ["a", "b", "c"], "n": 3}),
            Some("n"),
            "at most 8",
        ),
        (
            json!({"prompt": "a", "best_of": 2}),
            Some("best_of"),
            "not supported",
        ),
        (
            json!({"prompt": "a", "temperature": -1}),
            Some("temperature"),
            "at least 0",
        ),
        (
            json!({"prompt": "a", "temperature": "hot"}),
            Some("temperature"),
            "a number",
        ),
        (json!({"prompt": "a", "top_p": 0}), Some("top_p"), "above 0"),
        (
            json!({"prompt": "a", "top_k": -2}),
            Some("top_k"),
            "at least -1",
        ),
        (
            json!({"prompt": "a", "min_p": 2}),
            Some("min_p"),
            "between 0 and 1",
        ),
        (
            json!({"prompt": "a", "logprobs": 21}),
            Some("logprobs"),
            "between 0 and 20",
        ),
        (
            json!({"prompt": "a", "stop": ["a", ""]}),
            Some("stop"),
            "1 to 1024 bytes",
        ),
        (
            json!({"prompt": "a", "stop": vec!["x"; 17]}),
            Some("stop"),
            "at most 16",
        ),
        (
            json!({"prompt": "a", "seed": 0.5}),
            Some("seed"),
            "whole number",
        ),
        (
            json!({"prompt": "a", "stream": 1}),
            Some("stream"),
            "true or false",
        ),
        (
            json!({"prompt": "a", "stream_options": {}}),
            Some("stream_options"),
            "needs `stream`",
        ),
        (
            json!({"prompt": "a", "stream": true, "stream_options": {"x": 1}}),
            Some("stream_options.x"),
            "unknown field",
        ),
        (
            json!({"prompt": "a", "suffix": "b"}),
            Some("suffix"),
            "not supported",
        ),
        (
            json!({"prompt": "a", "logit_bias": {"3": 1}}),
            Some("logit_bias"),
            "not supported",
        ),
        (
            json!({"prompt": "a", "presence_penalty": 0.1}),
            Some("presence_penalty"),
            "not supported",
        ),
        (
            json!({"prompt": "a", "frequency_penalty": 1}),
            Some("frequency_penalty"),
            "not supported",
        ),
        (
            json!({"prompt": "a", "repetition_penalty": 1.1}),
            Some("repetition_penalty"),
            "not supported",
        ),
        (
            json!({"prompt": "a", "skip_special_tokens": true}),
            Some("skip_special_tokens"),
            "not supported",
        ),
        (
            json!({"prompt": "a", "temprature": 1}),
            Some("temprature"),
            "unknown field",
        ),
    ];
    for (body, param, words) in table {
        let (status, answer) = server.post("/v1/completions", &body).await;
        check(status, &answer, (400, param, words), &body);
        assert_eq!(answer["error"]["type"], "invalid_request_error");
    }
    let neutral = json!({"prompt": "a", "max_tokens": 1, "suffix": null, "logit_bias": {}, "presence_penalty": 0,
        "frequency_penalty": 0.0, "best_of": 1, "store": false, "metadata": {"a": "b"}, "stop": null, "top_k": -1,
        "skip_special_tokens": false, "repetition_penalty": 1.0, "something": null});
    server.answer("/v1/completions", &neutral).await;
    let (status, answer) = server
        .post("/v1/completions", &json!({"model": "gpt-4", "prompt": "a"}))
        .await;
    check(
        status,
        &answer,
        (404, Some("model"), "this server has `quickstart`"),
        &json!({}),
    );
    assert_eq!(answer["error"]["code"], "model_not_found");
    let long = json!({"prompt": "a b c d e f g h i j ".repeat(60)});
    assert_eq!(
        server.post("/v1/completions", &long).await.1["error"]["code"],
        "context_length_exceeded"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn chats_that_do_not_fit() {
    let server = Running::start(ServerConfig::default(), chat()).await;
    let user = json!([{"role": "user", "content": "a"}]);
    let with = |key: &str, value: Value| {
        let mut body = json!({"messages": user});
        body[key] = value;
        body
    };
    let message = |message: Value| json!({"messages": [message]});
    let image =
        json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]});
    let call = |call: Value| json!({"role": "assistant", "tool_calls": [call]});
    let table: Vec<(Value, Option<&str>, &str)> = vec![
        (json!({}), Some("messages"), "at least one message"),
        (
            json!({"messages": []}),
            Some("messages"),
            "at least one message",
        ),
        (
            message(json!("a")),
            Some("messages[0]"),
            "must be an object",
        ),
        (
            message(json!({"role": "king", "content": "a"})),
            Some("messages[0].role"),
            "system, developer, user",
        ),
        (
            message(json!({"role": "user"})),
            Some("messages[0].content"),
            "must be",
        ),
        (
            message(json!({"role": "assistant"})),
            Some("messages[0].content"),
            "no tool calls",
        ),
        (message(image), Some("messages[0].content[0]"), "text only"),
        (
            message(json!({"role": "user", "content": "a", "mood": 1})),
            Some("messages[0].mood"),
            "unknown field",
        ),
        (
            message(call(json!({"id": "1"}))),
            Some("messages[0].tool_calls[0].function.name"),
            "a string",
        ),
        (
            message(call(json!({"function": {"name": "f", "arguments": "{"}}))),
            Some("messages[0].tool_calls[0].function.arguments"),
            "a JSON object",
        ),
        (
            with("tools", json!([{"type": "function"}])),
            Some("tools[0]"),
            "must be",
        ),
        (
            with("tool_choice", json!("required")),
            Some("tool_choice"),
            "\"auto\" or \"none\"",
        ),
        (
            with("tool_choice", json!({"type": "function"})),
            Some("tool_choice"),
            "\"auto\" or \"none\"",
        ),
        (
            with("top_logprobs", json!(2)),
            Some("top_logprobs"),
            "needs `logprobs`",
        ),
        (
            with("logprobs", json!(2)),
            Some("logprobs"),
            "true or false",
        ),
        (
            with("max_tokens", json!(0)),
            Some("max_tokens"),
            "at least 1",
        ),
        (
            with("response_format", json!({"type": "json_object"})),
            Some("response_format"),
            "not supported",
        ),
        (
            with("parallel_tool_calls", json!(false)),
            Some("parallel_tool_calls"),
            "not supported",
        ),
        (
            with("functions", json!([{"name": "f"}])),
            Some("functions"),
            "not supported",
        ),
        (
            with("chat_template_kwargs", json!({"tools": 1})),
            Some("chat_template_kwargs.tools"),
            "field of its own",
        ),
        (with("continue_final_message", json!(true)), None, ""),
    ];
    for (body, param, words) in table {
        let (status, answer) = server.post("/v1/chat/completions", &body).await;
        if body.get("continue_final_message").is_some() {
            // A question can be continued as well as an answer.
            assert_eq!(status, 200, "{answer}");
            continue;
        }
        check(status, &answer, (400, param, words), &body);
    }
    let both = json!({"messages": user, "max_tokens": 3, "max_completion_tokens": 4});
    let (status, answer) = server.post("/v1/chat/completions", &both).await;
    check(status, &answer, (400, Some("max_tokens"), "differ"), &both);
    let neutral = json!({"messages": user, "max_tokens": 1, "response_format": {"type": "text"}, "tool_choice": "auto",
        "parallel_tool_calls": true, "modalities": ["text"], "chat_template_kwargs": {"enable_thinking": false}});
    server.answer("/v1/chat/completions", &neutral).await;
    let without = Running::quickstart().await;
    let (status, answer) = without
        .post("/v1/chat/completions", &json!({"messages": user}))
        .await;
    check(status, &answer, (400, None, "no chat template"), &json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_far_too_long_are_refused_before_their_tokens_are_looked_for() {
    let long = "word ".repeat(1_000_000);
    let begin = std::time::Instant::now();
    let server = Running::quickstart().await;
    for prompt in [json!(long), json!(["short", long])] {
        let body = json!({"prompt": prompt});
        let (status, answer) = server.post("/v1/completions", &body).await;
        let fault = (400, Some("prompt"), "`prompt` has 5000000 bytes");
        check(status, &answer, fault, &json!("long"));
    }
    let chat = Running::chat().await;
    let body = json!({"messages": [{"role": "user", "content": long}]});
    let (status, answer) = chat.post("/v1/chat/completions", &body).await;
    let fault = (400, Some("messages"), "bytes; a context of");
    check(status, &answer, fault, &json!("long"));
    assert!(begin.elapsed() < std::time::Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_prompts_may_have_many_values() {
    let server = Running::quickstart().await;
    let ids = vec![1; 200_000];
    let (status, answer) = server
        .post("/v1/completions", &json!({"prompt": ids}))
        .await;
    let fault = (400, Some("prompt"), "200000 tokens");
    check(status, &answer, fault, &json!("ids"));
    let body = json!({"messages": vec![json!([]); 200_000]});
    let (status, answer) = server.post("/v1/chat/completions", &body).await;
    check(status, &answer, (400, None, "JSON values"), &json!("tree"));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_others_are_refused_without_a_token() {
    let server = Running::quickstart().await;
    let request = || server.client.get(server.url("/v1/models"));
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status();
    assert_eq!(status(request().header("host", "evil.example")).await, 403);
    let foreign = request().header("origin", "https://evil.example");
    assert_eq!(status(foreign).await, 403);
    let post = server.client.post(server.url("/v1/completions"));
    let text = post.header("content-type", "text/plain").body("{}");
    assert_eq!(status(text).await, 415);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_routes_and_methods() {
    let server = Running::start(
        ServerConfig {
            base: BaseConfig {
                max_body_bytes: 1000,
                ..BaseConfig::default()
            },
            ..ServerConfig::default()
        },
        quickstart(),
    )
    .await;
    let sent = server
        .client
        .post(server.url("/v1/completions"))
        .body("{\"prompt\":")
        .send()
        .await
        .unwrap();
    assert_eq!(sent.status(), 400);
    assert!(sent.text().await.unwrap().contains("the body is not JSON"));
    let large = json!({"prompt": "a".repeat(2000)});
    let (status, answer) = server.post("/v1/completions", &large).await;
    check(
        status,
        &answer,
        (413, None, "over 1000 bytes"),
        &json!("large"),
    );
    let (status, answer) = server.get("/v2").await;
    check(
        status,
        &answer,
        (404, None, "no route /v2"),
        &json!("route"),
    );
    assert_eq!(server.get("/v1/completions").await.0, 405);
    assert_eq!(
        server.get("/v1/models/quickstart").await.1["id"],
        "quickstart"
    );
    assert_eq!(
        server.get("/v1/models/a/b").await.1["error"]["code"],
        "model_not_found"
    );
    let (_, models) = server.get("/v1/models").await;
    assert_eq!(
        (&models["object"], &models["data"][0]["max_model_len"]),
        (&json!("list"), &json!(512))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_guards_everything_but_health() {
    let config = ServerConfig {
        base: BaseConfig {
            token: Some("secret".to_owned()),
            ..BaseConfig::default()
        },
        ..ServerConfig::default()
    };
    let server = Running::start(config, quickstart()).await;
    let body = json!({"prompt": "a", "max_tokens": 1});
    let (status, answer) = server.post("/v1/completions", &body).await;
    check(status, &answer, (401, None, "Bearer TOKEN"), &body);
    assert_eq!(answer["error"]["code"], "invalid_api_key");
    for path in ["/v1/models", "/metrics"] {
        assert_eq!(
            server
                .client
                .get(server.url(path))
                .send()
                .await
                .unwrap()
                .status(),
            401
        );
        let known = server
            .client
            .get(server.url(path))
            .bearer_auth("secret")
            .send()
            .await
            .unwrap();
        assert_eq!(known.status(), 200);
    }
    let wrong = server
        .client
        .get(server.url("/v1/models"))
        .bearer_auth("Secret")
        .send()
        .await
        .unwrap();
    assert_eq!(wrong.status(), 401);
    assert_eq!(
        (
            server.get("/healthz").await.0,
            server.get("/readyz").await.0
        ),
        (200, 200)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn contradictions_are_named_before_anything_starts() {
    let bad = [
        ServerConfig {
            base: BaseConfig {
                queue: 0,
                ..BaseConfig::default()
            },
            ..ServerConfig::default()
        },
        ServerConfig {
            max_choices: 0,
            ..ServerConfig::default()
        },
        ServerConfig {
            deadline: std::time::Duration::ZERO,
            ..ServerConfig::default()
        },
        ServerConfig {
            base: BaseConfig {
                token: Some(String::new()),
                ..BaseConfig::default()
            },
            ..ServerConfig::default()
        },
    ];
    let model = quickstart();
    for config in bad {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let error = model
            .clone()
            .serve(listener, config, std::future::pending())
            .await
            .unwrap_err();
        assert!(
            error.to_string().starts_with("server configuration: "),
            "{error}"
        );
    }
}

/// A small request for an answer of a gigabyte is refused before anything is computed.
#[tokio::test(flavor = "multi_thread")]
async fn answers_have_a_largest_size() {
    let server = Running::quickstart().await;
    let ask = async |n: usize| {
        let prompts = vec![vec![5; 500]; 8];
        let body =
            json!({"prompt": prompts, "n": n, "echo": true, "logprobs": 20, "max_tokens": 0});
        server.post("/v1/completions", &body).await
    };
    let (status, answer) = ask(128).await;
    assert_eq!(status, 413, "{answer}");
    let words = answer["error"]["message"].as_str().unwrap();
    assert!(words.contains("268435456 bytes"), "{words}");
    let (status, answer) = ask(2).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"].as_array().unwrap().len(), 16);
}

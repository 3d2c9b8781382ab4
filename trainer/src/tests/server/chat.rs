//! `/v1/chat/completions`.

use forage_contracts::Tokenizer;
use forage_trainer::server::ServerConfig;
use serde_json::{Value, json};

use super::support::{Running, joined, numbers, taught_base};
use crate::tests::tool_caller::{ANSWER, FINDING, GREETING, PREAMBLE, QUESTION, finding, tools};

const PATH: &str = "/v1/chat/completions";

fn hello() -> Value {
    json!({"messages": [{"role": "user", "content": GREETING.0}], "temperature": 0})
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_answered() {
    let server = Running::chat().await;
    let answer = server.answer(PATH, &hello()).await;
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(answer["object"], "chat.completion");
    let message = json!({"role": "assistant", "content": GREETING.1, "refusal": null});
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": "stop"});
    assert_eq!(answer["choices"], json!([choice]));
    let tokens = server.model.tokenizer.encode(GREETING.1).len() + 1;
    assert_eq!(
        answer["usage"]["completion_tokens"], tokens,
        "with the token that ends the turn"
    );
    let parts = json!({"temperature": 0, "max_completion_tokens": 4, "messages":
        [{"role": "user", "content": [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]}]});
    let answer = server.answer(PATH, &parts).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_templates_end_of_a_turn_ends_the_answer_of_a_base_model() {
    let server = Running::start(ServerConfig::default(), taught_base()).await;
    let mut body = hello();
    body["max_tokens"] = json!(60);
    let tokens = server.model.tokenizer.encode(GREETING.1).len() + 1;
    for include in [false, true] {
        body["include_stop_str_in_output"] = json!(include);
        let answer = server.answer(PATH, &body).await;
        let choice = &answer["choices"][0];
        assert_eq!(choice["message"]["content"], GREETING.1);
        assert_eq!(choice["finish_reason"], "stop");
        assert_eq!(answer["usage"]["completion_tokens"], tokens);
    }
    body["ignore_eos"] = json!(true);
    let answer = server.answer(PATH, &body).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_called_and_their_findings_used() {
    let server = Running::chat().await;
    let ask = json!({"messages": [{"role": "user", "content": QUESTION}], "tools": tools(), "temperature": 0});
    let answer = server.answer(PATH, &ask).await;
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &json!(PREAMBLE))
    );
    let call = &choice["message"]["tool_calls"][0];
    assert!(call["id"].as_str().unwrap().starts_with("call_") && call["type"] == "function");
    assert_eq!(call["function"]["name"], "get_weather");
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Oslo"}));

    let events = server.events(PATH, &ask).await;
    assert_eq!(
        events[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    assert!(
        events
            .iter()
            .all(|event| event["object"] == "chat.completion.chunk")
    );
    assert_eq!(joined(&events, "/choices/0/delta/content"), PREAMBLE);
    let calls: Vec<&Value> = events
        .iter()
        .filter_map(|event| event.pointer("/choices/0/delta/tool_calls/0"))
        .collect();
    assert_eq!(calls.len(), 1);
    assert_eq!(
        (&calls[0]["index"], &calls[0]["function"]),
        (&json!(0), &call["function"])
    );
    assert_eq!(
        events.last().unwrap()["choices"][0]["finish_reason"],
        "tool_calls"
    );

    let told = json!({"messages": finding(), "tools": tools(), "temperature": 0});
    let answer = server.answer(PATH, &told).await;
    assert_eq!(
        answer["choices"][0]["message"]["content"], ANSWER,
        "after {FINDING}"
    );

    let mut silent = ask.clone();
    silent["tool_choice"] = "none".into();
    let answer = server.answer(PATH, &silent).await;
    assert!(answer["choices"][0]["message"].get("tool_calls").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_the_whole_in_pieces() {
    let server = Running::chat().await;
    let mut body = hello();
    body["temperature"] = json!(1.5);
    body["n"] = json!(3);
    body["seed"] = json!(8);
    body["max_tokens"] = json!(60);
    body["logprobs"] = json!(true);
    body["top_logprobs"] = json!(2);
    body["return_token_ids"] = json!(true);
    let whole = server.answer(PATH, &body).await;
    let events = server.events(PATH, &body).await;
    assert_eq!(events[0]["prompt_token_ids"], whole["prompt_token_ids"]);
    for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
        let mine: Vec<Value> = events
            .iter()
            .filter(|event| event["choices"][0]["index"] == index)
            .cloned()
            .collect();
        assert_eq!(
            joined(&mine, "/choices/0/delta/content"),
            choice["message"]["content"].as_str().unwrap()
        );
        let told = mine
            .iter()
            .filter_map(|event| event.pointer("/choices/0/logprobs/content")?.as_array())
            .flatten();
        assert_eq!(
            &Value::Array(told.cloned().collect()),
            &choice["logprobs"]["content"]
        );
        let ids = mine
            .iter()
            .filter_map(|event| event.pointer("/choices/0/token_ids")?.as_array())
            .flatten();
        assert_eq!(&Value::Array(ids.cloned().collect()), &choice["token_ids"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_probabilities_are_those_of_the_engine() {
    let server = Running::chat().await;
    let mut body = hello();
    body["logprobs"] = json!(true);
    body["top_logprobs"] = json!(3);
    body["return_token_ids"] = json!(true);
    let answer = server.answer(PATH, &body).await;
    let list = |value: &Value| -> Vec<u32> {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap() as u32)
            .collect()
    };
    let (prompt, tokens) = (
        list(&answer["prompt_token_ids"]),
        list(&answer["choices"][0]["token_ids"]),
    );
    let scores = server
        .model
        .engine
        .score([prompt.clone(), tokens].concat(), 1.0)
        .await
        .unwrap();
    let told = answer["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap();
    let logprobs: Vec<f32> = told
        .iter()
        .map(|token| token["logprob"].as_f64().unwrap() as f32)
        .collect();
    for (found, expected) in logprobs.iter().zip(&scores[prompt.len() - 1..]) {
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }
    let bytes: Vec<u8> = told
        .iter()
        .flat_map(|token| numbers(&token["bytes"]))
        .map(|byte| byte as u8)
        .collect();
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        format!("{}<|endoftext|>", GREETING.1)
    );
    assert!(
        told.iter()
            .all(|token| token["top_logprobs"].as_array().unwrap().len() == 3)
    );
    assert!(
        told.iter()
            .all(|token| token["top_logprobs"][0]["logprob"] == token["logprob"]),
        "greedy"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_begun_answer_is_continued() {
    let server = Running::chat().await;
    let body = json!({"temperature": 0, "continue_final_message": true, "messages": [
        {"role": "user", "content": GREETING.0}, {"role": "assistant", "content": "Hello, wörld"}]});
    let answer = server.answer(PATH, &body).await;
    assert_eq!(
        answer["choices"][0]["message"]["content"],
        GREETING.1.strip_prefix("Hello, wörld").unwrap()
    );
}

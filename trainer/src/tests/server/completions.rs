//! `/v1/completions`.

use forage_contracts::Tokenizer;
use forage_trainer::server::ServerConfig;
use serde_json::{Value, json};

use super::support::{Running, joined, numbers, without_stops};

const PATH: &str = "/v1/completions";
const PROMPT: &str = "Question: Who is the mentor of Banoru Kelbi?\n<think>";

fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() < 1e-4,
            "place {place}: {found} is not {expected}"
        );
    }
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_generated_is_told_in_full() {
    let server = Running::quickstart().await;
    let tokenizer = &server.model.tokenizer;
    let body = json!({"prompt": PROMPT, "max_tokens": 40, "seed": 3, "logprobs": 2, "ignore_eos": true,
        "return_token_ids": true, "model": "quickstart", "user": "somebody", "temperature": 0.8});
    let answer = server.answer(PATH, &body).await;
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!(
        (&answer["object"], &answer["model"]),
        (&json!("text_completion"), &json!("quickstart"))
    );
    let prompt = tokenizer.encode(PROMPT);
    let usage = json!({"prompt_tokens": prompt.len(), "completion_tokens": 40, "total_tokens": prompt.len() + 40});
    assert_eq!(answer["usage"], usage);
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    let tokens = ids(&choice["token_ids"]);
    assert_eq!(ids(&choice["prompt_token_ids"]), prompt);
    assert_eq!(choice["text"], tokenizer.decode(&tokens));
    let logprobs = &choice["logprobs"];
    for (place, (token, &id)) in logprobs["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .zip(&tokens)
        .enumerate()
    {
        let text = choice["text"].as_str().unwrap();
        let offset = logprobs["text_offset"][place].as_u64().unwrap() as usize;
        if let Ok(spelled) = String::from_utf8(tokenizer.token_bytes(id)) {
            assert_eq!(token, &spelled);
            assert!(
                text.chars()
                    .skip(offset)
                    .collect::<String>()
                    .starts_with(&spelled),
                "{spelled:?} at {offset}"
            );
        }
        let top = logprobs["top_logprobs"][place].as_object().unwrap();
        assert!((2..=3).contains(&top.len()));
        assert_eq!(
            top[token.as_str().unwrap()],
            logprobs["token_logprobs"][place]
        );
    }
    let mut whole = prompt.clone();
    whole.extend(&tokens);
    let scores = server.model.engine.score(whole, 0.8).await.unwrap();
    close(
        &numbers(&logprobs["token_logprobs"]),
        &scores[prompt.len() - 1..],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_the_whole_in_pieces() {
    let server = Running::quickstart().await;
    let requests = [
        json!({"prompt": PROMPT, "max_tokens": 60, "seed": 1}),
        json!({"prompt": PROMPT, "max_tokens": 60, "seed": 2, "temperature": 3.0, "ignore_eos": true, "logprobs": 1}),
        json!({"prompt": [PROMPT, "é"], "n": 2, "max_tokens": 30, "seed": 5, "temperature": 2.0, "echo": true,
            "logprobs": 0, "return_token_ids": true}),
        json!({"prompt": PROMPT, "max_tokens": 80, "seed": 9, "stop": ["</think>", "the ", "e"], "temperature": 1.5}),
        json!({"prompt": [[70, 71], [72]], "max_tokens": 0, "echo": true, "logprobs": 3}),
    ];
    for mut body in requests {
        let whole = server.answer(PATH, &body).await;
        body["stream_options"] = json!({"include_usage": true});
        let events = server.events(PATH, &body).await;
        let (last, pieces) = events.split_last().unwrap();
        assert_eq!(
            (&last["usage"], &last["choices"]),
            (&whole["usage"], &json!([])),
            "{body}"
        );
        assert!(
            pieces
                .iter()
                .all(|piece| piece["usage"].is_null() && piece["object"] == "text_completion")
        );
        for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
            let mine: Vec<Value> = pieces
                .iter()
                .filter(|piece| piece["choices"][0]["index"] == index)
                .cloned()
                .collect();
            assert_eq!(
                joined(&mine, "/choices/0/text"),
                choice["text"].as_str().unwrap(),
                "{body}"
            );
            let reasons: Vec<&Value> = mine
                .iter()
                .map(|piece| &piece["choices"][0]["finish_reason"])
                .filter(|reason| !reason.is_null())
                .collect();
            assert_eq!(reasons, [&choice["finish_reason"]]);
            for path in [
                "/logprobs/tokens",
                "/logprobs/token_logprobs",
                "/logprobs/text_offset",
                "/token_ids",
            ] {
                let parts = mine
                    .iter()
                    .filter_map(|piece| piece["choices"][0].pointer(path)?.as_array());
                let parts: Vec<&Value> = parts.flatten().collect();
                let expected: Vec<&Value> = choice
                    .pointer(path)
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .collect();
                assert_eq!(parts, expected, "{path} of {body}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn seeds_fix_the_tokens_and_choices_differ() {
    let server = Running::quickstart().await;
    let text = |answer: &Value, index: usize| {
        answer["choices"][index]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let body = json!({"prompt": [PROMPT, "The"], "max_tokens": 24, "n": 3, "seed": 11, "ignore_eos": true});
    let first = server.answer(PATH, &body).await;
    assert_eq!(
        first["choices"],
        server.answer(PATH, &body).await["choices"]
    );
    assert_eq!(first["choices"].as_array().unwrap().len(), 6);
    assert!(text(&first, 0) != text(&first, 1) && text(&first, 1) != text(&first, 2));
    let alone = json!({"prompt": "The", "max_tokens": 24, "seed": 11, "ignore_eos": true});
    assert_eq!(
        text(&server.answer(PATH, &alone).await, 0),
        text(&first, 3),
        "a prompt alone and among others"
    );
    let other = json!({"prompt": "The", "max_tokens": 24, "seed": -11, "ignore_eos": true});
    assert_ne!(text(&server.answer(PATH, &other).await, 0), text(&first, 3));
    let free = json!({"prompt": "The", "max_tokens": 24, "ignore_eos": true});
    assert_ne!(
        text(&server.answer(PATH, &free).await, 0),
        text(&server.answer(PATH, &free).await, 0)
    );
    let greedy = json!({"prompt": "The", "max_tokens": 24, "temperature": 0, "n": 2});
    let greedy = server.answer(PATH, &greedy).await;
    assert_eq!(text(&greedy, 0), text(&greedy, 1));
    let narrow = json!({"prompt": "The", "max_tokens": 24, "top_k": 1, "min_p": 0.1, "top_p": 0.9});
    assert_eq!(
        text(&server.answer(PATH, &narrow).await, 0),
        text(&greedy, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_strings_end_the_text_wherever_tokens_end() {
    let server = Running::quickstart().await;
    let body = json!({"prompt": PROMPT, "max_tokens": 60, "seed": 4, "ignore_eos": true});
    let whole = server.answer(PATH, &body).await["choices"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    let chars: Vec<char> = whole.chars().collect();
    // Every piece of the text as a stop string: most begin or end inside a token.
    for start in (0..chars.len() - 6).step_by(7) {
        let stop: String = chars[start..start + 5].iter().collect();
        let mut body = body.clone();
        body["stop"] = json!(["never seen", stop]);
        let choice = &server.answer(PATH, &body).await["choices"][0];
        let place = whole.find(&stop).unwrap();
        assert_eq!(
            (&choice["text"], &choice["finish_reason"]),
            (&json!(whole[..place]), &json!("stop")),
            "{stop:?}"
        );
        for keep in ["include_stop_str_in_output", "no_stop_trim"] {
            let mut body = body.clone();
            body[keep] = true.into();
            assert_eq!(
                server.answer(PATH, &body).await["choices"][0]["text"],
                whole[..place + stop.len()]
            );
        }
        body["include_stop_str_in_output"] = true.into();
        assert_eq!(
            joined(&server.events(PATH, &body).await, "/choices/0/text"),
            whole[..place + stop.len()]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_that_the_engine_misses_ends_text_tokens_and_usage_alike() {
    let server = Running::quickstart().await;
    let misses = Running::start(ServerConfig::default(), without_stops()).await;
    let mut body = json!({"prompt": PROMPT, "max_tokens": 60, "seed": 4, "ignore_eos": true});
    let whole = server.answer(PATH, &body).await;
    let whole = whole["choices"][0]["text"].as_str().unwrap();
    let stop: String = whole.chars().skip(20).take(5).collect();
    body["stop"] = json!([stop]);
    body["max_tokens"] = 900.into();
    body["logprobs"] = 1.into();
    body["return_token_ids"] = true.into();
    let seen = server.answer(PATH, &body).await;
    let missed = misses.answer(PATH, &body).await;
    assert_eq!(missed["choices"][0]["finish_reason"], "stop");
    for place in [
        "/choices/0/text",
        "/choices/0/token_ids",
        "/choices/0/logprobs/tokens",
        "/choices/0/logprobs/text_offset",
        "/usage",
    ] {
        assert_eq!(missed.pointer(place), seen.pointer(place), "{place}");
    }
    body["stream_options"] = json!({"include_usage": true});
    let events = misses.events(PATH, &body).await;
    assert_eq!(
        joined(&events, "/choices/0/text"),
        seen["choices"][0]["text"]
    );
    assert_eq!(events.last().unwrap()["usage"], seen["usage"]);
    // What the engine would have drawn on is given up.
    assert!(misses.idle().await);
    assert_eq!(misses.model.engine.stats().cancelled, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echo_tells_of_the_prompt() {
    let server = Running::quickstart().await;
    let tokens = server.model.tokenizer.encode(PROMPT);
    let scores = server
        .model
        .engine
        .score(tokens.clone(), 1.0)
        .await
        .unwrap();
    let body =
        json!({"prompt": PROMPT, "max_tokens": 0, "echo": true, "logprobs": 1, "temperature": 0});
    let answer = server.answer(PATH, &body).await;
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["text"], &choice["finish_reason"]),
        (&json!(PROMPT), &json!("length"))
    );
    assert_eq!(answer["usage"]["completion_tokens"], 0);
    let logprobs = &choice["logprobs"];
    assert!(logprobs["token_logprobs"][0].is_null() && logprobs["top_logprobs"][0].is_null());
    close(&numbers(&logprobs["token_logprobs"])[1..], &scores);
    assert_eq!(logprobs["tokens"].as_array().unwrap().len(), tokens.len());
    // As evaluation harnesses ask: one more token, greedily, and whether each one was the likeliest.
    let body = json!({"prompt": [tokens], "max_tokens": 1, "echo": true, "logprobs": 1, "temperature": 0, "seed": 1234});
    let choice = &server.answer(PATH, &body).await["choices"][0];
    let logprobs = &choice["logprobs"];
    let told = numbers(&logprobs["token_logprobs"]);
    close(&told[1..told.len() - 1], &scores);
    for (place, &own) in told.iter().enumerate().skip(1) {
        let top = logprobs["top_logprobs"][place].as_object().unwrap();
        let best = top
            .values()
            .map(|value| value.as_f64().unwrap() as f32)
            .fold(f32::NEG_INFINITY, f32::max);
        assert!(best >= own);
        assert_eq!(
            top.len(),
            if best > own { 2 } else { 1 },
            "the own token is told beside the likeliest"
        );
    }
    assert!(choice["text"].as_str().unwrap().starts_with(PROMPT));
}

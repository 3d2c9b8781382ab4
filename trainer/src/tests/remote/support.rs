//! What the tests share: settings, requests, and how the fake engine reads them.

use std::sync::Arc;

use forage_contracts::policy::{Completion, GenerateRequest, Sampling};
use forage_contracts::seed::Seed;
use forage_trainer::{RemoteConfig, RemoteKind, RemotePolicy};
use serde::Deserialize;
use serde_json::Value;

use super::fake::Fake;
use super::model::{Model, Order, by_hash};

pub(crate) const KINDS: [RemoteKind; 2] = [RemoteKind::Vllm, RemoteKind::Sglang];

pub(crate) fn config(kind: RemoteKind, url: &str) -> RemoteConfig {
    RemoteConfig {
        model: (kind == RemoteKind::Vllm).then(|| "tiny".to_owned()),
        request_timeout_s: 20.0,
        push_timeout_s: 20.0,
        ready_timeout_s: 20.0,
        backoff_ms: 5,
        give_up_after: 4,
        ..RemoteConfig::new(kind, url, 512)
    }
}

pub(crate) async fn connected(kind: RemoteKind) -> (Arc<Fake>, Arc<RemotePolicy>) {
    hurried(kind, 20.0).await
}

/// A policy that waits no longer than `timeout` seconds for an answer.
pub(crate) async fn hurried(kind: RemoteKind, timeout: f64) -> (Arc<Fake>, Arc<RemotePolicy>) {
    let (fake, url) = Fake::new(Model::Hash).serve().await;
    let config = RemoteConfig {
        request_timeout_s: timeout,
        ..config(kind, &url)
    };
    let policy = RemotePolicy::connect(&config).await.unwrap();
    fake.take_calls();
    (fake, Arc::new(policy))
}

pub(crate) fn request(number: u64) -> GenerateRequest {
    GenerateRequest {
        episode: number,
        tokens: (0..4 + number % 7)
            .map(|place| (place * 37 + number) as u32 % 256)
            .collect(),
        max_tokens: 40,
        stop: vec!["a".to_owned(), "xy".to_owned()],
        ignore_eos: false,
        sampling: Sampling {
            temperature: 0.7,
            top_p: 0.9,
            top_k: 20,
            min_p: 0.05,
        },
        seed: Seed::root(7).child("request", &[number]),
    }
}

/// What the engine must answer with weights of that name.
pub(crate) fn expected(request: &GenerateRequest, weights: &str) -> Completion {
    by_hash(&Order {
        prompt: request.tokens.clone(),
        max_tokens: request.max_tokens,
        seed: request.seed.0 >> 1,
        stop: request.stop.clone(),
        ignore_eos: request.ignore_eos,
        weights: weights.to_owned(),
    })
}

/// Every field must be there and none besides: what is left out, a server takes from the model's own defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the protocol's own switches")]
struct VllmBody {
    model: String,
    prompt: Vec<u32>,
    n: u32,
    max_tokens: usize,
    temperature: f64,
    top_p: f64,
    top_k: i64,
    min_p: f64,
    repetition_penalty: f64,
    presence_penalty: f64,
    frequency_penalty: f64,
    seed: i64,
    stop: Vec<String>,
    include_stop_str_in_output: bool,
    ignore_eos: bool,
    skip_special_tokens: bool,
    logprobs: u32,
    return_token_ids: bool,
    #[serde(default, rename = "return_tokens_as_token_ids")]
    _names: bool,
}

type Refused = (u16, String);

fn broken(cause: &serde_json::Error) -> Refused {
    (422, cause.to_string())
}

pub(crate) fn vllm_order(body: &Value, fake: &Fake) -> Result<Order, Refused> {
    let body: VllmBody = serde_json::from_value(body.clone()).map_err(|cause| broken(&cause))?;
    let neutral = (
        body.repetition_penalty - 1.0,
        body.presence_penalty,
        body.frequency_penalty,
    ) == (0.0, 0.0, 0.0);
    let drawn = (body.temperature, body.top_p, body.top_k, body.min_p);
    assert!(
        drawn == (0.7, 0.9, 20, 0.05) || drawn == (1.0, 1.0, 0, 0.0) || drawn == (0.0, 1.0, 0, 0.0),
        "{drawn:?}"
    );
    assert!(
        neutral && body.n == 1 && body.logprobs == 0 && body.return_token_ids && body.seed >= 0
    );
    assert!(body.include_stop_str_in_output && !body.skip_special_tokens);
    let weights = if body.model == "tiny" {
        fake.weights.lock().unwrap().0.clone()
    } else if fake.adapters.lock().unwrap().contains_key(&body.model) {
        body.model
    } else {
        return Err((404, format!("The model `{}` does not exist.", body.model)));
    };
    let VllmBody {
        prompt,
        max_tokens,
        stop,
        ignore_eos,
        ..
    } = body;
    fit(
        Order {
            prompt,
            max_tokens,
            seed: body.seed as u64,
            stop,
            ignore_eos,
            weights,
        },
        fake.context,
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SglangBody {
    input_ids: Vec<u32>,
    sampling_params: SglangParams,
    return_logprob: bool,
    stream: bool,
    lora_path: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SglangParams {
    max_new_tokens: usize,
    temperature: f64,
    top_p: f64,
    top_k: i64,
    min_p: f64,
    repetition_penalty: f64,
    presence_penalty: f64,
    frequency_penalty: f64,
    sampling_seed: i64,
    stop: Vec<String>,
    no_stop_trim: bool,
    ignore_eos: bool,
    skip_special_tokens: bool,
}

pub(crate) fn sglang_order(body: &Value, fake: &Fake) -> Result<Order, Refused> {
    let body: SglangBody = serde_json::from_value(body.clone()).map_err(|cause| broken(&cause))?;
    let params = body.sampling_params;
    let neutral = (
        params.repetition_penalty - 1.0,
        params.presence_penalty,
        params.frequency_penalty,
    ) == (0.0, 0.0, 0.0);
    // 0 is refused there.
    let drawn = (params.temperature, params.top_p, params.top_k, params.min_p);
    assert!(
        drawn == (0.7, 0.9, 20, 0.05)
            || drawn == (1.0, 1.0, -1, 0.0)
            || drawn == (0.0, 1.0, -1, 0.0),
        "{drawn:?}"
    );
    assert!(
        neutral && params.no_stop_trim && !params.skip_special_tokens && params.sampling_seed >= 0
    );
    assert!(body.return_logprob && !body.stream);
    let weights = match body.lora_path {
        None => fake.weights.lock().unwrap().0.clone(),
        Some(name) if fake.adapters.lock().unwrap().contains_key(&name) => name,
        Some(name) => return Err((400, format!("the adapter `{name}` is not loaded"))),
    };
    let SglangParams {
        max_new_tokens: max_tokens,
        stop,
        ignore_eos,
        ..
    } = params;
    fit(
        Order {
            prompt: body.input_ids,
            max_tokens,
            seed: params.sampling_seed as u64,
            stop,
            ignore_eos,
            weights,
        },
        fake.context,
    )
}

fn fit(order: Order, most: usize) -> Result<Order, Refused> {
    let asked = order.prompt.len() + order.max_tokens;
    if asked > most {
        Err((
            400,
            format!("{asked} tokens, the maximum context length is {most}"),
        ))
    } else {
        Ok(order)
    }
}

//! SGLang's form of requests and answers.

use forage_contracts::policy::{GenerateRequest, Sampling};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{Ended, Sampled, parse};
use super::error::RemoteFault;
use super::probe::{Draw, Drawn};
use super::weights::Under;

pub(super) const GENERATE: &str = "/generate";
pub(super) const INFO: &str = "/get_model_info";
pub(super) const LOAD_ADAPTER: &str = "/load_lora_adapter";
pub(super) const UNLOAD_ADAPTER: &str = "/unload_lora_adapter";
pub(super) const UPDATE: &str = "/update_weights_from_disk";

#[derive(Debug, Serialize)]
struct Body<'a> {
    input_ids: &'a [u32],
    sampling_params: Params<'a>,
    return_logprob: bool,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    lora_path: Option<&'a str>,
}

/// Everything that the server could take from a model's `generation_config.json` is set.
#[derive(Debug, Serialize)]
struct Params<'a> {
    max_new_tokens: usize,
    temperature: f32,
    top_p: f32,
    /// -1 keeps all.
    top_k: i64,
    min_p: f32,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    sampling_seed: u64,
    stop: &'a [String],
    no_stop_trim: bool,
    ignore_eos: bool,
    skip_special_tokens: bool,
}

pub(super) fn body(request: &GenerateRequest, under: &Under, granted: usize) -> Vec<u8> {
    let Sampling {
        temperature,
        top_p,
        top_k,
        min_p,
    } = request.sampling;
    let body = Body {
        input_ids: &request.tokens,
        sampling_params: Params {
            max_new_tokens: granted,
            temperature,
            top_p,
            top_k: if top_k == 0 {
                -1
            } else {
                i64::try_from(top_k).unwrap_or(-1)
            },
            min_p,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            // Signed there.
            sampling_seed: request.seed.0 >> 1,
            stop: &request.stop,
            no_stop_trim: true,
            ignore_eos: request.ignore_eos,
            skip_special_tokens: false,
        },
        return_logprob: true,
        stream: false,
        lora_path: under.adapter.as_deref(),
    };
    serde_json::to_vec(&body).expect("numbers and strings can be written")
}

#[derive(Debug, Deserialize)]
struct Answer {
    output_ids: Vec<u32>,
    meta_info: Meta,
}

#[derive(Debug, Deserialize)]
struct Meta {
    finish_reason: Reason,
    prompt_tokens: Option<usize>,
    /// Log-probability, token id, and the token's text or null.
    output_token_logprobs: Vec<Vec<Value>>,
    weight_version: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Reason {
    #[serde(rename = "type")]
    kind: String,
    /// The stop string, or the id of the token that ended it.
    matched: Option<Value>,
    message: Option<String>,
}

pub(super) fn sampled(body: &[u8], request: &GenerateRequest) -> Result<Sampled, RemoteFault> {
    let Answer {
        output_ids: tokens,
        meta_info: meta,
    } = parse(body)?;
    let ended = match meta.finish_reason.kind.as_str() {
        "length" => Ended::Length,
        "stop"
            if meta
                .finish_reason
                .matched
                .is_some_and(|matched| matched.is_string()) =>
        {
            Ended::Stop
        }
        "stop" => Ended::Eos,
        "abort" => {
            return Err(RemoteFault::Aborted(
                meta.finish_reason.message.unwrap_or_default(),
            ));
        }
        other => {
            return Err(RemoteFault::Malformed(format!(
                "`finish_reason` is `{other}`"
            )));
        }
    };
    let asked = request.tokens.len();
    if let Some(prompt) = meta.prompt_tokens.filter(|&prompt| prompt != asked) {
        return Err(RemoteFault::Counts(format!(
            "a prompt of {prompt} tokens was continued, not the one of {asked}"
        )));
    }
    let logprobs = numbers(&tokens, &meta.output_token_logprobs)?;
    Ok(Sampled {
        tokens,
        logprobs,
        ended,
        weights: meta.weight_version,
    })
}

/// The log-probability of each token, from pairs of it and the token's id.
fn numbers(tokens: &[u32], entries: &[Vec<Value>]) -> Result<Vec<Option<f64>>, RemoteFault> {
    let mut logprobs = Vec::with_capacity(entries.len());
    for (place, entry) in entries.iter().enumerate() {
        let [logprob, id, ..] = entry.as_slice() else {
            return Err(RemoteFault::Malformed(format!(
                "`output_token_logprobs` has no pair at token {place}"
            )));
        };
        let listed = tokens.get(place).map(|&token| u64::from(token));
        if listed.is_some() && id.as_u64() != listed {
            let what = format!(
                "`output_ids` and `output_token_logprobs` have different ids at token {place}"
            );
            return Err(RemoteFault::Counts(what));
        }
        logprobs.push(logprob.as_f64());
    }
    Ok(logprobs)
}

/// The request for tokens behind each text.
pub(super) fn draw(texts: &[Vec<u32>], draw: Draw, under: &Under) -> Value {
    let mut body = json!({
        "input_ids": texts,
        "sampling_params": {
            "max_new_tokens": draw.count,
            "temperature": draw.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "ignore_eos": true,
            "skip_special_tokens": false,
        },
        "return_logprob": true,
        "stream": false,
    });
    if let Some(adapter) = &under.adapter {
        body["lora_path"] = json!(vec![adapter; texts.len()]);
    }
    body
}

/// What was drawn behind each text, in their order.
pub(super) fn drawn(body: &[u8]) -> Result<Vec<Drawn>, RemoteFault> {
    let answers: Vec<Answer> = parse(body)?;
    let of = |answer: Answer| {
        let logprobs = numbers(&answer.output_ids, &answer.meta_info.output_token_logprobs)?;
        Drawn::of(answer.output_ids, &logprobs)
    };
    answers.into_iter().map(of).collect()
}

#[derive(Debug, Deserialize)]
struct Info {
    model_path: String,
    is_generation: Option<bool>,
}

/// The reason not to use the server, if there is one.
pub(super) fn unfit(body: &[u8]) -> Result<Option<String>, RemoteFault> {
    let Info {
        model_path,
        is_generation,
    } = parse(body)?;
    let embeds = is_generation == Some(false);
    Ok(embeds.then(|| {
        format!("its model `{model_path}` does not generate; start it with one that does")
    }))
}

pub(super) fn load_adapter(name: &str, folder: &str) -> Value {
    json!({"lora_name": name, "lora_path": folder})
}

pub(super) fn update(folder: &str, version: u64) -> Value {
    json!({
        "model_path": folder,
        "weight_version": version.to_string(),
        "flush_cache": true,
        "abort_all_requests": false,
    })
}

/// Every step of a push says whether it succeeded.
pub(super) fn done(body: &[u8]) -> Result<(), RemoteFault> {
    let answer: Value = parse(body)?;
    match answer.get("success").and_then(Value::as_bool) {
        Some(true) => Ok(()),
        Some(false) => Err(RemoteFault::Refused(answer.to_string())),
        None => Err(RemoteFault::Malformed("no `success`".to_owned())),
    }
}

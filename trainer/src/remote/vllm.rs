//! vLLM's form of requests and answers.

use forage_contracts::policy::{GenerateRequest, Sampling};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{Ended, Sampled, parse};
use super::error::RemoteFault;
use super::probe::{Draw, Drawn};
use super::weights::Under;

pub(super) const COMPLETIONS: &str = "/v1/completions";
pub(super) const MODELS: &str = "/v1/models";
pub(super) const LOAD_ADAPTER: &str = "/v1/load_lora_adapter";
pub(super) const UNLOAD_ADAPTER: &str = "/v1/unload_lora_adapter";
/// Requests under way end first, new ones wait; older servers know the second word only.
pub(super) const PAUSE: &str = "/pause?mode=wait&wait_for_inflight_requests=true";
pub(super) const RPC: &str = "/collective_rpc";
pub(super) const RESET_CACHE: &str = "/reset_prefix_cache";
pub(super) const RESUME: &str = "/resume";

/// Everything that a model's `generation_config.json` would set is set: vLLM takes what is left out from there.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the protocol's own switches")]
struct Body<'a> {
    model: &'a str,
    prompt: &'a [u32],
    n: u32,
    max_tokens: usize,
    temperature: f32,
    top_p: f32,
    top_k: usize,
    min_p: f32,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    seed: u64,
    stop: &'a [String],
    include_stop_str_in_output: bool,
    ignore_eos: bool,
    skip_special_tokens: bool,
    /// Log-probabilities of the drawn tokens only.
    logprobs: u32,
    return_token_ids: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    return_tokens_as_token_ids: bool,
}

/// The request. `names`: the server is too old to list token ids and writes them as the tokens' names.
pub(super) fn body(
    request: &GenerateRequest,
    model: &str,
    under: &Under,
    granted: usize,
    names: bool,
) -> Vec<u8> {
    let Sampling {
        temperature,
        top_p,
        top_k,
        min_p,
    } = request.sampling;
    let body = Body {
        model: under.adapter.as_deref().unwrap_or(model),
        prompt: &request.tokens,
        n: 1,
        max_tokens: granted,
        temperature,
        top_p,
        top_k,
        min_p,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        // Signed there, and -1 meant none once.
        seed: request.seed.0 >> 1,
        stop: &request.stop,
        include_stop_str_in_output: true,
        ignore_eos: request.ignore_eos,
        skip_special_tokens: false,
        logprobs: 0,
        return_token_ids: true,
        return_tokens_as_token_ids: names,
    };
    serde_json::to_vec(&body).expect("numbers and strings can be written")
}

#[derive(Debug, Deserialize)]
struct Answer {
    choices: Vec<Choice>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    index: usize,
    #[serde(default)]
    text: String,
    token_ids: Option<Vec<u32>>,
    prompt_token_ids: Option<Vec<u32>>,
    logprobs: Option<Logprobs>,
    finish_reason: Option<String>,
    /// The stop string, the id of a stop token, or null at an end of sequence.
    stop_reason: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Logprobs {
    #[serde(default)]
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f64>>,
}

/// The answer; `None` when it names no token ids because the server is too old for `return_token_ids`.
pub(super) fn sampled(
    body: &[u8],
    request: &GenerateRequest,
) -> Result<Option<Sampled>, RemoteFault> {
    let malformed = |what: &str| RemoteFault::Malformed(what.to_owned());
    let mut choices = parse::<Answer>(body)?.choices;
    let (Some(choice), true) = (choices.pop(), choices.is_empty()) else {
        return Err(malformed("not one choice"));
    };
    let logprobs = choice.logprobs.ok_or_else(|| malformed("no `logprobs`"))?;
    if choice
        .prompt_token_ids
        .is_some_and(|prompt| prompt != request.tokens)
    {
        return Err(RemoteFault::Counts(
            "another prompt was continued than the one sent".to_owned(),
        ));
    }
    let ids = choice
        .token_ids
        .or_else(|| logprobs.tokens.iter().map(|name| named(name)).collect());
    let Some(tokens) = ids else { return Ok(None) };
    let ended = match choice.finish_reason.as_deref() {
        Some("length") => Ended::Length,
        Some("stop") => match choice.stop_reason {
            Some(Value::String(_)) => Ended::Stop,
            None | Some(Value::Null)
                if request.stop.iter().any(|stop| choice.text.ends_with(stop)) =>
            {
                Ended::Stop
            }
            _ => Ended::Eos,
        },
        Some("abort") => return Err(RemoteFault::Aborted("no reason given".to_owned())),
        other => {
            return Err(RemoteFault::Malformed(format!(
                "`finish_reason` is `{}`",
                other.unwrap_or("null")
            )));
        }
    };
    Ok(Some(Sampled {
        tokens,
        logprobs: logprobs.token_logprobs,
        ended,
        weights: None,
    }))
}

/// The request for tokens behind each text. `names`: as in [`body`].
pub(super) fn draw(
    texts: &[Vec<u32>],
    draw: Draw,
    model: &str,
    under: &Under,
    names: bool,
) -> Value {
    let mut body = json!({
        "model": under.adapter.as_deref().unwrap_or(model),
        "prompt": texts,
        "max_tokens": draw.count,
        "temperature": draw.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "ignore_eos": true,
        "skip_special_tokens": false,
        "logprobs": 0,
        "return_token_ids": true,
    });
    if names {
        body["return_tokens_as_token_ids"] = json!(true);
    }
    body
}

/// What was drawn behind each text, in their order; `None` as in [`sampled`].
pub(super) fn drawn(body: &[u8], texts: &[Vec<u32>]) -> Result<Option<Vec<Drawn>>, RemoteFault> {
    let mut choices = parse::<Answer>(body)?.choices;
    choices.sort_by_key(|choice| choice.index);
    let of = |(choice, text): (Choice, &Vec<u32>)| {
        if choice
            .prompt_token_ids
            .is_some_and(|prompt| prompt != *text)
        {
            let what = "another prompt was continued than the one sent".to_owned();
            return Err(RemoteFault::Counts(what));
        }
        let logprobs = choice
            .logprobs
            .ok_or_else(|| RemoteFault::Malformed("no `logprobs`".to_owned()))?;
        let ids = choice
            .token_ids
            .or_else(|| logprobs.tokens.iter().map(|name| named(name)).collect());
        ids.map(|ids| Drawn::of(ids, &logprobs.token_logprobs))
            .transpose()
    };
    choices.into_iter().zip(texts).map(of).collect()
}

fn named(name: &str) -> Option<u32> {
    name.strip_prefix("token_id:")?.parse().ok()
}

#[derive(Debug, Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Debug, Deserialize)]
struct Model {
    id: String,
    max_model_len: Option<usize>,
}

/// The reason not to use the server for `model` with sequences of `context` tokens, if there is one.
pub(super) fn unfit(
    body: &[u8],
    model: &str,
    context: usize,
) -> Result<Option<String>, RemoteFault> {
    let Models { data } = parse(body)?;
    let Some(found) = data.iter().find(|served| served.id == model) else {
        let served: Vec<&str> = data.iter().map(|served| served.id.as_str()).collect();
        return Ok(Some(format!(
            "it has no model `{model}` but {}; fix `model`",
            served.join(", ")
        )));
    };
    Ok(found.max_model_len.filter(|&most| most < context).map(|most| {
        format!("its sequences have at most {most} tokens; start it with --max-model-len {context} or lower `context`")
    }))
}

pub(super) fn load_adapter(name: &str, folder: &str) -> Value {
    json!({"lora_name": name, "lora_path": folder, "load_inplace": true})
}

pub(super) fn reload(folder: &str) -> Value {
    json!({"method": "reload_weights", "kwargs": {"weights_path": folder}})
}

/// Answers of the steps of a push are texts, nothing, or objects; those that tell of a failure are found here.
pub(super) fn done(body: &[u8]) -> Result<(), RemoteFault> {
    let Ok(Value::Object(answer)) = serde_json::from_slice::<Value>(body) else {
        return Ok(());
    };
    let failed = answer.get("success") == Some(&Value::Bool(false))
        || answer.get("error").is_some_and(|e| !e.is_null());
    if failed {
        Err(RemoteFault::Refused(Value::Object(answer).to_string()))
    } else {
        Ok(())
    }
}

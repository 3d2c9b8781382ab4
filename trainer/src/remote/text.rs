//! Any server of `OpenAI`'s protocol: text in, text out, counted by the server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use forage_contracts::policy::{Completion, Finish, GenerateRequest, Policy, PolicyError, Reply};
use forage_env::chat::hermes::ToolCall;
use forage_net::{Client, Fault, Request};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::parse;
use super::call::Caller;
use super::config::{Patience, RemoteConfig, RemoteKind};
use super::error::{RemoteError, RemoteFault};
use super::policy::RemotePolicy;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const MODELS: &str = "/v1/models";

/// A server that refuses the length of a request is asked for half the tokens, until it refuses so few: the window is full.
const FEWEST: usize = 16;

/// Most tokens that a server may say it has read or written, beyond every model's window: they are added up.
const MOST_TOKENS: usize = 1 << 30;

/// Fields beyond `OpenAI`'s, which servers of open models take and others refuse by name. What is left out they take from a model's
/// `generation_config.json`.
const BEYOND: [&str; 4] = [
    "include_stop_str_in_output",
    "min_p",
    "repetition_penalty",
    "top_k",
];

/// What a server was found to know of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that are found one by one"
)]
struct Dialect {
    /// Whether the server refuses the fields [`BEYOND`] `OpenAI`'s.
    plain: bool,
    /// Whether it was seen to keep a stop string in its text, as it was asked to.
    keeps_stops: bool,
    /// Whether it cuts stop strings off, or refuses them: completions then run on, and are cut here.
    cut_here: bool,
    /// Whether it refuses seeds.
    seedless: bool,
    /// Whether it takes `max_completion_tokens` instead of `max_tokens`.
    renamed: bool,
    /// Whether it refuses a temperature, as reasoning models do.
    own_temperature: bool,
    /// Whether it refuses a nucleus, or one beside a temperature.
    own_top_p: bool,
}

/// Words by which servers refuse a field whatever its value; else the value was wrong.
const UNKNOWN: [&str; 5] = [
    "support",
    "unrecognized",
    "unknown",
    "permitted",
    "deprecated",
];

impl Dialect {
    /// What follows from the words of a refusal.
    fn after(self, said: &str) -> Self {
        let plain = self.plain || BEYOND.iter().any(|field| said.contains(field));
        let words = said.to_lowercase();
        let unknown = UNKNOWN.iter().any(|word| words.contains(word));
        // "`temperature` and `top_p` cannot both be specified": one of them is enough.
        let both = words.contains("both");
        Self {
            plain,
            keeps_stops: self.keeps_stops,
            cut_here: self.cut_here || plain || said.contains("stop"),
            seedless: self.seedless || said.contains("seed"),
            renamed: self.renamed || said.contains("max_completion_tokens"),
            own_temperature: self.own_temperature
                || (said.contains("temperature") && unknown && !both),
            own_top_p: self.own_top_p || (said.contains("top_p") && (unknown || both)),
        }
    }

    /// The fields of sampling that it does not take.
    fn own_sampling(self) -> Option<&'static str> {
        match (self.own_temperature, self.own_top_p) {
            (false, false) => None,
            (true, false) => Some("temperature"),
            (false, true) => Some("top_p"),
            (true, true) => Some("temperature and top_p"),
        }
    }

    /// Whether stop strings are sent. What is read for calls of tools must not be cut by the server.
    fn sends_stops(self, conversation: &Map<String, Value>, stops: &[String]) -> bool {
        !self.cut_here && !stops.is_empty() && !conversation.contains_key("tools")
    }

    fn body(
        self,
        model: &str,
        conversation: &Map<String, Value>,
        request: &GenerateRequest,
        granted: usize,
    ) -> Vec<u8> {
        let sampling = request.sampling;
        let mut body = conversation.clone();
        let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
        set("model", model.into());
        if !self.own_temperature {
            set("temperature", sampling.temperature.into());
        }
        if !self.own_top_p {
            set("top_p", sampling.top_p.into());
        }
        let limit = if self.renamed {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        set(limit, granted.into());
        if !self.seedless {
            // Signed there.
            set("seed", (request.seed.0 >> 1).into());
        }
        let stops = self.sends_stops(conversation, &request.stop);
        if stops {
            set("stop", request.stop.as_slice().into());
        }
        if !self.plain {
            // No cut is -1 to vLLM and SGLang; the latter refuses 0.
            let cut = i64::try_from(sampling.top_k).ok().filter(|&cut| cut > 0);
            set("top_k", cut.unwrap_or(-1).into());
            set("min_p", sampling.min_p.into());
            set("repetition_penalty", 1.0.into());
        }
        if !self.plain && stops {
            set("include_stop_str_in_output", true.into());
        }
        Value::Object(body).to_string().into_bytes()
    }
}

/// The part of an answer that is read.
#[derive(Debug, Deserialize)]
struct Answer {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    /// Text of a completion.
    text: Option<String>,
    /// Message of a chat.
    message: Option<Message>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Message {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
}

/// Reads an answer. One that is cut short of the tokens that were wanted ends with the server's window.
fn read(body: &[u8], request: &GenerateRequest) -> Result<Reply, RemoteFault> {
    let malformed = |what: &str| RemoteFault::Malformed(what.to_owned());
    let Answer { mut choices, usage } = parse(body)?;
    let (Some(choice), true) = (choices.pop(), choices.is_empty()) else {
        return Err(malformed("not one choice"));
    };
    let usage = usage.ok_or_else(|| malformed("no `usage`, by which tokens are counted"))?;
    if usage.prompt_tokens.max(usage.completion_tokens) > MOST_TOKENS {
        let (read, written) = (usage.prompt_tokens, usage.completion_tokens);
        return Err(RemoteFault::Counts(format!(
            "`usage` tells of {read} and {written} tokens, more than any model reads"
        )));
    }
    let (mut text, calls) = match (choice.message, choice.text) {
        (Some(message), _) => {
            let text = message.content.or(message.refusal).unwrap_or_default();
            (text, message.tool_calls.unwrap_or_default())
        }
        (None, Some(text)) => (text, Vec::new()),
        (None, None) => return Err(malformed("neither `message` nor `text`")),
    };
    let uncounted = usage.completion_tokens == 0;
    let nothing = text.is_empty() && calls.is_empty();
    if uncounted && !nothing {
        let fault = "`usage` counts no tokens of what was written";
        return Err(RemoteFault::Counts(fault.to_owned()));
    }
    let finish = match choice.finish_reason.as_deref() {
        // Even a model that ends at once has drawn its last token.
        Some("stop") if uncounted => {
            return Err(RemoteFault::Counts("no tokens at all".to_owned()));
        }
        Some("stop") => Finish::Eos,
        Some("tool_calls" | "function_call") => Finish::Stop,
        Some("length") if usage.completion_tokens < request.max_tokens => Finish::Context,
        // A filter cuts what was written, as a limit does: it is no fault of the server, and comes again.
        Some("length" | "content_filter") => Finish::Length,
        Some("abort") => return Err(RemoteFault::Aborted("no reason given".to_owned())),
        other => {
            return Err(RemoteFault::Malformed(format!(
                "`finish_reason` is `{}`",
                other.unwrap_or("null")
            )));
        }
    };
    let mut stopped = cut(&mut text, &request.stop);
    let mut message = json!({"role": "assistant", "content": text});
    let (mut written, mut readable) = (Vec::new(), true);
    for call in calls {
        if stopped {
            break;
        }
        let (block, is_object) = hermes(&call)?;
        readable &= is_object;
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&block);
        stopped = cut(&mut text, &request.stop);
        written.push(call);
    }
    if !readable {
        // Servers refuse to be shown such a call again, and who wrote it may not end the conversation.
        message["content"] = text.as_str().into();
    } else if !written.is_empty() {
        message["tool_calls"] = written.into();
    }
    Ok(Reply {
        text,
        message,
        finish: if stopped { Finish::Stop } else { finish },
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        version: 0,
    })
}

/// Cuts a text behind the stop string that is completed first; returns whether there is one.
fn cut(text: &mut String, stops: &[String]) -> bool {
    let ends = stops
        .iter()
        .filter_map(|stop| Some(text.find(stop.as_str())? + stop.len()));
    let end = ends.min();
    text.truncate(end.unwrap_or(text.len()));
    end.is_some()
}

/// A call as Hermes models write it, and whether its arguments are an object, as they must be.
fn hermes(call: &Value) -> Result<(String, bool), RemoteFault> {
    let malformed = || RemoteFault::Malformed("a call of a tool without a name".to_owned());
    let function = &call["function"];
    let name = function["name"].as_str().ok_or_else(malformed)?;
    let arguments = match &function["arguments"] {
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
        other => other.clone(),
    };
    let is_object = arguments.is_object();
    let [open, close] = ToolCall::TAGS;
    let block = json!({"name": name, "arguments": arguments}).to_string();
    // A closing tag in a text would end the call where it is read.
    let block = block.replace(close, &close.replacen('<', "\\u003c", 1));
    Ok((format!("{open}\n{block}\n{close}"), is_object))
}

/// A server as a policy that reads text.
#[derive(Debug)]
struct TextPolicy {
    model: String,
    request_timeout: Duration,
    caller: Caller,
    /// Found out on the way.
    dialect: Mutex<Dialect>,
}

impl RemotePolicy {
    /// The policy behind any server of `OpenAI`'s protocol, `http(s)://HOST[:PORT][/v1]`: `model`, or its only one. It reads text:
    /// chats by `/v1/chat/completions`, running text by `/v1/completions`. Its tokens are those of the server's `usage`, and nobody
    /// knows their ids or log-probabilities. `token_file` is read; over plain http it is for servers on this machine. Requests are tried
    /// as `patience` says.
    ///
    /// # Errors
    /// [`RemoteError::Setting`] for settings that cannot be right, [`RemoteError::Call`] where the server does not answer.
    pub async fn text(
        url: &str,
        model: Option<&str>,
        token_file: Option<PathBuf>,
        patience: &Patience,
    ) -> Result<Arc<dyn Policy>, RemoteError> {
        patience.check()?;
        let base = url.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base);
        if token_file.is_some() && Client::is_plain(base) {
            let what =
                "would be readable on the way: this is plain http to another machine; use https";
            return Err(RemoteError::setting("token_file", what));
        }
        let config = RemoteConfig {
            token_file,
            ..patience.with(RemoteKind::Vllm, base)
        };
        let caller = Caller::new(&config, base)?;
        let request_timeout = config.request_timeout();
        let list = || async {
            let request = Request::get(caller.client.at(MODELS));
            parse::<Models>(&caller.client.send(&request, request_timeout).await?)
        };
        let found = caller.retry(MODELS, || Ok(()), |_| true, list).await;
        let model = found.map_err(unauthorized)?.choose(model)?;
        Ok(Arc::new(TextPolicy {
            model,
            request_timeout,
            caller,
            dialect: Mutex::default(),
        }))
    }
}

/// The error with its fix where a server asks for a token.
fn unauthorized(error: RemoteError) -> RemoteError {
    let RemoteError::Call { fault, .. } = &error else {
        return error;
    };
    let refused = |fault: &Fault| {
        matches!(
            fault,
            Fault::Status {
                status: 401 | 403,
                ..
            }
        )
    };
    if !matches!(fault, RemoteFault::Net(fault) if refused(fault)) {
        return error;
    }
    let what = format!("is missing, or holds no token of this server ({error})");
    RemoteError::setting("token_file", what)
}

/// The error with its fix where a server has chats alone, or a model that cannot chat.
fn advised(mut error: RemoteError, path: &str) -> RemoteError {
    if let RemoteError::Call {
        fault: RemoteFault::Net(Fault::Status { status, body, .. }),
        ..
    } = &mut error
    {
        let fix = match *status {
            404 | 405 if path == COMPLETIONS => {
                "; where the server has chats alone, add [policy.chat] (--set policy.chat={})"
            }
            400 if path == CHAT && body.contains("chat template") => {
                "; a config without [policy.chat] asks for running text; without a config episodes are chats"
            }
            _ => "",
        };
        body.push_str(fix);
    }
    error
}

#[derive(Debug, Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Debug, Deserialize)]
struct Model {
    id: String,
}

/// Names of a server's models that an error shows.
const SHOWN: usize = 8;

impl Models {
    /// The one that is meant, or the only one.
    fn choose(&self, meant: Option<&str>) -> Result<String, RemoteError> {
        let names: Vec<&str> = self.data.iter().map(|model| model.id.as_str()).collect();
        if names.is_empty() {
            let what = "cannot be told: the server lists none; check the address, and that a model is loaded there";
            return Err(RemoteError::setting("model", what));
        }
        let found = match meant {
            Some(meant) => names.iter().find(|&&name| name == meant),
            None => names.first().filter(|_| names.len() == 1),
        };
        if let Some(name) = found {
            return Ok((*name).to_owned());
        }
        let known = names[..names.len().min(SHOWN)].join("`, `");
        let more = if names.len() > SHOWN { ", ..." } else { "" };
        let fault = match meant {
            Some(meant) => format!("is `{meant}`, which the server does not list"),
            None => format!("is not given, and the server lists {}", names.len()),
        };
        let what = format!("{fault}; name one of `{known}`{more}");
        Err(RemoteError::setting("model", what))
    }
}

impl TextPolicy {
    fn dialect(&self) -> Dialect {
        *self.dialect.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, change: impl FnOnce(&mut Dialect)) {
        change(&mut self.dialect.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Writes what comes next, as [`Policy::reply`] with its error untranslated.
    async fn speak(
        &self,
        conversation: &Map<String, Value>,
        request: &GenerateRequest,
    ) -> Result<Option<Reply>, RemoteError> {
        if request.max_tokens == 0 {
            let fault = "max_tokens must be at least 1".to_owned();
            return Err(RemoteError::Request(fault));
        }
        let checked = request.sampling.check();
        checked.map_err(|fault| RemoteError::Request(fault.to_string()))?;
        self.caller.alive()?;
        let path = if conversation.contains_key("prompt") {
            COMPLETIONS
        } else {
            CHAT
        };
        let mut granted = request.max_tokens;
        loop {
            let attempt = || self.attempt(path, conversation, request, granted);
            let usable = || self.caller.alive();
            let outcome = self.caller.retry(path, usable, |_| true, attempt).await;
            match outcome {
                Err(RemoteError::Call { fault, .. }) if fault.is_length() => {
                    if granted <= FEWEST {
                        return Ok(None);
                    }
                    granted = (granted / 2).max(FEWEST);
                }
                outcome => return outcome.map(Some).map_err(|error| advised(error, path)),
            }
        }
    }

    /// One try. A server that cuts stop strings off does not say where it met one: until it was seen to keep one, an answer that may
    /// have been cut is asked for once more without them.
    async fn attempt(
        &self,
        path: &str,
        conversation: &Map<String, Value>,
        request: &GenerateRequest,
        granted: usize,
    ) -> Result<Reply, RemoteFault> {
        let (reply, stops) = self.ask(path, conversation, request, granted).await?;
        match reply.finish {
            Finish::Stop if stops => self.learn(|dialect| dialect.keeps_stops = true),
            Finish::Eos if stops && !self.dialect().keeps_stops => {
                let dialect = Dialect {
                    cut_here: true,
                    ..self.dialect()
                };
                let body = dialect.body(&self.model, conversation, request, granted);
                let answer = self.caller.post(path, body, self.request_timeout).await?;
                let unstopped = read(&answer, request)?;
                if unstopped.finish == Finish::Stop {
                    self.learn(|dialect| dialect.cut_here = true);
                }
                return Ok(unstopped);
            }
            _ => {}
        }
        Ok(reply)
    }

    /// Asks in the dialect known so far: what the server refuses of it by name is left out at once. The answer, and whether stop
    /// strings were sent.
    async fn ask(
        &self,
        path: &str,
        conversation: &Map<String, Value>,
        request: &GenerateRequest,
        granted: usize,
    ) -> Result<(Reply, bool), RemoteFault> {
        let cuts = request.sampling.top_k > 0 || request.sampling.min_p > 0.0;
        loop {
            let dialect = self.dialect();
            if dialect.plain && cuts {
                let what = "it knows neither top_k nor min_p; leave them out";
                return Err(RemoteFault::Refused(what.to_owned()));
            }
            let body = dialect.body(&self.model, conversation, request, granted);
            let fault = match self.caller.post(path, body, self.request_timeout).await {
                Ok(answer) => {
                    let stops = dialect.sends_stops(conversation, &request.stop);
                    return Ok((read(&answer, request)?, stops));
                }
                Err(fault) => fault,
            };
            if !fault.is_refusal() || fault.is_length() || dialect.after(fault.said()) == dialect {
                return Err(fault);
            }
            self.learn(|dialect| *dialect = dialect.after(fault.said()));
            if let Some(words) = self.caveat().filter(|_| dialect.own_sampling().is_none()) {
                tracing::warn!("{words}");
            }
        }
    }
}

#[async_trait]
impl Policy for TextPolicy {
    fn version(&self) -> u64 {
        0
    }

    fn reads_text(&self) -> bool {
        true
    }

    fn caveat(&self) -> Option<String> {
        let fields = self.dialect().own_sampling()?;
        let url = self.caller.client.base();
        Some(format!(
            "The server at {url} does not take {fields}: how tokens are drawn is its own, whatever was asked for, and episodes that are \
             called greedy may be sampled."
        ))
    }

    async fn generate(&self, _request: GenerateRequest) -> Result<Completion, PolicyError> {
        let fault = "tokens for a policy that reads text";
        Err(PolicyError::BadRequest(fault.to_owned()))
    }

    async fn reply(
        &self,
        conversation: &Map<String, Value>,
        request: GenerateRequest,
    ) -> Result<Option<Reply>, PolicyError> {
        self.caller.counters.lock().requests += 1;
        let outcome = self.speak(conversation, &request).await;
        let reply = outcome.as_ref().ok().and_then(Option::as_ref);
        let tokens = reply.map_or(0, |reply| reply.completion_tokens);
        self.caller.account(&outcome, tokens);
        Ok(outcome?)
    }
}

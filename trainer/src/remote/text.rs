//! Any server of `OpenAI`'s protocol: text in, text out, counted by the server.

mod dialect;
mod reply;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use forage_contracts::policy::{Completion, Finish, GenerateRequest, Policy, PolicyError, Reply};
use forage_net::{Client, Fault, Request};
use serde::Deserialize;
use serde_json::{Map, Value};

use self::dialect::Dialect;
use self::reply::read;
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
                let mut dialect = self.dialect();
                dialect.cut_here = true;
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

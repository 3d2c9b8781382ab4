//! The server to ask, and the patience with it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use forage_contracts::OneOrMany;
use forage_net::{Client, HttpOptions, KeyHeader, Retry};
use serde::{Deserialize, Serialize};

use super::error::RemoteError;
use crate::device::ComputeType;

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RemoteKind {
    /// vLLM, or a server with its form of `POST /v1/completions`.
    Vllm,
    /// SGLang's own `POST /generate`.
    Sglang,
}

/// A server of completions, or several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoteConfig {
    /// Its protocol.
    pub kind: RemoteKind,
    /// Its address, `http://HOST:PORT`, without `/v1`; several servers of the same model as a list.
    #[serde(with = "OneOrMany")]
    #[schemars(schema_with = "one_or_many")]
    pub url: Vec<String>,
    /// vLLM: the model's name there, as `/v1/models` lists it. SGLang serves one model, and takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Most tokens of one sequence, prompt and completion together.
    pub context: usize,
    /// The type that the server computes in, `f32` or `bf16` (for f16 too): how far its log-probabilities may be from the trainer's
    /// after a push. By default the type that the checkpoint's `config.json` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<ComputeType>,
    /// File that holds the access token, sent as `Authorization: Bearer`; blanks and line ends around it are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Longest time one try of a completion may take, s.
    #[serde(default = "ten_minutes")]
    pub request_timeout_s: f64,
    /// Longest time each step of a push may take, s.
    #[serde(default = "ten_minutes")]
    pub push_timeout_s: f64,
    /// Longest time to wait for a server that is starting, s.
    #[serde(default = "ten_minutes")]
    pub ready_timeout_s: f64,
    /// Most further tries after a failed one.
    #[serde(default = "retries")]
    pub retries: u32,
    /// Wait after the first failed try, ms; it doubles with each further one, up to 30 s.
    #[serde(default = "backoff_ms")]
    pub backoff_ms: u64,
    /// Requests in a row that fail, tries included, before the server counts as gone.
    #[serde(default = "give_up_after")]
    pub give_up_after: u32,
}

fn ten_minutes() -> f64 {
    600.0
}

fn retries() -> u32 {
    3
}

fn backoff_ms() -> u64 {
    250
}

fn give_up_after() -> u32 {
    16
}

/// The patience with a server that tells text alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Patience {
    /// Longest time one try of a turn may take, s.
    pub request_timeout_s: f64,
    /// Most further tries after a failed one.
    pub retries: u32,
    /// Wait after the first failed try, ms; it doubles with each further one, up to 30 s.
    pub backoff_ms: u64,
    /// Requests in a row that fail, tries included, before the server counts as gone.
    pub give_up_after: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            request_timeout_s: ten_minutes(),
            retries: retries(),
            backoff_ms: backoff_ms(),
            give_up_after: give_up_after(),
        }
    }
}

impl Patience {
    /// Checks the values.
    ///
    /// # Errors
    /// [`RemoteError::Setting`] with the key at fault.
    pub fn check(&self) -> Result<(), RemoteError> {
        // SGLang needs no model.
        self.with(RemoteKind::Sglang, "").check()
    }

    /// The settings for a server that is asked with this patience.
    pub(super) fn with(&self, kind: RemoteKind, url: &str) -> RemoteConfig {
        RemoteConfig {
            request_timeout_s: self.request_timeout_s,
            retries: self.retries,
            backoff_ms: self.backoff_ms,
            give_up_after: self.give_up_after,
            ..RemoteConfig::new(kind, url, usize::MAX)
        }
    }
}

impl RemoteConfig {
    /// The defaults for a server.
    pub fn new(kind: RemoteKind, url: impl Into<String>, context: usize) -> Self {
        Self {
            kind,
            url: vec![url.into()],
            model: None,
            context,
            dtype: None,
            token_file: None,
            request_timeout_s: ten_minutes(),
            push_timeout_s: ten_minutes(),
            ready_timeout_s: ten_minutes(),
            retries: retries(),
            backoff_ms: backoff_ms(),
            give_up_after: give_up_after(),
        }
    }

    /// Checks the values that can be judged without the server.
    ///
    /// # Errors
    /// [`RemoteError::Setting`] with the key at fault.
    pub fn check(&self) -> Result<(), RemoteError> {
        let timed = |seconds: f64| seconds > 0.0 && seconds <= 1e6;
        let model = self.model.as_ref().is_some_and(|model| !model.is_empty());
        let distinct: BTreeSet<&str> = self
            .url
            .iter()
            .map(|url| url.trim_end_matches('/'))
            .collect();
        let faults = [
            (
                !self.url.is_empty(),
                "url",
                "is empty; write the address of a server, or a list of them",
            ),
            (
                distinct.len() == self.url.len(),
                "url",
                "names a server twice",
            ),
            (
                self.context >= 2,
                "context",
                "must leave room for a prompt and a token: at least 2",
            ),
            (
                timed(self.request_timeout_s),
                "request_timeout_s",
                "must be above 0 s and at most 1e6 s",
            ),
            (
                timed(self.push_timeout_s),
                "push_timeout_s",
                "must be above 0 s and at most 1e6 s",
            ),
            (
                timed(self.ready_timeout_s),
                "ready_timeout_s",
                "must be above 0 s and at most 1e6 s",
            ),
            (
                self.give_up_after >= 1,
                "give_up_after",
                "must be at least 1",
            ),
            (
                model || self.kind != RemoteKind::Vllm,
                "model",
                "is missing; write the name that the server lists",
            ),
            (
                !model || self.kind != RemoteKind::Sglang,
                "model",
                "is only for vllm; leave it out",
            ),
        ];
        match faults.into_iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, key, what)) => Err(RemoteError::setting(key, what)),
        }
    }

    pub(super) fn request_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.request_timeout_s)
    }

    pub(super) fn push_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.push_timeout_s)
    }

    /// Prepares calls; nothing is sent.
    pub(super) fn client(&self, url: &str) -> Result<Client, RemoteError> {
        if url.trim_end_matches('/').ends_with("/v1") {
            return Err(RemoteError::setting("url", "ends with /v1; leave that out"));
        }
        let options = HttpOptions {
            // The episodes in flight are limited elsewhere.
            concurrency: usize::MAX,
            token_file: self.token_file.clone(),
            ..HttpOptions::default()
        };
        Ok(Client::new(url, options, KeyHeader::Authorization)?)
    }

    pub(super) fn retry(&self) -> Retry {
        Retry {
            attempts: self.retries.saturating_add(1),
            backoff: Duration::from_millis(self.backoff_ms),
            deadline: None,
        }
    }
}

/// The schema of an address or a list of addresses.
fn one_or_many(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }]
    })
}

//! `[reward.judge]`.

use std::path::PathBuf;

use forage_net::HttpOptions;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::JudgeError;
use super::{BATCH, ENTRY, TOURNAMENT, TURNS};

/// The judge, its instructions and its budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeSettings {
    /// The server's address without `/v1`, `http://HOST:PORT`: anything that answers `POST /v1/chat/completions`.
    pub url: String,
    /// The model's name there.
    pub model: String,
    /// File with an access token, sent as `Authorization: Bearer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Longest time one try may take, s.
    #[serde(default = "a_minute")]
    pub timeout_s: f64,
    /// Most attempts at one verdict, replies without a verdict included.
    #[serde(default = "three")]
    pub attempts: u32,
    /// Most calls in flight at once.
    #[serde(default = "eight")]
    pub concurrency: usize,
    /// Most tokens of a reply.
    #[serde(default = "reply")]
    pub max_tokens: u32,
    /// Whether the server is to hold replies to their form: a `response_format` with the JSON schema of a verdict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub structured: bool,
    /// Further fields of every request, as the server names them: `{ chat_template_kwargs = { enable_thinking = false } }` switches
    /// a Qwen3's thinking off.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra_body: Map<String, Value>,
    /// Characters of an episode that the judge is shown; the middle of a longer one is left out.
    #[serde(default = "transcript")]
    pub transcript_chars: usize,
    /// Most requests sent, tries included, by one use of the judge: a training run's rollouts, or an evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Tokens read and written by the judge, as its server counts them, after which nothing more is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_total_tokens: Option<u64>,
    /// File of verdicts that are not asked for again; made when missing, with its folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// Principles, each of which holds or does not, in place of correctness and approach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rubric: Vec<String>,
}

/// Fields of a request that follow from the other settings.
const OWN: [&str; 7] = [
    "model",
    "messages",
    "temperature",
    "max_tokens",
    "response_format",
    "n",
    "stream",
];

fn a_minute() -> f64 {
    60.0
}

fn three() -> u32 {
    3
}

fn eight() -> usize {
    8
}

fn reply() -> u32 {
    512
}

fn transcript() -> usize {
    12_000
}

impl JudgeSettings {
    /// The rewards that have these settings.
    pub const REWARDS: [&str; 4] = [ENTRY.name, BATCH.name, TOURNAMENT.name, TURNS.name];

    /// Keys that change no verdict: a run may change them between its sessions.
    pub const CONDUCT: [&str; 8] = [
        "url",
        "token_file",
        "timeout_s",
        "attempts",
        "concurrency",
        "max_calls",
        "max_total_tokens",
        "cache",
    ];

    /// The defaults for a server and a model on it.
    pub fn new(url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            model: model.into(),
            token_file: None,
            timeout_s: a_minute(),
            attempts: three(),
            concurrency: eight(),
            max_tokens: reply(),
            structured: false,
            extra_body: Map::new(),
            transcript_chars: transcript(),
            max_calls: None,
            max_total_tokens: None,
            cache: None,
            rubric: Vec::new(),
        }
    }

    /// Checks what can be judged without the server.
    ///
    /// # Errors
    /// [`JudgeError::Setting`] with the key at fault.
    pub fn check(&self) -> Result<(), JudgeError> {
        if let Some(key) = OWN.iter().find(|&&key| self.extra_body.contains_key(key)) {
            return Err(JudgeError::Setting {
                key: format!("extra_body.{key}"),
                what: "is a field that the judge writes itself; leave it out".to_owned(),
            });
        }
        let faults = [
            (
                !self.model.trim().is_empty(),
                "model",
                "is empty; write the name that the server lists",
            ),
            (
                !self.url.trim_end_matches('/').ends_with("/v1"),
                "url",
                "ends with /v1; leave that out",
            ),
            (
                self.timeout_s >= 0.001 && self.timeout_s <= 1e6,
                "timeout_s",
                "must be 0.001 s to 1e6 s",
            ),
            (self.attempts >= 1, "attempts", "must be at least 1"),
            (self.concurrency >= 1, "concurrency", "must be at least 1"),
            (self.max_tokens >= 1, "max_tokens", "must be at least 1"),
            (
                self.max_calls != Some(0),
                "max_calls",
                "is 0, which allows nothing; leave it out for no limit",
            ),
            (
                self.max_total_tokens != Some(0),
                "max_total_tokens",
                "is 0, which allows nothing; leave it out for no limit",
            ),
            (
                self.rubric
                    .iter()
                    .all(|principle| !principle.trim().is_empty()),
                "rubric",
                "has an empty principle; write a sentence that holds or does not",
            ),
        ];
        match faults.into_iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, key, what)) => Err(JudgeError::Setting {
                key: key.to_owned(),
                what: what.to_owned(),
            }),
        }
    }

    /// How the server is called.
    pub(super) fn http(&self) -> HttpOptions {
        let timeout_ms = (self.timeout_s * 1000.0) as u64;
        HttpOptions {
            timeout_ms,
            // Room for every try and for the longest waits between them.
            deadline_ms: u64::from(self.attempts).saturating_mul(timeout_ms.saturating_add(30_000)),
            attempts: self.attempts,
            concurrency: self.concurrency,
            // Four bytes of text a token and JSON's escapes; far above what `max_tokens` allows.
            max_answer_bytes: (1 << 20) + 64 * u64::from(self.max_tokens),
            token_file: self.token_file.clone(),
            ..HttpOptions::default()
        }
    }
}

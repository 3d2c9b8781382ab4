//! Policies continue token sequences: token ids in, token ids out.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::seed::Seed;
use crate::setting::SettingError;

/// The way tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// Softmax temperature; 0 is greedy, and so is anything below 1e-5.
    pub temperature: f32,
    /// Nucleus mass kept, in (0, 1]; 1 keeps the full vocabulary, as training requires (Holtzman et al. 2020).
    pub top_p: f32,
    /// Most likely tokens kept; 0 keeps all.
    #[serde(default)]
    pub top_k: usize,
    /// Tokens less likely than this share of the most likely one are dropped, in [0, 1]; 0 keeps all (Nguyen et al. 2024).
    #[serde(default)]
    pub min_p: f32,
}

impl Sampling {
    /// The highest-probability token each time.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        ..Self::FULL
    };
    /// The policy's own distribution.
    pub const FULL: Self = Self {
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
    };

    /// Returns true where the highest-probability token is taken each time.
    pub fn is_greedy(&self) -> bool {
        self.temperature < 1e-5
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// A sentence that names the key at fault.
    pub fn check(&self) -> Result<(), SettingError> {
        let faults = [
            (
                self.temperature >= 0.0 && self.temperature.is_finite(),
                "temperature",
                "must be 0 or more",
            ),
            (
                self.top_p > 0.0 && self.top_p <= 1.0,
                "top_p",
                "must be above 0 and at most 1",
            ),
            (
                (0.0..=1.0).contains(&self.min_p),
                "min_p",
                "must be between 0 and 1",
            ),
        ];
        faults
            .iter()
            .find(|(holds, ..)| !holds)
            .map_or(Ok(()), |(_, key, fault)| {
                Err(SettingError::new(*key, *fault))
            })
    }
}

/// One call to a policy: continue `tokens`.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// Names the episode, so that an engine may keep its key-value cache between turns.
    pub episode: u64,
    /// Everything so far. Within an episode each request's tokens extend the previous request's. Empty for a policy that
    /// [reads text](Policy::reads_text).
    pub tokens: Vec<u32>,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// Generation ends when the decoded completion contains one of these; the token that completes it is kept.
    pub stop: Vec<String>,
    /// Whether an end-of-sequence token is a token like any other.
    pub ignore_eos: bool,
    /// The way tokens are drawn.
    pub sampling: Sampling,
    /// Start of the random stream of this completion.
    pub seed: Seed,
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// A stop string was completed.
    Stop,
    /// An end-of-sequence token was sampled (and is the last token).
    Eos,
    /// `max_tokens` were generated.
    Length,
    /// The context window is full.
    Context,
}

/// The text and tokens that a policy generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// New tokens only, ending with the stop or end-of-sequence token when one was sampled.
    pub tokens: Vec<u32>,
    /// `logprobs[i]` = ln p(`tokens[i]`) in nats under the full-vocabulary softmax at the sampling temperature, before
    /// any cut by top-p, top-k or min-p. Greedy completions report temperature 1.
    pub logprobs: Vec<f32>,
    /// Why it ended.
    pub finish: Finish,
    /// Policy version that sampled it: +1 per optimizer step.
    pub version: u64,
}

/// A turn of a policy that reads text.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The turn as environments read it: up to its stop string, which is kept, with calls of tools as Hermes models write them.
    pub text: String,
    /// The turn as a message of the assistant, to be appended to the conversation.
    pub message: Value,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens read, as counted by the server that runs the model: the whole conversation before it.
    pub prompt_tokens: usize,
    /// Tokens written, counted likewise.
    pub completion_tokens: usize,
    /// Policy version that wrote it.
    pub version: u64,
}

/// A policy could not answer. Always an infrastructure fault: never a reward of zero.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PolicyError {
    /// The engine stopped or is unreachable.
    #[error("the policy is gone: {0}")]
    Gone(String),
    /// The request breaks the contract (empty prompt, unknown token id, prompt beyond the context window, bad sampling).
    #[error("bad generation request: {0}")]
    BadRequest(String),
    /// The model produced a non-finite number.
    #[error("the model produced a non-finite value: {0}")]
    NonFinite(String),
    /// A remote engine did not answer this request, tries and waits included; the next one may fare better.
    #[error("the policy did not answer: {0}")]
    Unavailable(String),
    /// A remote engine's answer cannot be used.
    #[error("the policy's answer cannot be used: {0}")]
    Malformed(String),
}

/// Continues token sequences.
#[async_trait]
pub trait Policy: Send + Sync {
    /// +1 per optimizer step; stamped on each completion.
    fn version(&self) -> u64;

    /// Samples one completion.
    ///
    /// # Errors
    /// [`PolicyError`] when the policy cannot answer; the episode then ends as an infrastructure fault.
    async fn generate(&self, request: GenerateRequest) -> Result<Completion, PolicyError>;

    /// Whether it reads and writes text, and nobody here knows its tokens: it is then asked by [`Self::reply`] alone.
    fn reads_text(&self) -> bool {
        false
    }

    /// Writes what comes next where the policy reads text. `conversation` has `OpenAI`'s fields for it: `prompt`, a running text, or
    /// `messages`, with `tools` and `chat_template_kwargs` where there are some. `None` where it no longer fits the policy's window.
    ///
    /// # Errors
    /// As [`Self::generate`].
    async fn reply(
        &self,
        _conversation: &Map<String, Value>,
        _request: GenerateRequest,
    ) -> Result<Option<Reply>, PolicyError> {
        let fault = "text for a policy that reads tokens";
        Err(PolicyError::BadRequest(fault.to_owned()))
    }

    /// A sentence for readers of the results about a request that the policy could not follow, for instance a temperature that its server
    /// refused; known once it has played.
    fn caveat(&self) -> Option<String> {
        None
    }

    /// The episode is over: what was kept for it may be dropped.
    fn release(&self, _episode: u64) {}
}

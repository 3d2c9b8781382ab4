//! Rollouts from vLLM and SGLang servers: tokens in, tokens out, through the trait that the engine here implements too. Any other
//! server of OpenAI's protocol is a policy that reads text ([`RemotePolicy::text`]): it is evaluated and not trained.
//!
//! [`RemotePolicy::connect`] waits for one server or several; `Server::push` hands one new weights by way of a folder that
//! both sides see: an adapter as PEFT writes it, or a whole checkpoint.
//!
//! # What is checked
//! An answer is used only if it is whole: one finite log-probability of at most 0 per token, at least one token and no
//! more than were asked for, the prompt that was sent, SGLang's two lists of token ids the same. Everything else is a
//! [`RemoteError`], never an empty turn. What may pass (no connection, a connection that breaks off, time-outs, 429,
//! 5xx, a body that cannot be used) is tried again; what the server refuses is not. After
//! [`RemoteConfig::give_up_after`] requests in a row without an answer the policy is gone for good.
//!
//! # Pushes
//! A push has succeeded when the server was seen to have the weights, not when it has answered 200: it goes on with a few texts
//! (`trainer/src/push.rs`), in one request, and a push after which its log-probabilities of what it drew are not the trainer's fails.
//! Before the first push of a process the server is shown weights that are changed on purpose (`Server::prove`), which rounding cannot hide.
//!
//! A server that was restarted has the weights of its start. It does not know the adapter's name, SGLang says which whole weights a
//! completion is of, and vLLM is asked (`Server::confirm`) where a connection has failed: it is found out where its weights differ by more
//! than rounding. Once that is known, none of its tokens is used before the next push.
//!
//! # Several servers
//! Episodes are dealt to servers by `Router`. Whoever is not seen to have the newest weights is not asked: a server that fails is given
//! up as long as others are there, and is asked again once it has answered a push.
//!
//! # Versions
//! An adapter is loaded under a name of its own for each version, so that a request is sampled under one adapter from
//! its first token to its last, and nothing that a server cached under another one is used. Where several steps are played ahead, an
//! episode goes on under the adapter that it began with (`RemotePolicy::pinned`), and as many adapters stay on the server. Whole weights
//! are replaced in place: a request that saw a replacement carries the older version, unless SGLang says which it was.
//!
//! # Log-probabilities
//! SGLang reports them at the sampling temperature before any cut, as [`forage_contracts::policy::Completion`] wants. vLLM's
//! default, `--logprobs-mode raw_logprobs`, is temperature 1 whatever the sampling; at other temperatures start it with
//! `--logprobs-mode processed_logprobs`, which agrees where nothing is cut. Learners recompute them in any case.
//!
//! # What servers need
//! vLLM: for adapters `--enable-lora --max-lora-rank R --max-loras 2` (with one, requests of a new adapter wait for
//! those of the old one; where K steps are played ahead, K + 1) and `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`; for whole
//! weights `VLLM_SERVER_DEV_MODE=1`.
//! SGLang of at least 0.5.4: for adapters `--enable-lora --max-lora-rank R --lora-target-modules ...`; seeds count only
//! with `--enable-deterministic-inference`. Speculative decoding must be off where there are stop strings: a server may
//! report tokens that it drew beyond one.

mod adapter;
mod answer;
mod call;
mod config;
mod error;
mod policy;
mod probe;
mod push;
mod ready;
mod router;
mod server;
mod sglang;
mod stats;
mod text;
mod vllm;
mod weights;

pub use config::{Patience, RemoteConfig, RemoteKind};
pub use error::{RemoteError, RemoteFault};
pub use policy::RemotePolicy;
#[cfg(test)]
pub(crate) use stats::RemoteStats;

pub(crate) use probe::{Gap, Probe};
pub(crate) use server::Server;
pub(crate) use weights::PushKind;
#[cfg(test)]
pub(crate) use weights::Under;

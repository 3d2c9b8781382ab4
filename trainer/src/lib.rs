//! The learner: decoders in Burn, a generation engine, supervised fine-tuning and GRPO.
//!
//! # What it is
//! The only crate that names Burn. It implements `forage_env::policy::Policy` with an in-process engine and improves the
//! same weights it samples from; one code path computes sampling and training log-probabilities.
//!
//! # What it is not
//! It does not know tasks, protocols or rewards: it learns from token logs and numbers.
//!
//! # Map, in reading order
//! - [`device`]: which backends are compiled in, and what is missing to use one. [`doctor`]: whether a device computes right.
//! - [`model`], [`weights`]: the decoder; Hugging Face folders in and out. [`bpe`]: training a small tokenizer.
//! - [`lora`]: low-rank adapters.
//! - [`generate`]: sampler and engine. [`server`]: OpenAI's protocol over it.
//! - [`remote`]: rollouts from vLLM and SGLang servers through the same trait.
//! - [`sample`], [`demonstrations`], [`sequence`], [`logprobs`], `backward`, [`workers`], `grads`, [`optim`]: a gradient step,
//!   piece by piece.
//! - [`objective`]: the GRPO family as functions over slices; `update`: the sequences of each optimizer step, and their loss.
//! - [`bert`]: encoders and cross-encoders for dense retrieval and reranking; nothing else here uses them.
//! - [`memory`]: what a run will take, before it starts. [`mod@bench`]: optimizer steps to be timed.
//! - [`learner`], [`run`], [`warm_start`], [`sft_run`], [`checkpoint`], [`metrics`]: a training run. [`watch`]: what its numbers say.

mod lesson_error;
mod plugin_error;
mod setting;
pub use lesson_error::LessonError;
pub use plugin_error::PluginError;
pub use setting::SettingError;

pub mod device;
pub mod doctor;

pub mod bert;

pub mod model;

pub mod bpe;
pub mod lora;
pub mod weights;

pub mod generate;

pub mod server;

pub mod remote;

mod backward;
pub mod demonstrations;
pub mod logprobs;
pub mod sample;
pub mod sequence;

mod grads;
pub mod optim;
pub mod workers;

pub mod objective;
mod student;
mod update;

pub mod bench;
pub mod memory;

pub mod learner;
mod records;
pub mod run;
pub mod sft_run;
pub mod warm_start;

pub mod checkpoint;
pub mod metrics;
pub mod watch;

// Tests inside of the crate and those outside share their fixtures, which name the crate as its users do.
#[cfg(test)]
extern crate self as forage_trainer;
#[cfg(test)]
mod tests;

//! The learner: decoders in Burn, a generation engine, supervised fine-tuning and GRPO.
//!
//! # What it is
//! The only crate that names Burn. It implements `forage_contracts::policy::Policy` with an in-process engine and improves the
//! same weights it samples from; one code path computes sampling and training log-probabilities.
//!
//! # What it is not
//! It does not know tasks, protocols or rewards: it learns from token logs and numbers.
//!
//! # Map, in reading order
//! - [`device`]: which backends are compiled in, and what is missing to use one. [`doctor`]: whether a device computes right.
//! - `model`, `weights`: the decoder; Hugging Face folders in and out. [`train_tokenizer`]: a small tokenizer.
//! - `lora`: low-rank adapters.
//! - `generate`: sampler and engine. [`server`]: OpenAI's protocol over it.
//! - `remote`: rollouts from vLLM and SGLang servers, and text from any server, through the same trait.
//! - `sample`, `demonstrations`, `vocabulary`, `sequence`, `logprobs`, `backward`, `workers`, `grads`, `optim`: a gradient step,
//!   piece by piece.
//! - [`objective`]: the GRPO family as functions over slices; `update`: the sequences of each optimizer step, and their loss;
//!   `update_stats`: the figures of these steps.
//! - `spectrum`: singular values, of hidden states and of gradients.
//! - `curriculum`: which questions a step asks.
//! - `bert`: encoders and cross-encoders for dense retrieval and reranking; nothing else here uses them.
//! - `ranks`: several processes, or threads of one, that train one policy.
//! - [`memory`]: what a run will take, before it starts. `bench`: optimizer steps to be timed.
//! - `folder`: folders that appear when they are complete.
//! - `changed`: what sets the weights of two checkpoints apart.
//! - `first_update`: an update taken apart, for `forage audit`.
//! - `push`: new weights for a server, and whether it has them.
//! - `learner`, [`run`], `warm_start`, `sft_run`, [`checkpoint`], [`metrics`]: a training run. `watch`: what its numbers say.

mod file_error;
mod folder;
mod lesson_error;
mod plugins;
pub use file_error::FileError;
pub use lesson_error::LessonError;
pub use plugins::Plugins;

pub mod device;
pub mod doctor;

mod bert;

mod model;

mod bpe;
mod lora;
mod weights;

mod generate;

pub mod server;

mod remote;

mod backward;
mod demonstrations;
mod logprobs;
mod sample;
mod sequence;
mod temperature;
mod unlearned;
mod vocabulary;

mod grads;
mod optim;
mod workers;

pub mod objective;

mod curriculum;
mod ranks;
mod spectrum;
mod student;
mod update;
mod update_config;
mod update_stats;

mod bench;
mod first_update;
mod gradient_spectra;
pub mod memory;

mod changed;
mod compared;
mod critic;
mod learner;
mod push;
mod records;
pub mod run;
mod scoring;
mod sft_run;
mod warm_start;

pub mod checkpoint;
pub mod metrics;
mod watch;

#[cfg(feature = "gpu")]
pub use bench::Product;
pub use bench::{MeasuredStep, write_attention};
pub use bert::{BertEncoder, BertError, BertReranker};
pub use bpe::train_tokenizer;
pub use changed::WeightChange;
pub use compared::GradientPair;
pub use critic::CriticConfig;
pub use demonstrations::{Choice as DemonstrationChoice, Demonstrations};
pub use generate::{Engine, EngineConfig, EngineStats};
pub use learner::{Learner, OldLogprobs, UpdateConfig};
pub use lora::{LoraConfig, Targets};
pub use model::{
    Architecture, Decoder, Family, ModelConfig, NormPlacement, Published, QkNorm, RopeScaling,
};
pub use optim::{AdamWConfig, Decay};

pub use ranks::RankSettings;
pub use remote::{Patience, RemoteConfig, RemoteError, RemoteFault, RemoteKind, RemotePolicy};
pub use sample::Sample;
pub use sequence::{BatchSize, Sequence};
pub use sft_run::{Lessons, SftConfig, run_sft};
pub use student::{LearnError, SftStats};
pub use update_stats::UpdateStats;

pub use warm_start::{Demonstrator, Stage, WarmStartConfig, warm_start};
pub use watch::{Aliases, EventWriter, NonFinite, SentinelConfig};
pub use weights::{Checkpoint, FileType, Hub, HubError, Precision, WeightsError};
pub use workers::Workers;

/// Whether a setting is what its type has by default: such a one is left out of what is written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

// Tests inside of the crate and those outside share their fixtures, which name the crate as its users do.
#[cfg(test)]
extern crate self as forage_trainer;
#[cfg(test)]
mod tests;

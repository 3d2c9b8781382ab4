//! Runs as functions: from a config to a trained policy, its evaluation and a verdict.
//!
//! [`RunConfig`] is a config as it is written; [`RunConfig::resolve`] checks all of it and makes a [`Resolved`] one, which is what
//! [`train`], [`evaluate`], [`study`] and [`quickstart`] take. A [`Session`] is an environment with its rewards over what it
//! searches, in the tokens of a policy; it is put together in one place. [`RunLayout`] knows the names of all files that a run
//! leaves, [`RunFolder`] reads them.
//!
//! Nothing here prints: an [`Observer`] follows a run and may stop it. Functions that play episodes block on a Tokio runtime of
//! their own and must not be called from async code.

mod archive;
mod audit;
mod baselines;
mod builtin;
mod collect;
mod conduct;
mod config;
mod data;
mod disk;
mod error;
mod evaluate;
mod evidence;
mod experience;
mod follow;
mod forced;
mod forked;
mod four_bytes;
mod grpo;
mod hub;
mod layout;
mod lint;
mod lock;
mod memory;
mod miniature;
mod observer;
mod page;
mod policy;
mod preflight;
mod presets;
mod quickstart;
mod ranking;
mod records;
mod replay;
mod resumed;
mod retrieval;
mod room;
mod run_folder;
mod runtime;
mod session;
mod sft;
mod side_by_side;
mod sources;
mod splits;
mod studied;
mod study;
mod throughput;
mod tracked;
mod train;
mod twins;
mod unfinished;
mod warm_start;

pub use audit::Audited;
pub use collect::{CollectOptions, collect};
pub use config::{
    Base, DataConfig, EngineSection, EnvironmentConfig, EvaluationConfig, FilesConfig, Generation,
    LoraSection, PolicyConfig, Resolved, RunConfig,
};
pub use data::{Corpus, Data};
pub use error::RunError;
pub use evaluate::{EvaluateOptions, Evaluation, Probed, evaluate};
pub use hub::{fetch_file, hub};
pub use layout::RunLayout;
pub use observer::Observer;
pub use page::page;
pub use policy::{PolicyFormat, open_policy};
pub use quickstart::{QuickstartOptions, quickstart};
pub use ranking::Ranking;
pub use replay::{Different, Replayed, replay_files};
pub use retrieval::RetrieverConfig;
pub use run_folder::{Reading, Records, RunFolder, Source};
pub use runtime::runtime;
pub use session::Session;
pub use sft::{SftOptions, sft};
pub use sources::Sources;
pub use studied::Studied;
pub use study::study;
pub use tracked::TrackedRun;
pub use train::{TrainOptions, Trained, train};
pub use twins::Twin;

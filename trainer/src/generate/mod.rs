//! Generation: a scheduler that knows no model, a cache of blocks, the model step, the sampler, and the engine around them.

mod blocks;
mod engine;
mod request;
mod runner;
mod sampler;
mod scheduler;
mod tokens;
mod worker;

pub(crate) use engine::EngineModel;
pub use engine::{Engine, EngineConfig, EngineStats};
pub(crate) use request::{Event, StreamOptions, TokenEvent, TokenStream};
pub(crate) use runner::pass_bytes;

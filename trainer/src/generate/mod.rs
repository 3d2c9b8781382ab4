//! Generation: a sampler, and an engine thread that batches all requests in flight over one key-value cache.

mod engine;
mod sampler;
mod session;

pub use engine::{Engine, EngineConfig};
pub use sampler::{Sampled, sample};

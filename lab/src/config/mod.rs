//! Configs: `RunConfig` as it is written, and `Resolved` as it is run.

mod baseline;
mod check;
mod data;
mod engine;
mod measured;
mod policy;
mod resolved;
mod run;
mod schema;
mod stamp;
#[cfg(test)]
mod tests;
mod warm_start;

pub(crate) use baseline::{Baseline, Budget};
pub use data::{DataConfig, FilesConfig};
pub(crate) use data::{Digests, OwnQuestions};
pub use engine::EngineSection;
pub use policy::{Base, LoraSection, PolicyConfig};
pub use resolved::{Generation, Resolved};
pub use run::{EnvironmentConfig, EvaluationConfig, RunConfig};
pub(crate) use stamp::{Stamp, version};
pub(crate) use warm_start::WarmStartSection;

//! Runs Python written by models inside a WebAssembly sandbox, under limits and reproducibly.
//!
//! A [`SandboxEngine`] is shared by everyone; a [`Session`] is one episode's interpreter, whose variables live from turn to
//! turn. The code sees the functions of a [`Tools`] and nothing else of the outside: no files, sockets, environment, clock or
//! entropy. What it did comes back as a [`TurnOutput`].
//!
//! The crate knows nothing of learning or retrieval.

mod budget;
mod cache;
mod checkpoint;
mod engine;
mod error;
mod host;
mod instances;
mod limits;
mod live;
mod memory;
mod pages;
mod record;
mod session;
mod spill;
mod tools;
mod turn;
mod wait;

pub use checkpoint::Checkpoint;
pub use engine::{EngineOptions, Notice, SandboxEngine};
pub use error::SandboxError;
pub use limits::Limits;
pub use memory::available_memory;
pub use session::Session;
pub use tools::{Parameter, ToolError, ToolSpec, Tools};
pub use turn::{CallRecord, PyError, Status, TurnOutput};
pub use wait::Wait;

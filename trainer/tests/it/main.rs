//! Models, the engine, its servers, learning and runs, from outside.

mod bert;
mod common;
mod demonstrations;
mod folders;
mod hub;
mod metrics;
mod remote;
mod resume;
mod server;
mod sft;
mod tool_caller;
mod watch;

//! Models, the engine, its servers, learning and runs, from outside.

mod backward;
mod bert;
mod common;
mod engine;
mod folders;
mod grpo_parity;
mod hub;
mod lora;
mod metrics;
mod parity;
mod properties;
mod remote;
mod resume;
mod server;
mod sft;
mod step;
mod watch;

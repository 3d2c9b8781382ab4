//! Models, the engine, its servers, learning and runs; what no other crate reaches, against references.

mod backward;
mod bert;
pub(crate) mod common;
mod critic;
mod curriculum;
mod demonstrations;
mod first_update;
mod folders;
mod gradients;
mod grpo_parity;
mod hub;
mod information;
mod lora;
mod metrics;
mod parity;
mod properties;
mod ranks;
mod recorded;
pub(crate) mod reference;
mod remote;
mod resume;
mod server;
mod sft;
mod shaping;
mod step;
mod tool_caller;
mod watch;

//! Numbers of what no other crate reaches: gradients, steps, adapters and log-probabilities against references.

mod backward;
#[path = "../../tests/it/common/mod.rs"]
pub(crate) mod common;
mod grpo_parity;
mod lora;
mod parity;
mod properties;
pub(crate) mod reference;
mod step;

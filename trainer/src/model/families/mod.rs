//! The model families: one file each, and one line in the list of `family`; `plugins` brings those from outside.

mod family;
mod llama;
mod olmo2;
mod plugins;
mod qwen2;
mod qwen3;

pub use family::{Architecture, Family, NormPlacement, Published, QkNorm};
pub use plugins::install_families;

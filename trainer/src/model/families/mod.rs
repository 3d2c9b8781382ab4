//! The model families: one file each, and one line in the list of `family`.

mod family;
mod llama;
mod olmo2;
mod qwen2;
mod qwen3;

pub use family::{Architecture, Family, NormPlacement, Published, QkNorm};

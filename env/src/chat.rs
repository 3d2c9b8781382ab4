//! Chat templates: messages to the text a model was trained on, and back to tool calls.
//!
//! [`ChatTemplate`] runs the Jinja template of a checkpoint as transformers does. [`Renderer`] writes an episode in
//! pieces that are only ever appended, so that what the policy sampled is never written anew. [`hermes`] reads the tool
//! calls of the Hermes and Qwen models, `tools` says what there is to call and what is wrong with a call.

mod error;
pub mod hermes;
mod json;
mod pieces;
mod python;
mod renderer;
mod template;
pub(crate) mod tools;

pub use error::ChatError;
pub use pieces::Piece;
pub(crate) use renderer::Delta;
pub use renderer::Renderer;
pub use template::{ChatTemplate, Conversation, SpecialTokens};

//! The trait of models that turn text into vectors.

use super::RetrieverError;

/// The role of a text; models prefix queries and passages differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextKind {
    /// Something to look for.
    Query,
    /// Something to be found.
    Passage,
}

/// Turns texts into vectors whose inner products rank passages.
pub trait Encoder: Send + Sync {
    /// Names the model, its weights' digest, pooling, prefixes, lengths: whatever decides the vectors. One line.
    fn identity(&self) -> String;

    /// Numbers per vector.
    fn dimension(&self) -> usize;

    /// The vectors of `texts` one after another, `texts.len() * dimension()` finite numbers. Blocks the calling thread;
    /// a vector does not depend on the other texts of the call beyond rounding.
    ///
    /// # Errors
    /// [`RetrieverError::Model`] when the model fails.
    fn encode(&self, kind: TextKind, texts: &[&str]) -> Result<Vec<f32>, RetrieverError>;
}

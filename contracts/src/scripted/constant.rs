//! The control that always writes one turn.

use std::sync::Arc;

use super::engine::{Script, Scripted, View};
use crate::policy::PolicyError;
use crate::tokenizer::Tokenizer;

struct Constant(String);

impl Scripted {
    /// A policy that always writes `turn`.
    pub fn constant(tokenizer: Arc<dyn Tokenizer>, turn: impl Into<String>) -> Self {
        Self::with_script(Constant(turn.into()), tokenizer)
    }
}

impl Script for Constant {
    fn write(&self, _view: &View<'_>) -> Result<String, PolicyError> {
        Ok(self.0.clone())
    }
}

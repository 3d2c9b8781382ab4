//! The control that always gives one answer.

use std::sync::Arc;

use super::engine::{Script, Scripted, View};
use super::{ANSWER, turn};
use crate::policy::PolicyError;
use crate::tokenizer::Tokenizer;

/// Always gives the same answer, without a search.
#[derive(Clone, Debug)]
pub struct ConstantScript(String);

/// [`ConstantScript`] as a policy.
pub type Constant = Scripted<ConstantScript>;

impl Scripted<ConstantScript> {
    /// A policy that always answers `answer`.
    pub fn new(tokenizer: Arc<dyn Tokenizer>, answer: impl Into<String>) -> Self {
        Self::with_script(ConstantScript(answer.into()), tokenizer)
    }
}

impl Script for ConstantScript {
    fn write(&self, _view: &View<'_>) -> Result<String, PolicyError> {
        Ok(turn("", ANSWER, &self.0))
    }
}

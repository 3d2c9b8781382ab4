//! The control that always gives one answer.

use std::sync::Arc;

use super::engine::{Script, Scripted, View};
use crate::policy::PolicyError;
use crate::tag::Tag;
use crate::tokenizer::Tokenizer;

struct Constant(String);

impl Scripted {
    /// A policy that always answers `answer`, without a search.
    pub fn constant(tokenizer: Arc<dyn Tokenizer>, answer: impl Into<String>) -> Self {
        Self::with_script(Constant(answer.into()), tokenizer)
    }
}

impl Script for Constant {
    fn write(&self, _view: &View<'_>) -> Result<String, PolicyError> {
        Ok(Tag::turn("", Tag::Answer.both(), &self.0))
    }
}

//! Controls for environments that run programs.

use std::sync::Arc;

use super::engine::{Script, Scripted, View, Written};
use super::{program, read};
use crate::policy::PolicyError;
use crate::tokenizer::Tokenizer;

/// Prints the titles found for the question and answers with the first.
#[derive(Clone, Copy, Debug)]
pub struct OneCallScript;

/// [`OneCallScript`] as a policy.
pub type OneCall = Scripted<OneCallScript>;

impl Scripted<OneCallScript> {
    /// The policy.
    pub fn new(tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self::with_script(OneCallScript, tokenizer)
    }
}

impl Script for OneCallScript {
    fn write(&self, view: &View<'_>) -> Result<Written, PolicyError> {
        if view.shown.is_empty() && !view.must_answer {
            let code = program::titles(read::question(view.prompt));
            return Ok(Written::Program { thought: String::new(), code });
        }
        let printed = view.shown.iter().find_map(|shown| read::output(shown)).unwrap_or_default();
        let title = printed.lines().next().unwrap_or("unknown");
        Ok(Written::Answer { thought: String::new(), answer: title.to_owned() })
    }
}

/// Writes programs that do not work until it must answer, and then gives up.
#[derive(Clone, Copy, Debug)]
pub struct BrokenCodeScript;

/// [`BrokenCodeScript`] as a policy.
pub type BrokenCode = Scripted<BrokenCodeScript>;

impl Scripted<BrokenCodeScript> {
    /// The policy; which programs it writes is drawn from the requests' seeds.
    pub fn new(tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self::with_script(BrokenCodeScript, tokenizer)
    }
}

/// Programs it writes before it gives up.
const ATTEMPTS: usize = 2;

impl Script for BrokenCodeScript {
    fn write(&self, view: &View<'_>) -> Result<Written, PolicyError> {
        if view.shown.len() < ATTEMPTS && !view.must_answer {
            let programs = program::broken(read::question(view.prompt));
            let chosen = view.seed.child("draw", &[0]).0 as usize % programs.len();
            return Ok(Written::Program { thought: String::new(), code: programs[chosen].clone() });
        }
        Ok(Written::Answer { thought: String::new(), answer: "unknown".to_owned() })
    }
}

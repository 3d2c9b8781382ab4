//! Controls that know nothing of the task.

use std::sync::Arc;

use super::engine::{Script, Scripted, View, Written};
use super::read;
use crate::policy::PolicyError;
use crate::seed::Seed;
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
    fn write(&self, _view: &View<'_>) -> Result<Written, PolicyError> {
        Ok(Written::Answer { thought: String::new(), answer: self.0.clone() })
    }
}

/// Searches for the question and answers with the first title.
#[derive(Clone, Copy, Debug)]
pub struct SearchThenTitleScript;

/// [`SearchThenTitleScript`] as a policy.
pub type SearchThenTitle = Scripted<SearchThenTitleScript>;

impl Scripted<SearchThenTitleScript> {
    /// The policy.
    pub fn new(tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self::with_script(SearchThenTitleScript, tokenizer)
    }
}

impl Script for SearchThenTitleScript {
    fn write(&self, view: &View<'_>) -> Result<Written, PolicyError> {
        if view.shown.is_empty() && !view.must_answer {
            return Ok(Written::Search { thought: String::new(), query: read::question(view.prompt).to_owned() });
        }
        let title = seen_titles(view).next().unwrap_or("unknown");
        Ok(Written::Answer { thought: String::new(), answer: title.to_owned() })
    }
}

/// Searches for random words of the question, or answers with a random title it has seen.
#[derive(Clone, Copy, Debug)]
pub struct RandomScript;

/// [`RandomScript`] as a policy.
pub type RandomPolicy = Scripted<RandomScript>;

impl Scripted<RandomScript> {
    /// The policy; what it does is drawn from the requests' seeds.
    pub fn new(tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self::with_script(RandomScript, tokenizer)
    }
}

impl Script for RandomScript {
    fn write(&self, view: &View<'_>) -> Result<Written, PolicyError> {
        let titles: Vec<&str> = seen_titles(view).collect();
        let searches = !view.must_answer && (titles.is_empty() || draw(view.seed, 0, 2) == 0);
        if searches {
            let words: Vec<&str> = read::question(view.prompt).split_whitespace().collect();
            let count = 1 + draw(view.seed, 1, 4);
            let chosen = (0..count).filter_map(|number| words.get(draw(view.seed, 2 + number, words.len()))).copied();
            let query = chosen.collect::<Vec<_>>().join(" ");
            return Ok(Written::Search { thought: String::new(), query });
        }
        let title = titles.get(draw(view.seed, 1, titles.len())).copied().unwrap_or("unknown");
        Ok(Written::Answer { thought: String::new(), answer: title.to_owned() })
    }
}

/// All titles shown so far.
fn seen_titles<'a>(view: &View<'a>) -> impl Iterator<Item = &'a str> {
    view.shown.iter().filter_map(|shown| read::information(shown)).flat_map(read::titles)
}

/// The `number`-th draw below `bound`; 0 when `bound` is 0.
fn draw(seed: Seed, number: usize, bound: usize) -> usize {
    let value = seed.child("draw", &[number as u64]).0;
    value.checked_rem(bound as u64).unwrap_or(0) as usize
}

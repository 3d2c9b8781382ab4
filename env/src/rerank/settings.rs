//! Settings of the rerank environment.

use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::form::Form;
use crate::paraphrases::{SHORT, paraphrases, prompts};
use crate::settings::{SettingsError, asking, exclusive, positive, template};

/// Stands in a prompt template for the first passages and what is asked about them.
pub(super) const PASSAGES: &str = "{passages}";

/// The opening prompt; `{passages}` stands for the first passages with what is asked about them, `{question}` for the question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RerankPrompt {
    /// `configs/prompts/rerank.txt`: what the passages are, and that thoughts may come first.
    #[default]
    Full,
    /// The passages and the question alone.
    Short,
    /// A template file.
    Path(PathBuf),
    /// The template itself.
    Text(String),
}

/// The passages, then the question in some words.
fn short(question: &str) -> String {
    format!("{PASSAGES}\n{question}")
}

impl RerankPrompt {
    /// The template's text.
    ///
    /// # Errors
    /// When the file cannot be read or a part is missing.
    pub(crate) fn read(&self) -> Result<String, SettingsError> {
        let text = asking(match self {
            Self::Full => include_str!("../../../configs/prompts/rerank.txt").to_owned(),
            Self::Short => short(include_str!("../../../configs/prompts/short.txt")),
            Self::Path(path) => template(path)?,
            Self::Text(text) => text.clone(),
        })?;
        if !text.contains(PASSAGES) {
            return Err(SettingsError::Excluded {
                what: "the prompt template does not contain {passages}",
                fix: "write it where the passages are to stand",
            });
        }
        Ok(text)
    }

    /// The same instructions in other words, as values of the setting `prompt`; none where there are none.
    pub(crate) fn wordings(&self) -> Vec<Value> {
        match self {
            Self::Full => prompts(Some(paraphrases!("rerank"))),
            Self::Short => {
                let other = SHORT.into_iter().map(short);
                other.map(|text| json!({ "text": text })).collect()
            }
            Self::Path(_) | Self::Text(_) => Vec::new(),
        }
    }
}

/// Settings of `forage/rerank-v0`. Missing keys take their defaults; unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RerankSettings {
    /// The question that is asked about passages.
    pub form: Form,
    /// First hits of the retriever that are put in order; the ranking holds no others.
    pub candidates: usize,
    /// Passages of a turn, for `setwise`, `listwise` and `groupwise`; `pairwise` shows two and `pointwise` one, whatever is written here. A
    /// longer list takes several turns.
    pub window: usize,
    /// Places by which the window moves towards the front from turn to turn, for `setwise` (by default all but one, so that
    /// the passage picked last is in the next window) and `listwise` (by default half of the window).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// Times that the window goes over the list, for `pairwise`, `setwise` and `listwise`. Each pass of picks brings one
    /// passage to its place at the front.
    pub passes: usize,
    /// Words of a passage's text that are shown.
    pub passage_words: usize,
    /// Whether passages are shown with their ids, by which the oracle knows them.
    pub show_ids: bool,
    /// Whether the end-of-sequence token follows `</answer>` in the log, as forced and not trained on.
    pub append_eos_after_stop: bool,
    /// Most tokens of a turn.
    pub max_turn_tokens: usize,
    /// Most tokens per episode, the prompt included. An episode that reaches it has no ranking.
    pub max_episode_tokens: usize,
    /// The opening prompt.
    pub prompt: RerankPrompt,
}

impl Default for RerankSettings {
    fn default() -> Self {
        Self {
            form: Form::default(),
            candidates: 20,
            window: 20,
            step: None,
            passes: 1,
            passage_words: 100,
            show_ids: false,
            append_eos_after_stop: false,
            max_turn_tokens: 1024,
            max_episode_tokens: 8192,
            prompt: RerankPrompt::default(),
        }
    }
}

impl RerankSettings {
    /// Checks what types cannot.
    ///
    /// # Errors
    /// When a number is 0 that must not be, a window cannot be ordered, or a key means nothing for the form.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        positive(&[
            ("candidates", self.candidates),
            ("step", self.step.unwrap_or(1)),
            ("passes", self.passes),
            ("passage_words", self.passage_words),
            ("max_turn_tokens", self.max_turn_tokens),
            ("max_episode_tokens", self.max_episode_tokens),
        ])?;
        let step = self.step.unwrap_or(1);
        exclusive(&[
            (
                self.size() < 2 && self.form != Form::Pointwise,
                "`window` is below 2, and one passage has no order",
                "write at least 2, or form = \"pointwise\"",
            ),
            (
                self.step.is_some() && !matches!(self.form, Form::Setwise | Form::Listwise),
                "`step` is set, and only the windows of setwise and listwise overlap as one likes",
                "leave `step` out, or write form = \"setwise\" or \"listwise\"",
            ),
            (
                self.form == Form::Setwise && step >= self.size(),
                "`step` is not below `window`, so that the passage picked last would not be in the next window",
                "write a smaller `step`, or leave it out",
            ),
            (
                self.form == Form::Listwise && step > self.size(),
                "`step` is above `window`, so that passages between two windows would never be shown",
                "write a smaller `step`, or leave it out",
            ),
            (
                self.passes > 1 && self.form.is_scored(),
                "`passes` is above 1, and a passage is scored once",
                "leave `passes` out",
            ),
        ])
    }

    /// Most passages of a turn.
    fn size(&self) -> usize {
        match self.form {
            Form::Pointwise => 1,
            Form::Pairwise => 2,
            Form::Setwise | Form::Listwise | Form::Groupwise => self.window,
        }
    }

    /// Windows over `count` candidates in the order of turns, each as places of the list as it is by then; at least one.
    ///
    /// Scores are given from front to back, everything once. Else a window slides from the end of the list to its front, as in
    /// `RankGPT` (arXiv 2304.09542); the last one of a pass is cut to what is left, so that every passage is seen. Picks of
    /// a later pass leave alone what earlier ones brought to the front: a bubble sort, as in PRP (arXiv 2306.17563) and
    /// Setwise (arXiv 2310.09497).
    pub(super) fn windows(&self, count: usize) -> Vec<Range<usize>> {
        let size = self.size();
        if self.form.is_scored() {
            let starts = (0..count.max(1)).step_by(size);
            return starts.map(|start| start..count.min(start + size)).collect();
        }
        let by_default = match self.form {
            Form::Listwise => size / 2,
            _ => size - 1,
        };
        let step = self.step.unwrap_or(by_default);
        let mut windows = Vec::new();
        for pass in 0..self.passes {
            let front = if self.form.picks() { pass } else { 0 };
            if pass > 0 && front + 1 >= count {
                break;
            }
            let mut end = count;
            loop {
                let start = end.saturating_sub(size).max(front);
                windows.push(start..end);
                if start == front {
                    break;
                }
                end -= step;
            }
        }
        windows
    }
}

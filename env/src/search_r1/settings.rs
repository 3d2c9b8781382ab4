//! Settings of the search environment.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::observation::ObservationSettings;

/// Stands for the question in a prompt template.
pub(super) const QUESTION: &str = "{question}";

/// What may follow the last tool turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosingTurn {
    /// Nothing: `max_generations` completions are all there are, and a search in the last of them is not executed.
    #[default]
    None,
    /// One more completion, announced by a sentence at the end of the last observation.
    Reminder,
    /// One more completion, which the driver begins with `<answer>`.
    ForcedAnswer,
}

/// What a turn that is no action leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalid {
    /// A sentence that says what a valid action is; the turn is spent.
    #[default]
    Notice,
    /// An empty information block; the turn is spent.
    Empty,
    /// The end of the episode.
    End,
    /// Nothing: the policy goes on writing; the turn is spent.
    Silent,
}

/// The opening prompt; `{question}` stands for the question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptTemplate {
    /// `configs/prompts/search_r1.txt`: explains the tags.
    #[default]
    SearchR1,
    /// `configs/prompts/short.txt`: the question alone, for policies that were taught the tags.
    Short,
    /// A template file.
    Path(PathBuf),
    /// The template itself.
    Text(String),
}

impl PromptTemplate {
    /// The template's text.
    ///
    /// # Errors
    /// When the file cannot be read or `{question}` is missing.
    pub fn read(&self) -> Result<String, SettingsError> {
        let text = match self {
            Self::SearchR1 => include_str!("../../../configs/prompts/search_r1.txt").to_owned(),
            Self::Short => include_str!("../../../configs/prompts/short.txt").to_owned(),
            Self::Path(path) => {
                std::fs::read_to_string(path).map_err(|source| SettingsError::Prompt { path: path.clone(), source })?
            }
            Self::Text(text) => text.clone(),
        };
        if text.contains(QUESTION) { Ok(text) } else { Err(SettingsError::NoQuestion) }
    }
}

/// Settings of `forage/search-r1-v0`. Missing keys take their defaults; unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchR1Settings {
    /// Most completions, a closing turn not counted.
    pub max_generations: usize,
    /// What may follow them.
    pub closing_turn: ClosingTurn,
    /// Whether the end-of-sequence token follows `</search>` and `</answer>` in the log, as forced: some chat templates
    /// expect it. It is not trained on, because the policy did not sample it.
    pub append_eos_after_stop: bool,
    /// Passages asked of the retriever.
    pub top_k: usize,
    /// Most tokens per completion.
    pub max_turn_tokens: usize,
    /// Most tokens per episode, prompt and observations included.
    pub max_episode_tokens: usize,
    /// How passages are shown.
    pub observation: ObservationSettings,
    /// What a turn that is no action leads to.
    pub on_invalid: OnInvalid,
    /// The opening prompt.
    pub prompt: PromptTemplate,
    /// Reward of the first turn whose passages show a gold answer, on top of the score. MT-GRPO (arXiv 2505.11821) pays 0.5.
    pub gold_shown_reward: f32,
}

impl Default for SearchR1Settings {
    fn default() -> Self {
        Self {
            max_generations: 4,
            closing_turn: ClosingTurn::default(),
            append_eos_after_stop: false,
            top_k: 3,
            max_turn_tokens: 500,
            max_episode_tokens: 4096,
            observation: ObservationSettings::default(),
            on_invalid: OnInvalid::default(),
            prompt: PromptTemplate::default(),
            gold_shown_reward: 0.0,
        }
    }
}

impl SearchR1Settings {
    /// Checks what types cannot.
    ///
    /// # Errors
    /// When a number is 0 that must not be, or the passage format shows no text.
    pub fn check(&self) -> Result<(), SettingsError> {
        let positive = [
            ("max_generations", self.max_generations),
            ("top_k", self.top_k),
            ("max_turn_tokens", self.max_turn_tokens),
            ("max_episode_tokens", self.max_episode_tokens),
            ("observation.limit_tokens", self.observation.limit_tokens),
        ];
        for (key, value) in positive {
            if value == 0 {
                return Err(SettingsError::Zero { key });
            }
        }
        if !self.gold_shown_reward.is_finite() {
            let (what, mend) = ("`gold_shown_reward` is no finite number", "write one such as 0.5, or leave it out");
            return Err(SettingsError::Excluded { what, mend });
        }
        if self.observation.passage.contains("{text}") { Ok(()) } else { Err(SettingsError::NoText) }
    }
}

/// Settings that describe no environment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A number must be positive.
    #[error("`{key}` is 0; write at least 1")]
    Zero {
        /// The setting.
        key: &'static str,
    },
    /// Two settings exclude each other.
    #[error("{what}; {mend}")]
    Excluded {
        /// Which.
        what: &'static str,
        /// What to write instead.
        mend: &'static str,
    },
    /// The passage format shows no text.
    #[error("`observation.passage` does not contain {{text}}")]
    NoText,
    /// The prompt does not ask the question.
    #[error("the prompt template does not contain {{question}}")]
    NoQuestion,
    /// The prompt file cannot be read.
    #[error("read prompt template `{}`", path.display())]
    Prompt {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_as_written_and_refuse_the_unknown() {
        let settings: SearchR1Settings = serde_json::from_value(serde_json::json!({
            "max_generations": 2, "closing_turn": "forced_answer", "prompt": {"text": "Q: {question}"},
            "observation": {"limit_tokens": 100}, "on_invalid": "end"
        }))
        .expect("valid settings");
        assert_eq!(settings.closing_turn, ClosingTurn::ForcedAnswer);
        assert_eq!(settings.prompt.read().expect("has the question"), "Q: {question}");
        assert_eq!(settings.observation.limit_tokens, 100);
        let again = serde_json::from_value(serde_json::to_value(&settings).expect("serialises")).expect("reads back");
        assert_eq!(settings, again);
        for wrong in [
            serde_json::json!({"max_turns": 2}),
            serde_json::json!({"observation": {"limit": 2}}),
            serde_json::json!({"prompt": "unknown"}),
        ] {
            assert!(serde_json::from_value::<SearchR1Settings>(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn contradictions_are_named() {
        let zero = SearchR1Settings { top_k: 0, ..SearchR1Settings::default() };
        assert_eq!(zero.check().expect_err("zero").to_string(), "`top_k` is 0; write at least 1");
        let reward = SearchR1Settings { gold_shown_reward: f32::NAN, ..SearchR1Settings::default() };
        assert!(
            reward.check().expect_err("not finite").to_string().contains("`gold_shown_reward` is no finite number")
        );
        let prompt = PromptTemplate::Text("no placeholder".to_owned());
        assert!(matches!(prompt.read(), Err(SettingsError::NoQuestion)));
        assert!(matches!(PromptTemplate::Path("/nowhere/x.txt".into()).read(), Err(SettingsError::Prompt { .. })));
    }

    #[test]
    fn embedded_prompts_ask_the_question() {
        assert_eq!(PromptTemplate::Short.read().expect("embedded"), "Question: {question}\n");
        assert!(PromptTemplate::SearchR1.read().expect("embedded").ends_with("Question: {question}\n"));
    }
}

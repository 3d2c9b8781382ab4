//! Settings of the mathematics environment.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::settings::{QUESTION, SettingsError, asking, exclusive, positive, template};

/// The same instructions in other words.
const WORDINGS: [&str; 2] = [
    "Question: {question}\nReason step by step, then give the final answer inside \\boxed{}.\n",
    "Here is a problem. Work it out in steps and end with its answer in \\boxed{}.\nQuestion: {question}\n",
];

/// The opening prompt; `{question}` stands for the problem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MathPrompt {
    /// `configs/prompts/math.txt`: asks for steps and for the answer in a box.
    #[default]
    Math,
    /// `configs/prompts/math_spurious.txt`: placeholder text in Latin around the problem, which says nothing about it.
    Spurious,
    /// The problem alone, for chat templates that ask for the box themselves.
    Short,
    /// A template file.
    Path(PathBuf),
    /// The template itself.
    Text(String),
}

impl MathPrompt {
    /// The template's text.
    ///
    /// # Errors
    /// When the file cannot be read or `{question}` is missing.
    pub(crate) fn read(&self) -> Result<String, SettingsError> {
        asking(match self {
            Self::Math => include_str!("../../../configs/prompts/math.txt").to_owned(),
            Self::Spurious => include_str!("../../../configs/prompts/math_spurious.txt").to_owned(),
            Self::Short => QUESTION.to_owned(),
            Self::Path(path) => template(path)?,
            Self::Text(text) => text.clone(),
        })
    }

    /// The instructions in other words, as values of the setting `prompt`; empty where there are none.
    pub(crate) fn wordings(&self) -> Vec<Value> {
        match self {
            Self::Math => WORDINGS.map(|text| json!({ "text": text })).to_vec(),
            Self::Spurious | Self::Short | Self::Path(_) | Self::Text(_) => Vec::new(),
        }
    }
}

/// Settings of `forage/math-v0`. Missing keys take their defaults; unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MathSettings {
    /// Difficulty of generated problems, 1 to 5: the steps of a story and the size of its numbers; from 3 on unknowns on both sides, from
    /// 4 on fractions.
    pub difficulty: usize,
    /// Most tokens of the completion.
    pub max_turn_tokens: usize,
    /// Most tokens per episode, the prompt included.
    pub max_episode_tokens: usize,
    /// The opening prompt.
    pub prompt: MathPrompt,
}

impl Default for MathSettings {
    fn default() -> Self {
        Self {
            difficulty: 1,
            max_turn_tokens: 1024,
            max_episode_tokens: 2048,
            prompt: MathPrompt::default(),
        }
    }
}

impl MathSettings {
    /// Checks what types cannot.
    ///
    /// # Errors
    /// When a number is 0 that must not be, or `difficulty` is above 5.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        positive(&[
            ("difficulty", self.difficulty),
            ("max_turn_tokens", self.max_turn_tokens),
            ("max_episode_tokens", self.max_episode_tokens),
        ])?;
        exclusive(&[(
            self.difficulty > 5,
            "`difficulty` is above 5",
            "write 1 to 5",
        )])
    }
}

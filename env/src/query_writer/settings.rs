//! Settings of the query-writer environment.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::action::{QueryForm, Take};
use crate::paraphrases::{SHORT, paraphrases, prompts};
use crate::settings::{SettingsError, asking, exclusive, positive, template};

/// What the instructions for giving the query say.
const BY_TAG: &str = "You may think first between <reasoning> and </reasoning>. Then write the query between <query> and \
                      </query>.";
const BY_CALL: &str = "You may think first. Then call the tool submit_query with the query, once.";

/// The opening prompt; `{question}` stands for the information need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QueryPrompt {
    /// `configs/prompts/query_writer.txt`: explains the syntax and the tags, or with tool calls that there is a tool.
    #[default]
    Full,
    /// `configs/prompts/short.txt`: the question alone, for policies that were taught the syntax.
    Short,
    /// A template file.
    Path(PathBuf),
    /// The template itself.
    Text(String),
}

impl QueryPrompt {
    /// The template's text for some settings.
    ///
    /// # Errors
    /// When the file cannot be read or `{question}` is missing.
    pub(crate) fn read(&self, settings: &QueryWriterSettings) -> Result<String, SettingsError> {
        let text = match self {
            Self::Full => {
                let giving = match settings.form {
                    QueryForm::Tags => BY_TAG,
                    QueryForm::ToolCalls => BY_CALL,
                };
                include_str!("../../../configs/prompts/query_writer.txt")
                    .replace("{giving}", giving)
            }
            Self::Short => include_str!("../../../configs/prompts/short.txt").to_owned(),
            Self::Path(path) => template(path)?,
            Self::Text(text) => text.clone(),
        };
        asking(text)
    }

    /// The same instructions in other words, as values of the setting `prompt`; none where there are none.
    pub(crate) fn wordings(&self, settings: &QueryWriterSettings) -> Vec<Value> {
        prompts(match self {
            Self::Full if settings.form == QueryForm::Tags => Some(paraphrases!("query_writer")),
            Self::Short => Some(SHORT),
            _ => None,
        })
    }
}

/// Settings of `forage/query-writer-v0`. Missing keys take their defaults; unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QueryWriterSettings {
    /// The form in which the policy gives its query.
    pub form: QueryForm,
    /// The query of a turn that counts.
    pub take: Take,
    /// Passages a query may find; the rewards look at no others.
    pub limit: usize,
    /// The field of passages that must equal the task's data set, where an index holds several. Part of the search, so
    /// that `limit` counts passages of that data set alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corpus_field: Option<String>,
    /// Whether the end-of-sequence token follows `</query>` in the log, as forced and not trained on.
    pub append_eos_after_stop: bool,
    /// Most tokens of the completion.
    pub max_turn_tokens: usize,
    /// Most tokens per episode, the prompt included.
    pub max_episode_tokens: usize,
    /// The opening prompt.
    pub prompt: QueryPrompt,
}

impl Default for QueryWriterSettings {
    fn default() -> Self {
        Self {
            form: QueryForm::default(),
            take: Take::default(),
            limit: 100,
            corpus_field: None,
            append_eos_after_stop: false,
            max_turn_tokens: 512,
            max_episode_tokens: 2048,
            prompt: QueryPrompt::default(),
        }
    }
}

impl QueryWriterSettings {
    /// Checks what types cannot.
    ///
    /// # Errors
    /// When a number is 0 that must not be, or `limit` cuts what NDCG@10 looks at.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        positive(&[
            ("max_turn_tokens", self.max_turn_tokens),
            ("max_episode_tokens", self.max_episode_tokens),
        ])?;
        exclusive(&[
            (
                self.form == QueryForm::ToolCalls && self.take != Take::default(),
                "`take` says which tags count and `form` is tool_calls",
                "leave `take` out, or write form = \"tags\"",
            ),
            (
                self.limit < 10,
                "`limit` is below 10, and the rewards look at the first ten passages",
                "write at least 10",
            ),
        ])
    }
}

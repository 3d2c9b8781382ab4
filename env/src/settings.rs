//! What settings of environments have in common.

use std::path::{Path, PathBuf};

use forage_contracts::RegistryError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Stands for the question in a prompt template.
pub(crate) const QUESTION: &str = "{question}";

/// The prompt template of a file.
pub(crate) fn template(path: &Path) -> Result<String, SettingsError> {
    std::fs::read_to_string(path).map_err(|source| SettingsError::Prompt {
        path: path.to_owned(),
        source,
    })
}

/// The files that spelled-out settings name: the `path` of the tables under these keys.
pub(crate) fn files(settings: &Value, keys: &[&str]) -> Vec<(String, PathBuf)> {
    let named = |key: &&str| {
        let path = settings[*key]["path"].as_str()?;
        Some((format!("{key}.path"), PathBuf::from(path)))
    };
    keys.iter().filter_map(named).collect()
}

/// Refuses a prompt template that does not ask the question.
pub(crate) fn asking(template: String) -> Result<String, SettingsError> {
    if template.contains(QUESTION) {
        Ok(template)
    } else {
        Err(SettingsError::NoQuestion)
    }
}

/// A template as settings resolve to it: `None` where its file cannot be read, which configs are told with their other files.
pub(crate) fn resolved(
    template: Result<String, SettingsError>,
) -> Result<Option<String>, SettingsError> {
    match template {
        Err(SettingsError::Prompt { .. }) => Ok(None),
        template => template.map(Some),
    }
}

/// Refuses the first of some numbers that is 0.
pub(crate) fn positive(numbers: &[(&'static str, usize)]) -> Result<(), SettingsError> {
    let zero = numbers.iter().find(|(_, number)| *number == 0);
    zero.map_or(Ok(()), |&(key, _)| Err(SettingsError::Zero { key }))
}

/// Refuses the first of some exclusions that holds: whether it does, which settings, and the fix.
pub(crate) fn exclusive(cases: &[(bool, &'static str, &'static str)]) -> Result<(), SettingsError> {
    let found = cases.iter().find(|(holds, ..)| *holds);
    found.map_or(Ok(()), |&(_, what, fix)| {
        Err(SettingsError::Excluded { what, fix })
    })
}

/// The consequence of a turn that is not an action.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnInvalid {
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

/// Settings that no environment can have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SettingsError {
    /// A number must be positive.
    #[error("`{key}` is 0; write at least 1")]
    Zero {
        /// The setting.
        key: &'static str,
    },
    /// Two settings exclude each other.
    #[error("{what}; {fix}")]
    Excluded {
        /// Which.
        what: &'static str,
        /// What to write instead.
        fix: &'static str,
    },
    /// The passage format shows no text.
    #[error("`observation.passage` does not contain {{text}}")]
    NoText,
    /// The prompt does not ask the question.
    #[error(
        "the prompt template does not contain {{question}}; write it where the question is to stand"
    )]
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
    /// A file of experience cannot be used.
    #[error("`experience.path` {}{}: {fault}; write it by `forage data experience`", path.display(), at_line(*line))]
    Experience {
        /// The file.
        path: PathBuf,
        /// The line at fault, from 1; 0 where it is none.
        line: usize,
        /// What is wrong.
        fault: String,
    },
}

/// Names a line of a file; nothing for 0.
fn at_line(line: usize) -> String {
    if line == 0 {
        return String::new();
    }
    format!(", line {line}")
}

impl From<SettingsError> for RegistryError {
    fn from(error: SettingsError) -> Self {
        Self::Settings(error.into())
    }
}

impl SettingsError {
    /// Tool calls with a tokenizer that loses their tags.
    pub(crate) fn unwritable_calls() -> Self {
        Self::Excluded {
            what: "`form` asks for tool calls and the policy's tokenizer does not give <tool_call> back as it was written",
            fix: "use a checkpoint whose tokenizer does, or write form = \"tags\"",
        }
    }
}

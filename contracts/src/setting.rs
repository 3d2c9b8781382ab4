//! The error of a setting or an argument.

use std::fmt::Display;

use crate::nearest::suggestion;

/// A setting or an argument that is out of range or does not go with another: its key, and a predicate that names the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} {fault}")]
pub struct SettingError {
    key: String,
    fault: String,
}

impl SettingError {
    /// The error of `key`: `fault` is a predicate that names the fix.
    pub fn new(key: impl Into<String>, fault: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            fault: fault.into(),
        }
    }

    /// The error of a value that `must` describes.
    pub fn range(key: impl Into<String>, value: impl Display, must: &str) -> Self {
        Self::new(key, format!("is {value}: it must be {must}"))
    }

    /// The error of a name that is not among the `known`.
    pub fn unknown(kind: &str, name: &str, known: impl Iterator<Item = &'static str>) -> Self {
        let fault = format!("`{name}`; {}", suggestion(name, known));
        Self::new(format!("unknown {kind}"), fault)
    }

    /// The same error, seen from the part that holds the setting.
    #[must_use]
    pub fn of(self, part: &str) -> Self {
        Self {
            key: format!("{part}: {}", self.key),
            ..self
        }
    }

    /// The same error, of a key in the table `table`.
    #[must_use]
    pub fn in_table(self, table: &str) -> Self {
        Self {
            key: format!("{table}.{}", self.key),
            ..self
        }
    }
}

impl From<serde_json::Error> for SettingError {
    fn from(cause: serde_json::Error) -> Self {
        Self::new("settings", format!("cannot be read: {cause}"))
    }
}

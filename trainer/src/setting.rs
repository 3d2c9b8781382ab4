//! The error of a setting.

use std::fmt::Display;

use forage_env::nearest;

/// A setting that is out of range or does not go with another: its key, and a predicate that names the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} {fault}")]
pub struct SettingError {
    key: String,
    fault: String,
}

impl SettingError {
    pub(crate) fn new(key: impl Into<String>, fault: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            fault: fault.into(),
        }
    }

    /// The error of a value that `must` describes.
    pub(crate) fn range(key: impl Into<String>, value: impl Display, must: &str) -> Self {
        Self::new(key, format!("is {value}: it must be {must}"))
    }

    /// The error of a name that is not among the `known`.
    pub(crate) fn unknown(
        kind: &str,
        name: &str,
        known: impl Iterator<Item = &'static str>,
    ) -> Self {
        let known: Vec<&'static str> = known.collect();
        let near = nearest(name, known.iter().copied());
        let known = known.join(", ");
        let fault = format!("`{name}`; did you mean `{near}`? There are {known}");
        Self::new(format!("unknown {kind}"), fault)
    }

    /// The same error, seen from the part that holds the setting.
    #[must_use]
    pub(crate) fn of(self, part: &str) -> Self {
        Self {
            key: format!("{part}: {}", self.key),
            ..self
        }
    }
}

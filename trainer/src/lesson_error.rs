//! Errors in files of training data.

use std::error::Error;
use std::path::Path;

type Cause = Box<dyn Error + Send + Sync>;

/// A file of rollouts or demonstrations that cannot be learned from.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {fault}")]
pub struct LessonError {
    path: String,
    fault: String,
    source: Option<Cause>,
}

/// A fault of a file or of one of its lines: a predicate that names the fix, such as "has no reward; give it one".
#[derive(Debug)]
pub(crate) struct Fault {
    words: String,
    cause: Option<Cause>,
}

impl<T: Into<String>> From<T> for Fault {
    fn from(words: T) -> Self {
        Self {
            words: words.into(),
            cause: None,
        }
    }
}

impl Fault {
    pub(crate) fn because(words: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self {
            words: words.into(),
            cause: Some(cause.into()),
        }
    }

    /// The fault of a file that cannot be read.
    pub(crate) fn unread(cause: impl Into<Cause>) -> Self {
        Self::because("cannot be read", cause)
    }

    /// The same fault, of the line or row that `place` names.
    pub(crate) fn at(self, place: &str, number: impl std::fmt::Display) -> Self {
        Self {
            words: format!("{place} {number} {}", self.words),
            ..self
        }
    }

    pub(crate) fn of(self, path: &Path) -> LessonError {
        LessonError {
            path: path.display().to_string(),
            fault: self.words,
            source: self.cause,
        }
    }
}

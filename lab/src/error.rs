//! The error of this crate: a config at fault, or a stage that failed.

use std::error::Error;

use forage_contracts::RegistryError;
use forage_env::reward::RewardSetError;
use forage_env::{DatasetError, RecordError, TokenizerError, WikiError, WorldError};
use forage_eval::{StatsError, VerdictError};
use forage_retriever::{IndexError, ReadError, RetrieverError, TapeError};
use forage_trainer::checkpoint::CheckpointError;
use forage_trainer::device::DeviceError;
use forage_trainer::run::RunError as TrainerError;
use forage_trainer::{FileError, WeightsError};

type Source = Box<dyn Error + Send + Sync>;

/// The result of this crate's functions.
pub(crate) type Result<T, E = RunError> = std::result::Result<T, E>;

/// A run, or a part of one, that came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The config is at fault, or an argument that takes the place of a key: nothing was begun.
    #[error("{what}")]
    Config {
        /// The place and the fault.
        what: String,
        /// The cause, or the fix.
        source: Option<Source>,
    },
    /// A stage failed.
    #[error("{what}")]
    Stage {
        /// The stage.
        what: String,
        /// The cause.
        source: Option<Source>,
    },
    /// The work was told to stop, as by a signal.
    #[error("{what}")]
    Stopped {
        /// How far it came, what is kept and how it goes on.
        what: String,
    },
    /// A part failed whose error says enough.
    #[error(transparent)]
    Part(Source),
}

impl RunError {
    /// A config at fault.
    pub fn config(what: impl Into<String>) -> Self {
        Self::Config {
            what: what.into(),
            source: None,
        }
    }

    /// A config at fault for a reason, or with a fix.
    pub fn config_because(what: impl Into<String>, source: impl Into<Source>) -> Self {
        Self::Config {
            what: what.into(),
            source: Some(source.into()),
        }
    }

    pub(crate) fn stopped(what: impl Into<String>) -> Self {
        Self::Stopped { what: what.into() }
    }

    pub(crate) fn stage(what: impl Into<String>) -> Self {
        Self::Stage {
            what: what.into(),
            source: None,
        }
    }
}

macro_rules! parts {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for RunError {
            fn from(error: $error) -> Self {
                Self::Part(Box::new(error))
            }
        })*
    };
}

parts!(
    CheckpointError,
    DatasetError,
    DeviceError,
    IndexError,
    FileError,
    ReadError,
    RecordError,
    RegistryError,
    RetrieverError,
    RewardSetError,
    StatsError,
    TapeError,
    TokenizerError,
    VerdictError,
    WeightsError,
    WikiError,
    WorldError,
    forage_env::reward::judge::JudgeError,
    forage_eval::CompareError,
    forage_eval::ReportError,
    forage_eval::StudyError,
    forage_trainer::LessonError,
    serde_json::Error,
    toml::ser::Error,
);

impl From<TrainerError> for RunError {
    fn from(error: TrainerError) -> Self {
        match error {
            TrainerError::Interrupted { .. } => Self::stopped(error.to_string()),
            error => Self::Part(Box::new(error)),
        }
    }
}

impl From<toml::de::Error> for RunError {
    fn from(error: toml::de::Error) -> Self {
        Self::config(error.to_string())
    }
}

/// Says where an error happened.
pub(crate) trait Context<T> {
    /// The stage that failed.
    fn context(self, what: impl Into<String>) -> Result<T>;
    /// The stage that failed, put into words when it did.
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T>;
    /// The part of the config that is at fault.
    fn in_config(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<Source>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.with_context(|| what.into())
    }

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| RunError::Stage {
            what: what(),
            source: Some(source.into()),
        })
    }

    fn in_config(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| RunError::config_because(what, source))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.ok_or_else(|| RunError::stage(what))
    }

    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.ok_or_else(|| RunError::stage(what()))
    }

    fn in_config(self, what: impl Into<String>) -> Result<T> {
        self.ok_or_else(|| RunError::config(what))
    }
}

/// An error with its causes on one line.
pub(crate) fn causes(error: &RunError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(found) = cause {
        let words = found.to_string();
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        cause = found.source();
    }
    text
}

/// Returns a config at fault, in the words of a format string.
macro_rules! refuse {
    ($($words:tt)*) => {
        return Err($crate::error::RunError::config(format!($($words)*)))
    };
}
pub(crate) use refuse;

/// Returns a failed stage, in the words of a format string.
macro_rules! bail {
    ($($words:tt)*) => {
        return Err($crate::error::RunError::stage(format!($($words)*)))
    };
}
pub(crate) use bail;

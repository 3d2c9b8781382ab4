//! Why there is no verdict.

use std::path::PathBuf;

use forage_net::{Fault, NetError};

/// A judge gave no verdict. Never a bad score.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    /// A setting cannot work.
    #[error("`{key}` {what}")]
    Setting {
        /// The key in `[reward.judge]`.
        key: String,
        /// The problem and the fix.
        what: String,
    },
    /// There is nothing to compare with.
    #[error("there is no accepted answer to judge by; give the question one, or judge by a rubric")]
    NoGold,
    /// The budget is spent.
    #[error(
        "the judge's budget is spent: {spent} sent, {key} is {limit}; raise it, or name a cache file and resume"
    )]
    Budget {
        /// The key in `[reward.judge]`.
        key: &'static str,
        /// Requests or tokens so far.
        spent: u64,
        /// The limit.
        limit: u64,
    },
    /// The server cannot be reached, fails or refuses.
    #[error("judge at {0}; check that it serves this model and what it logs")]
    Call(NetError),
    /// The model replies, and its replies are not verdicts, or are cut off by `max_tokens`.
    #[error("judge at {0}; check that it serves this model and what it logs")]
    Unread(NetError),
    /// Twice a refusal, a failure of the server or a reply without a verdict, from a judge that gives one once the policy's texts are
    /// left out: the texts are to blame.
    #[error("the judge gives no verdict on what was written, but does once it is left out: {0}")]
    Refused(NetError),
    /// The cache file cannot be used.
    #[error("the judge's cache `{}`: {what}", path.display())]
    Cache {
        /// The file.
        path: PathBuf,
        /// The problem and the fix.
        what: String,
    },
}

impl From<JudgeError> for forage_contracts::SettingError {
    fn from(error: JudgeError) -> Self {
        match error {
            JudgeError::Setting { key, what } => Self::new(format!("`{key}`"), what),
            other => Self::new("judge", format!("cannot be used: {other}")),
        }
    }
}

impl JudgeError {
    /// Returns true when the server refuses a request for what is in it, as it does when that exceeds its context.
    pub(super) fn refuses_request(&self) -> bool {
        let Self::Call(error) = self else {
            return false;
        };
        matches!(
            error.fault,
            Fault::Status {
                status: 400 | 413 | 422,
                ..
            }
        )
    }

    /// Returns true when the server says that it failed, as it does on a request that it cannot process, and in trouble of its own.
    pub(super) fn is_failure(&self) -> bool {
        let Self::Call(error) = self else {
            return false;
        };
        matches!(error.fault, Fault::Status { status: 500, .. })
    }

    /// Returns true for errors of which the texts shown to the judge may be the cause.
    pub(super) fn may_be_the_texts(&self) -> bool {
        self.refuses_request() || self.is_failure() || matches!(self, Self::Unread(_))
    }
}

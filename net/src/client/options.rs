//! Settings of calls.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::credentials::Auth;
use super::error::SettingError;
use super::retry::Retry;

/// Limits and credentials of calls to one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpOptions {
    /// Longest time one try may take, ms.
    pub timeout_ms: u64,
    /// Longest time a call may take from its turn on, ms: tries and waits together. Calls that wait for their turn fail when none was
    /// answered for so long.
    pub deadline_ms: u64,
    /// Most tries of one call, at least 1.
    pub attempts: u32,
    /// Wait after the first failed try, ms; it doubles with every further one.
    pub backoff_ms: u64,
    /// Most calls in flight at once.
    pub concurrency: usize,
    /// Longest answer that is read, bytes.
    pub max_answer_bytes: u64,
    /// File with the credentials, see `auth`; blanks and line ends around them are dropped. None: no credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// The kind of credentials in `token_file`.
    pub auth: Auth,
    /// PEM file of the only certificate authorities to trust. None: those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            timeout_ms: 10_000,
            deadline_ms: 60_000,
            attempts: 5,
            backoff_ms: 250,
            concurrency: 32,
            max_answer_bytes: 64 << 20,
            token_file: None,
            auth: Auth::default(),
            ca_file: None,
        }
    }
}

impl HttpOptions {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let counts = [
            ("timeout_ms", self.timeout_ms),
            ("deadline_ms", self.deadline_ms),
            ("attempts", u64::from(self.attempts)),
            ("concurrency", self.concurrency as u64),
            ("max_answer_bytes", self.max_answer_bytes),
        ];
        match counts.into_iter().find(|(_, count)| *count == 0) {
            None => Ok(()),
            Some((key, _)) => Err(SettingError::new(key, "is 0; use at least 1")),
        }
    }

    /// The policy of a call that has its turn.
    pub(super) fn retry(&self) -> Retry {
        Retry {
            attempts: self.attempts,
            backoff: Duration::from_millis(self.backoff_ms),
            deadline: Some(Duration::from_millis(self.deadline_ms)),
        }
    }
}

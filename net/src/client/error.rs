//! Failures of calls.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use super::retry::Again;

/// A setting of a client that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {what}")]
pub struct SettingError {
    /// The key.
    pub key: &'static str,
    /// The problem and the fix.
    pub what: String,
}

impl SettingError {
    pub(super) fn new(key: &'static str, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { key, what }
    }
}

/// A call that failed, retries included.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{url}: {fault}, after {attempts} attempt{}", if *.attempts == 1 { "" } else { "s" })]
pub struct NetError {
    /// The address, without its query.
    pub url: String,
    /// The failure of the last attempt.
    pub fault: Fault,
    /// Requests sent.
    pub attempts: u32,
}

/// The failure of one attempt. Text of the server is shown without the credentials that it may echo.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// There is no connection.
    #[error("cannot connect ({})", innermost(.0))]
    Connect(#[source] Arc<reqwest::Error>),
    /// The connection was lost in the middle of the answer.
    #[error("the answer breaks off after {bytes} bytes ({})", innermost(.cause))]
    Broken {
        /// Bytes received.
        bytes: usize,
        /// The failure of the connection.
        #[source]
        cause: Arc<reqwest::Error>,
    },
    /// The answer did not come in time.
    #[error("no answer within {milliseconds} ms")]
    Timeout {
        /// The limit, ms.
        milliseconds: u64,
    },
    /// Other calls held every place, and none of them was answered.
    #[error(
        "no turn came: of {concurrency} calls at once none was answered within {milliseconds} ms; check the server, or raise `deadline_ms`"
    )]
    Queued {
        /// The longest time without an answer, ms.
        milliseconds: u64,
        /// Most calls at once.
        concurrency: usize,
    },
    /// The HTTP status is not a success.
    #[error("HTTP status {status}: {body}")]
    Status {
        /// The code.
        status: u16,
        /// The beginning of the body.
        body: String,
        /// The wait that the server asks for.
        retry_after: Option<Duration>,
    },
    /// The answer does not fit the protocol, and the next one will not either.
    #[error("the answer does not fit the protocol ({0})")]
    Protocol(String),
    /// The answer cannot be used, but the next one may be: it is not JSON or has another shape, because a proxy
    /// answered, or a model wrote it; or it covers only a part of the work.
    #[error("the answer does not fit the protocol ({0})")]
    Unusable(String),
    /// The caller lets nothing more be sent.
    #[error("not asked: {0}")]
    Withheld(String),
}

impl Fault {
    /// Says whether another attempt may do better, and when.
    pub fn again(&self) -> Again {
        match self {
            Self::Connect(_) | Self::Broken { .. } | Self::Timeout { .. } | Self::Unusable(_) => {
                Again::Soon
            }
            Self::Status {
                status: 408 | 425 | 429 | 500 | 502..,
                retry_after,
                ..
            } => {
                // A wait of 0 would ask a server in trouble again and again without a pause.
                let asked = retry_after.filter(|wait| !wait.is_zero());
                asked.map_or(Again::Soon, Again::After)
            }
            Self::Status { .. } | Self::Queued { .. } | Self::Protocol(_) | Self::Withheld(_) => {
                Again::Never
            }
        }
    }

    /// The fault with its text of the server changed.
    pub(super) fn map_text(self, change: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Protocol(what) => Self::Protocol(change(&what)),
            Self::Unusable(what) => Self::Unusable(change(&what)),
            Self::Status {
                status,
                body,
                retry_after,
            } => Self::Status {
                status,
                body: change(&body),
                retry_after,
            },
            other => other,
        }
    }
}

impl From<String> for Fault {
    fn from(what: String) -> Self {
        Self::Protocol(what)
    }
}

/// The innermost cause; the outer ones only repeat what was tried.
pub(super) fn innermost(cause: &dyn Error) -> String {
    let mut inner = cause;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

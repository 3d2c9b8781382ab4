//! What can go wrong with a remote engine.

use std::path::PathBuf;

use forage_env::policy::PolicyError;

/// A try failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RemoteFault {
    /// No connection, or one that broke off.
    #[error("it cannot be reached ({0}); check that it runs and that the address is right")]
    Unreachable(String),
    /// No answer in time.
    #[error("no answer within {seconds} s; give it more time or less to do")]
    Timeout {
        /// The limit, s.
        seconds: f64,
    },
    /// An HTTP status that is not a success.
    #[error("HTTP status {status}: {body}")]
    Status {
        /// The code.
        status: u16,
        /// Beginning of the body.
        body: String,
    },
    /// A body that is not of the protocol.
    #[error("the answer does not fit the protocol ({0}); check `kind` and the server's version")]
    Malformed(String),
    /// Token ids and log-probabilities that do not belong together, or not to the request.
    #[error("the answer contradicts itself or the request: {0}")]
    Counts(String),
    /// A log-probability that is none.
    #[error("a log-probability is none: {0}")]
    Logprob(String),
    /// The server gave up the request.
    #[error("the server aborted the request ({0})")]
    Aborted(String),
    /// The server says inside a success that it failed.
    #[error("the server reports a failure: {0}")]
    Refused(String),
}

impl RemoteFault {
    /// Whether the next try may do better.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Refused(_) => false,
            _ => true,
        }
    }

    /// Whether the server found the request itself wrong.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Status { status: 400 | 413 | 422, .. })
    }
}

/// A remote engine cannot be used, or not for this request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RemoteError {
    /// A setting is wrong.
    #[error("remote policy: `{key}` {what}")]
    Setting {
        /// The key.
        key: &'static str,
        /// What is wrong with it and the fix.
        what: String,
    },
    /// A request that breaks the contract before it is sent.
    #[error("{0}")]
    Request(String),
    /// The server did not get ready, or is not the one that was meant.
    #[error("the server at {url} is not ready after {seconds:.1} s: {what}")]
    NotReady {
        /// Its address.
        url: String,
        /// Time waited, s.
        seconds: f64,
        /// What it said last and the fix.
        what: String,
    },
    /// A call failed.
    #[error("{url} (try {tries}): {fault}")]
    Call {
        /// What was called.
        url: String,
        /// Tries made.
        tries: u32,
        /// How the last one failed.
        fault: RemoteFault,
    },
    /// Too many requests in a row failed.
    #[error(
        "the server at {url} left {failures} requests in a row unanswered and is not asked again; restart it, then \
         resume the run; last failure: {last}"
    )]
    GivenUp {
        /// Its address.
        url: String,
        /// Failures in a row.
        failures: u32,
        /// The last one.
        last: String,
    },
    /// It is not known which weights the server has.
    #[error("the weights of the server at {url} are not known: {what}; restart it, then resume the run")]
    Weights {
        /// Its address.
        url: String,
        /// Why.
        what: String,
    },
    /// A folder cannot be pushed.
    #[error("`{}` cannot be pushed: {what}", path.display())]
    Folder {
        /// The folder, or the file in it.
        path: PathBuf,
        /// What is wrong with it and the fix.
        what: String,
    },
}

impl RemoteError {
    pub(super) fn setting(key: &'static str, what: impl Into<String>) -> Self {
        Self::Setting { key, what: what.into() }
    }

    /// Whether a request that ended so says that the server does not work. A request that is wrong in itself does not.
    pub(super) fn counts_against_server(&self) -> bool {
        match self {
            Self::Call { fault, .. } => !fault.is_refusal(),
            _ => false,
        }
    }
}

impl From<RemoteError> for PolicyError {
    fn from(error: RemoteError) -> Self {
        let message = error.to_string();
        match error {
            RemoteError::Request(_) => Self::BadRequest(message),
            RemoteError::GivenUp { .. }
            | RemoteError::Weights { .. }
            | RemoteError::NotReady { .. }
            | RemoteError::Setting { .. }
            | RemoteError::Folder { .. } => Self::Gone(message),
            RemoteError::Call { fault, .. } => match fault {
                fault if fault.is_refusal() => Self::BadRequest(message),
                RemoteFault::Malformed(_) | RemoteFault::Counts(_) => Self::Malformed(message),
                RemoteFault::Logprob(_) => Self::NonFinite(message),
                _ => Self::Unavailable(message),
            },
        }
    }
}

//! Failures of a remote engine.

use std::path::PathBuf;

use forage_contracts::policy::PolicyError;
use forage_net::{Again, Fault, SettingError};

/// A try failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteFault {
    /// The request got no answer.
    #[error("{fault}{hint}", fault = .0, hint = hint(.0))]
    Net(Fault),
    /// A body that is not of the protocol.
    #[error(
        "the answer does not fit the protocol ({0}); check the address and the server's version, and `kind` in [sampler]"
    )]
    Malformed(String),
    /// Token ids and log-probabilities that do not belong together, or not to the request.
    #[error("the answer contradicts itself or the request: {0}")]
    Counts(String),
    /// A log-probability that is not one.
    #[error("a log-probability is not one: {0}")]
    Logprob(String),
    /// The server gave up the request.
    #[error("the server aborted the request ({0})")]
    Aborted(String),
    /// The server says inside a success that it failed.
    #[error("the server reports a failure: {0}")]
    Refused(String),
}

/// Characters of what a server wrote that an error repeats.
const SHOWN_CHARS: usize = 400;

impl RemoteFault {
    /// The fault as errors show it: what the server wrote without credentials, and no more of it than fits. Faults of the connection are
    /// made so where they arise.
    pub(super) fn shown(mut self, redact: impl Fn(&str) -> String) -> Self {
        if let Self::Malformed(text)
        | Self::Counts(text)
        | Self::Logprob(text)
        | Self::Aborted(text)
        | Self::Refused(text) = &mut self
        {
            *text = redact(text);
            if let Some((end, _)) = text.char_indices().nth(SHOWN_CHARS) {
                text.truncate(end);
            }
        }
        self
    }

    /// Says whether another try may do better, and when.
    pub(super) fn again(&self) -> Again {
        match self {
            Self::Net(fault) => fault.again(),
            Self::Refused(_) => Again::Never,
            _ => Again::Soon,
        }
    }

    /// Returns true when the server found the request itself wrong.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Net(Fault::Status {
                status: 400 | 413 | 422,
                ..
            })
        )
    }

    /// Returns true where the server may have been replaced by another process.
    pub(super) fn may_be_restart(&self) -> bool {
        matches!(
            self,
            Self::Net(
                Fault::Connect(_)
                    | Fault::Broken { .. }
                    | Fault::Timeout { .. }
                    | Fault::Status {
                        status: 502..=504,
                        ..
                    }
            )
        )
    }

    /// The server's words about a request that it does not answer.
    pub(super) fn said(&self) -> &str {
        match self {
            Self::Net(Fault::Status { body, .. }) => body,
            _ => "",
        }
    }

    /// Returns true when the server found the request too long for its model's window. Every server has words of its own for that;
    /// all of them name the context.
    pub(super) fn is_length(&self) -> bool {
        const WORDS: [&str; 4] = [
            "context length",
            "context_length",
            "context size",
            "context window",
        ];
        let said = self.said().to_lowercase();
        self.is_refusal() && WORDS.iter().any(|words| said.contains(words))
    }
}

impl From<Fault> for RemoteFault {
    fn from(fault: Fault) -> Self {
        Self::Net(fault)
    }
}

/// The likely fix.
fn hint(fault: &Fault) -> &'static str {
    match fault {
        Fault::Connect(_) => "; check that it runs and that the address is right",
        Fault::Timeout { .. } => "; give it more time or less to do",
        _ => "",
    }
}

/// A remote engine cannot be used, or not for this request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteError {
    /// A setting is wrong.
    #[error("remote policy: `{key}` {what}")]
    Setting {
        /// The key.
        key: &'static str,
        /// The problem and the fix.
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
        /// Its last answer and the fix.
        what: String,
    },
    /// A call failed.
    #[error("{url} (try {tries}): {fault}")]
    Call {
        /// The address that was called.
        url: String,
        /// Tries made.
        tries: u32,
        /// The failure of the last one.
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
    #[error(
        "the weights of the server at {url} are not known: {what}; restart it, then resume the run"
    )]
    Weights {
        /// Its address.
        url: String,
        /// Why.
        what: String,
    },
    /// A server has other weights than were pushed.
    #[error("the server at {url} does not have the weights that were pushed: {what}")]
    Unverified {
        /// Its address.
        url: String,
        /// The figures, and the fix.
        what: String,
    },
    /// A folder cannot be pushed.
    #[error("`{}` cannot be pushed: {what}", path.display())]
    Folder {
        /// The folder, or the file in it.
        path: PathBuf,
        /// The problem and the fix.
        what: String,
    },
}

impl RemoteError {
    pub(super) fn setting(key: &'static str, what: impl Into<String>) -> Self {
        Self::Setting {
            key,
            what: what.into(),
        }
    }

    /// Returns true when a request that ended so says that the server does not work. A request that is wrong in itself does not.
    pub(super) fn counts_against_server(&self) -> bool {
        match self {
            Self::Call { fault, .. } => !fault.is_refusal(),
            _ => false,
        }
    }

    /// Returns true when another server with the same weights may answer the request.
    pub(super) fn is_of_server(&self) -> bool {
        self.counts_against_server() || matches!(self, Self::GivenUp { .. } | Self::Weights { .. })
    }
}

impl From<SettingError> for RemoteError {
    fn from(SettingError { key, what }: SettingError) -> Self {
        Self::Setting { key, what }
    }
}

impl From<RemoteError> for PolicyError {
    fn from(error: RemoteError) -> Self {
        let message = error.to_string();
        match error {
            RemoteError::Request(_) => Self::BadRequest(message),
            RemoteError::GivenUp { .. }
            | RemoteError::Weights { .. }
            | RemoteError::Unverified { .. }
            | RemoteError::NotReady { .. }
            | RemoteError::Setting { .. }
            | RemoteError::Folder { .. } => Self::Gone(message),
            RemoteError::Call { fault, .. } => match fault {
                fault if fault.is_refusal() => Self::BadRequest(message),
                RemoteFault::Net(Fault::Protocol(_))
                | RemoteFault::Malformed(_)
                | RemoteFault::Counts(_) => Self::Malformed(message),
                RemoteFault::Logprob(_) => Self::NonFinite(message),
                _ => Self::Unavailable(message),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_wrote_is_shown_in_part() {
        for fault in [
            RemoteFault::Malformed("ä".repeat(1 << 20)),
            RemoteFault::Refused("ä".repeat(1 << 20)),
        ] {
            let shown = fault.shown(str::to_owned).to_string();
            assert!(shown.contains("ää") && shown.len() < 1000, "{shown}");
        }
        let short = RemoteFault::Aborted("no memory".to_owned()).shown(str::to_owned);
        assert_eq!(
            short.to_string(),
            "the server aborted the request (no memory)"
        );
    }
}

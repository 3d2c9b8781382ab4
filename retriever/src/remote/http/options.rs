//! How a remote server is called.

use std::path::{Path, PathBuf};

use reqwest::{Certificate, Url};
use serde::{Deserialize, Serialize};

use super::auth::Auth;
use crate::error::RetrieverError;
use crate::exchange;

/// Limits and credentials of calls to one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpOptions {
    /// Longest time one try may take, ms.
    pub timeout_ms: u64,
    /// Longest time a call may take, tries and waits together, ms; the time it queues for its turn is not counted.
    pub deadline_ms: u64,
    /// Most tries of one call, at least 1.
    pub attempts: u32,
    /// Wait after the first failed try, ms; it doubles with every further one.
    pub backoff_ms: u64,
    /// Most calls in flight at once.
    pub concurrency: usize,
    /// Longest answer that is read, bytes.
    pub max_answer_bytes: u64,
    /// File with the credentials, see [`Auth`]; blanks and line ends around them are dropped. None: no credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// What `token_file` holds.
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
    pub(super) fn validate(&self) -> Result<(), RetrieverError> {
        let counts = [
            ("timeout_ms", self.timeout_ms),
            ("deadline_ms", self.deadline_ms),
            ("attempts", u64::from(self.attempts)),
            ("concurrency", self.concurrency as u64),
            ("max_answer_bytes", self.max_answer_bytes),
        ];
        match counts.into_iter().find(|(_, count)| *count == 0) {
            None => Ok(()),
            Some((key, _)) => Err(setting(key, "is 0; use at least 1")),
        }
    }

    /// Certificates are read only where they are needed: a plain `http` address works without any on the machine.
    pub(super) fn client(&self, base: &Url) -> Result<reqwest::Client, RetrieverError> {
        let mut builder = exchange::client(base).pool_max_idle_per_host(self.concurrency);
        if let Some(path) = self.ca_file.as_ref().filter(|_| base.scheme() == "https") {
            builder = builder.tls_certs_only(authorities(path)?);
        }
        builder.build().map_err(|cause| setting("url", &format!("TLS cannot be set up ({})", exchange::reason(cause))))
    }
}

fn authorities(path: &Path) -> Result<Vec<Certificate>, RetrieverError> {
    let unusable = |cause: String| setting("ca_file", &format!("`{}` cannot be used ({cause})", path.display()));
    let pem = std::fs::read(path).map_err(|cause| unusable(cause.to_string()))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|cause| unusable(exchange::reason(cause)))?;
    if certificates.is_empty() {
        return Err(unusable("no certificate in it; give a PEM file".to_owned()));
    }
    Ok(certificates)
}

pub(super) fn setting(key: &str, what: &str) -> RetrieverError {
    RetrieverError::Setting { key: key.to_owned(), what: what.to_owned() }
}

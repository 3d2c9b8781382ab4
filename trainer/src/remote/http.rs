//! One exchange over HTTP: JSON out, bytes back. No proxy of the environment is used and no redirect is followed.

use std::fmt;
use std::time::Duration;

use forage_retriever::exchange::{self, beginning, reason};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, Url};

use super::config::RemoteConfig;
use super::error::{RemoteError, RemoteFault};

/// Longest answer that is read: a hundred bytes for each of half a million tokens.
const ANSWER_BYTES: usize = 64 << 20;
/// Characters of a failure's body that are shown.
const FAILURE_CHARS: usize = 300;
/// Both kinds of server close idle connections after 5 s; a request on a closed one would be lost.
const IDLE: Duration = Duration::from_secs(3);

/// What is asked.
pub(super) enum Ask {
    Get,
    /// With a JSON body.
    Post(Vec<u8>),
}

/// Why a try failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: RemoteFault,
    /// The wait the server asked for.
    pub(super) wait: Option<Duration>,
}

impl From<RemoteFault> for Failure {
    fn from(fault: RemoteFault) -> Self {
        Self { fault, wait: None }
    }
}

/// Calls one server.
pub(super) struct Http {
    client: Client,
    /// Without a slash at the end.
    base: String,
    token: Option<String>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("base", &self.base).field("token", &self.token.is_some()).finish_non_exhaustive()
    }
}

impl Http {
    /// Prepares calls; nothing is sent.
    pub(super) fn new(config: &RemoteConfig) -> Result<Self, RemoteError> {
        let base = parse(&config.url)?;
        let token = config.token()?;
        let client = exchange::client(&base)
            .pool_idle_timeout(IDLE)
            .build()
            .map_err(|cause| RemoteError::setting("url", format!("TLS cannot be set up: {}", reason(cause))))?;
        Ok(Self { client, base: base.as_str().trim_end_matches('/').to_owned(), token })
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// An address below the base. `path` begins with a slash.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sends a request once. Dropping the future closes the connection, and with it the server ends its work.
    pub(super) async fn exchange(&self, path: &str, ask: &Ask, limit: Duration) -> Result<Vec<u8>, Failure> {
        match tokio::time::timeout(limit, self.send(path, ask)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(RemoteFault::Timeout { seconds: limit.as_secs_f64() }.into()),
        }
    }

    async fn send(&self, path: &str, ask: &Ask) -> Result<Vec<u8>, Failure> {
        let url = self.url(path);
        let mut builder = match ask {
            Ask::Get => self.client.get(url),
            Ask::Post(body) => self.client.post(url).header(CONTENT_TYPE, "application/json").body(body.clone()),
        };
        if let Some(token) = &self.token {
            builder = builder.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let unreachable = |cause| Failure::from(RemoteFault::Unreachable(reason(cause)));
        let response = builder.send().await.map_err(unreachable)?;
        if !response.status().is_success() {
            return Err(self.failure(response).await);
        }
        read(response).await
    }

    async fn failure(&self, response: Response) -> Failure {
        let status = response.status().as_u16();
        let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let body = beginning(response).await;
        Failure {
            fault: RemoteFault::Status { status, body: self.shown(body.trim()) },
            wait: wait.map(Duration::from_secs),
        }
    }

    /// The beginning of a text of the server, without the token that it may echo.
    pub(super) fn shown(&self, text: &str) -> String {
        let text = match &self.token {
            Some(token) => text.replace(token.as_str(), "[token]"),
            None => text.to_owned(),
        };
        text.chars().take(FAILURE_CHARS).collect()
    }
}

fn parse(text: &str) -> Result<Url, RemoteError> {
    let wrong = |what: String| RemoteError::setting("url", what);
    let url =
        Url::parse(text).map_err(|cause| wrong(format!("is not an address ({cause}); write http://HOST:PORT")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(format!("has the scheme `{}`; use http or https", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("must be scheme, host, port and path only; a token goes to token_file".to_owned()));
    }
    if url.path().trim_end_matches('/').ends_with("/v1") {
        return Err(wrong("ends with /v1; leave that out".to_owned()));
    }
    Ok(url)
}

async fn read(mut response: Response) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > ANSWER_BYTES => {
                return Err(RemoteFault::Malformed(format!("longer than {ANSWER_BYTES} bytes")).into());
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(cause) => {
                let what = format!("the answer breaks off after {} bytes: {}", body.len(), reason(cause));
                return Err(RemoteFault::Unreachable(what).into());
            }
        }
    }
}

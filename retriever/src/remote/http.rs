//! JSON over HTTP with time limits, retries and bounded concurrency: what every remote retriever calls through.
//!
//! A call is tried again after a connection that fails or breaks off, a try that takes too long, and the statuses 429,
//! 500, 502, 503 and 504. Every request made here is a search, so asking twice changes nothing on the server. Between
//! tries it waits `backoff_ms`, twice as long each time, with a jitter read off a hash of the request and the number of
//! the try: different requests spread, and the same request waits the same. `Retry-After` in seconds takes the place
//! of that wait; dates in it are not read. No proxy of the process' environment is used and no redirect is followed.

mod auth;
mod options;

use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Method, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::error::{RemoteFault, RetrieverError};
use crate::exchange::{beginning, reason};
pub(super) use auth::Authorization;
pub use auth::{Auth, KeyHeader};
pub use options::HttpOptions;

/// Longest wait between two tries, whatever the server asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Bytes set aside on the strength of `Content-Length` alone.
const BELIEVED_BYTES: u64 = 1 << 20;
/// Characters of a failure's body that are shown.
const FAILURE_CHARS: usize = 300;
/// Statuses after which the next try may do better.
const PASSING: [u16; 5] = [429, 500, 502, 503, 504];
const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

/// Calls one server.
pub struct Http {
    client: reqwest::Client,
    base: Url,
    options: HttpOptions,
    authorization: Authorization,
    permits: Semaphore,
}

/// What is sent, the same on every try.
struct Request {
    method: Method,
    url: Url,
    content_type: &'static str,
    body: Vec<u8>,
}

/// What is wrong with an answer that HTTP calls a success.
#[derive(Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It does not fit the protocol.
    Misfit(String),
    /// It does not fit either, but the next one may: a model wrote it.
    Again(String),
    /// It says inside that the work failed, with a status of its own.
    Refused {
        /// As in HTTP.
        status: u16,
        /// What it says.
        body: String,
    },
}

impl From<String> for Flaw {
    fn from(what: String) -> Self {
        Self::Misfit(what)
    }
}

/// Why a try failed, and whether the next may do better.
struct Failure {
    fault: RemoteFault,
    again: bool,
    /// The wait the server asked for.
    wait: Option<Duration>,
}

impl Failure {
    fn last(fault: RemoteFault) -> Self {
        Self { fault, again: false, wait: None }
    }

    fn passing(fault: RemoteFault) -> Self {
        Self { fault, again: true, wait: None }
    }
}

impl Http {
    /// Prepares calls to `base`; nothing is sent. `key_header` is where an API key goes for this kind of server.
    ///
    /// # Errors
    /// [`RetrieverError::Setting`] for an address, a limit or a credentials file that cannot work.
    pub fn new(base: &str, options: HttpOptions, key_header: KeyHeader) -> Result<Self, RetrieverError> {
        options.validate()?;
        let base = parse_base(base)?;
        let client = options.client(&base)?;
        let authorization = Authorization::read(&options, key_header)?;
        let permits = Semaphore::new(options.concurrency.min(Semaphore::MAX_PERMITS));
        Ok(Self { client, base, options, authorization, permits })
    }

    /// The server's address.
    pub(super) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// An address below the base; each segment is escaped where it must be, `/` included.
    pub fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// Sends a JSON value and takes from the answer what `take` makes of it.
    pub(super) async fn post<A: DeserializeOwned, T>(
        &self,
        url: &Url,
        body: &impl Serialize,
        take: impl Fn(A) -> Result<T, Flaw>,
    ) -> Result<T, RetrieverError> {
        let body = serde_json::to_vec(body).map_err(|cause| RetrieverError::Remote {
            url: shown(url),
            fault: RemoteFault::Protocol(format!("the request cannot be written: {cause}")),
            attempts: 0,
        })?;
        self.post_within(url, body, || Ok(()), take).await
    }

    /// As a post of JSON, with a say before each try: `admit` refuses in words, and nothing more is sent.
    ///
    /// # Errors
    /// [`RetrieverError::Remote`] with [`RemoteFault::Withheld`] for a refusal, otherwise the last try's fault.
    pub async fn post_within<A: DeserializeOwned, T>(
        &self,
        url: &Url,
        json: Vec<u8>,
        admit: impl Fn() -> Result<(), String>,
        take: impl Fn(A) -> Result<T, Flaw>,
    ) -> Result<T, RetrieverError> {
        let request = Request { method: Method::POST, url: url.clone(), content_type: JSON, body: json };
        self.call(request, admit, take).await
    }

    /// Sends lines of JSON, each ended by a line feed.
    pub(super) async fn post_lines<A: DeserializeOwned, T>(
        &self,
        url: &Url,
        lines: String,
        take: impl Fn(A) -> Result<T, Flaw>,
    ) -> Result<T, RetrieverError> {
        let body = lines.into_bytes();
        self.call(Request { method: Method::POST, url: url.clone(), content_type: LINES, body }, || Ok(()), take).await
    }

    /// Reads a JSON value.
    pub(super) async fn get<A: DeserializeOwned, T>(
        &self,
        url: &Url,
        take: impl Fn(A) -> Result<T, Flaw>,
    ) -> Result<T, RetrieverError> {
        let (method, url) = (Method::GET, url.clone());
        self.call(Request { method, url, content_type: JSON, body: Vec::new() }, || Ok(()), take).await
    }

    /// Tries until it works or the limits are reached. The permit is held while waiting too, so that a server in trouble
    /// is asked less.
    async fn call<A: DeserializeOwned, T>(
        &self,
        request: Request,
        admit: impl Fn() -> Result<(), String>,
        take: impl Fn(A) -> Result<T, Flaw>,
    ) -> Result<T, RetrieverError> {
        let _permit = self.permits.acquire().await.map_err(|_| RetrieverError::Stopped)?;
        let deadline = Duration::from_millis(self.options.deadline_ms);
        let started = Instant::now();
        let mut attempts = 0;
        loop {
            if let Err(why) = admit() {
                let fault = RemoteFault::Withheld(why);
                return Err(RetrieverError::Remote { url: shown(&request.url), fault, attempts });
            }
            attempts += 1;
            let left = deadline.saturating_sub(started.elapsed());
            let outcome = self.attempt(&request, left).await.and_then(|bytes| self.parse(&bytes, &take));
            let failure = match outcome {
                Ok(taken) => return Ok(taken),
                Err(failure) => failure,
            };
            let wait = failure.wait.unwrap_or_else(|| self.backoff(&request, attempts)).min(LONGEST_WAIT);
            let over = started.elapsed() + wait >= deadline;
            if !failure.again || attempts >= self.options.attempts || over {
                return Err(RetrieverError::Remote { url: shown(&request.url), fault: failure.fault, attempts });
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn attempt(&self, request: &Request, left: Duration) -> Result<Vec<u8>, Failure> {
        let limit = left.min(Duration::from_millis(self.options.timeout_ms));
        match tokio::time::timeout(limit, self.exchange(request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::passing(RemoteFault::Timeout { milliseconds: limit.as_millis() as u64 })),
        }
    }

    async fn exchange(&self, request: &Request) -> Result<Vec<u8>, Failure> {
        let mut builder = self.client.request(request.method.clone(), request.url.clone());
        if !request.body.is_empty() {
            builder = builder.header(CONTENT_TYPE, request.content_type).body(request.body.clone());
        }
        let builder = self.authorization.apply(builder);
        let response = builder.send().await.map_err(|cause| Failure::passing(RemoteFault::Connect(reason(cause))))?;
        if response.status().is_success() {
            return read(response, self.options.max_answer_bytes).await;
        }
        Err(self.refusal(response).await)
    }

    fn parse<A: DeserializeOwned, T>(&self, body: &[u8], take: impl Fn(A) -> Result<T, Flaw>) -> Result<T, Failure> {
        let misfit = |what: String| Failure::last(RemoteFault::Protocol(self.authorization.redact(&what)));
        let answer = serde_json::from_slice(body).map_err(|cause| misfit(cause.to_string()))?;
        take(answer).map_err(|flaw| match flaw {
            Flaw::Misfit(what) => misfit(what),
            Flaw::Again(what) => Failure { again: true, ..misfit(what) },
            Flaw::Refused { status, body } => {
                let fault = RemoteFault::Status { status, body: self.authorization.redact(&body) };
                Failure { fault, again: PASSING.contains(&status), wait: None }
            }
        })
    }

    async fn refusal(&self, response: Response) -> Failure {
        let status = response.status().as_u16();
        let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let body = beginning(response).await;
        let body = self.authorization.redact(body.trim()).chars().take(FAILURE_CHARS).collect();
        let wait = wait.map(Duration::from_secs);
        Failure { fault: RemoteFault::Status { status, body }, again: PASSING.contains(&status), wait }
    }

    /// Between half and all of `backoff_ms * 2^(attempt - 1)`.
    fn backoff(&self, request: &Request, attempt: u32) -> Duration {
        let whole = Duration::from_millis(self.options.backoff_ms).saturating_mul(1 << (attempt - 1).min(16));
        let mut hasher = blake3::Hasher::new();
        hasher.update(request.url.as_str().as_bytes()).update(&request.body).update(&attempt.to_le_bytes());
        let fraction = f64::from(hasher.finalize().as_bytes()[0]) / 255.0;
        whole.min(LONGEST_WAIT).mul_f64(0.5 + 0.5 * fraction)
    }
}

/// The whole body, refused as soon as it is known to be longer than `limit` bytes.
async fn read(mut response: Response, limit: u64) -> Result<Vec<u8>, Failure> {
    let too_long =
        || Failure::last(RemoteFault::Protocol(format!("longer than {limit} bytes, the limit `max_answer_bytes`")));
    let announced = response.content_length().unwrap_or(0);
    if announced > limit {
        return Err(too_long());
    }
    // What is announced is believed up to a point: memory grows with what comes.
    let mut body = Vec::with_capacity(announced.min(BELIEVED_BYTES) as usize);
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if (body.len() + chunk.len()) as u64 > limit => return Err(too_long()),
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(cause) => {
                let what = format!("it breaks off after {} bytes: {}", body.len(), reason(cause));
                return Err(Failure::passing(RemoteFault::Protocol(what)));
            }
        }
    }
}

/// An address as errors show it: without its query, which may be long.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

fn parse_base(base: &str) -> Result<Url, RetrieverError> {
    let wrong = |what: String| RetrieverError::Setting { key: "url".to_owned(), what };
    let url = Url::parse(base).map_err(|cause| wrong(format!("not an address ({cause}); write http://HOST:PORT")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(format!("scheme `{}` is not known; use http or https", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("holds a user or a password; put them into a file and name it in `token_file`".to_owned()));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("has a query or a fragment; give the address only".to_owned()));
    }
    Ok(url)
}

//! Calls of one server.

use std::fmt;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use reqwest::{Method, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::connect::{connected, parse};
use super::credentials::{Credentials, KeyHeader};
use super::error::{Fault, NetError, SettingError};
use super::options::HttpOptions;
use super::retry::Again;
use crate::values::count_values;

/// Bytes of one client's answers that are held at a time, from their arrival until they were parsed. A longer answer is held
/// alone.
const ANSWERS_BYTES: u32 = 256 << 20;
/// Bytes of an answer that wait for no room among the others, and most that are set aside on the strength of `Content-Length`
/// alone.
const FREE_BYTES: u64 = 256 << 10;
/// JSON values of an answer at most, with their keys: more than two hundred thousand questions have, or a thousand passages for
/// each of a hundred queries.
const MOST_VALUES: usize = 3_000_000;
/// Bytes of a failure's body that are read, and the time that they have.
const FAILURE_BYTES: usize = 16 << 10;
const FAILURE_TIME: Duration = Duration::from_secs(2);
/// Characters of what a server wrote that are shown: of a longer text its beginning and its end, where programs put their codes.
const FAILURE_CHARS: [usize; 2] = [300, 100];

/// A request, the same on every attempt.
#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    url: Url,
    content_type: &'static str,
    body: Bytes,
}

impl Request {
    /// A question without a body.
    pub fn get(url: Url) -> Self {
        Self {
            method: Method::GET,
            url,
            content_type: "",
            body: Bytes::new(),
        }
    }

    /// Posts a value as JSON.
    ///
    /// # Panics
    /// When the value has no form in JSON, such as a map whose keys are not texts.
    pub fn json(url: Url, value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("requests are plain values");
        Self::post(url, "application/json", body)
    }

    /// Posts bytes.
    pub fn post(url: Url, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self {
            method: Method::POST,
            url,
            content_type,
            body: body.into(),
        }
    }
}

/// Calls one server, with bounded concurrency, time and answers, and with retries where another attempt may do better:
/// after a connection that fails or breaks off, an attempt that takes too long, a body that is not JSON or of another shape, and the
/// statuses 408, 425, 429 and 5xx but 501. `Retry-After` in seconds, at least 1, takes the place of the policy's wait; dates in it are not
/// read. Every request must be one that changes nothing when it is made twice. Answers wait for room, within the time of their attempt.
pub struct Client {
    http: reqwest::Client,
    base: Url,
    options: HttpOptions,
    credentials: Credentials,
    permits: Semaphore,
    /// The moment at which a call was last answered.
    answered: Mutex<Instant>,
    /// The memory for answers, in bytes.
    room: Arc<Semaphore>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Client")
            .field("base", &self.base.as_str())
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Prepares calls to `base`; nothing is sent. `key_header` is where an API key goes for this kind of server.
    ///
    /// # Errors
    /// [`SettingError`] for an address, a limit or a credentials file that cannot work.
    pub fn new(
        base: &str,
        options: HttpOptions,
        key_header: KeyHeader,
    ) -> Result<Self, SettingError> {
        options.check()?;
        let base = parse(base)?;
        let credentials = Credentials::read(&options, key_header)?;
        if !matches!(credentials, Credentials::None) && Self::is_plain(base.as_str()) {
            tracing::warn!(
                url = base.as_str(),
                "credentials are sent over plain http to another machine"
            );
        }
        Ok(Self {
            http: connected(&base, &options)?,
            credentials,
            permits: Semaphore::new(options.concurrency.min(Semaphore::MAX_PERMITS)),
            answered: Mutex::new(Instant::now()),
            room: Arc::new(Semaphore::new(ANSWERS_BYTES as usize)),
            base,
            options,
        })
    }

    /// Tells whether requests to an address can be read on the way: over plain http, to another machine.
    pub fn is_plain(address: &str) -> bool {
        let Ok(address) = Url::parse(address) else {
            return true;
        };
        let host = address.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let ip = host.parse::<IpAddr>();
        let here = host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback());
        address.scheme() != "https" && !here
    }

    /// The server's address, without a slash at the end.
    pub fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// A text of the server, for errors, without the credentials that it may echo. Redact before shortening: a part of one is not found.
    pub fn redact(&self, text: &str) -> String {
        self.credentials.redact(text)
    }

    /// An address below the base; each segment is escaped where it must be, `/` included.
    pub fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// The address below the base of a path that begins with a slash, with its query.
    pub fn at(&self, path: &str) -> Url {
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path, None),
        };
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url.set_query(query);
        url
    }

    /// Calls the server and gives what `take` makes of the JSON in the answer.
    ///
    /// # Errors
    /// [`NetError`] with the fault of the last attempt.
    pub async fn call<A: DeserializeOwned, T>(
        &self,
        request: Request,
        take: impl Fn(A) -> Result<T, Fault>,
    ) -> Result<T, NetError> {
        self.call_within(request, || Ok(()), Fault::again, take)
            .await
    }

    /// As [`Self::call`], with a say before each attempt: `admit` refuses in words, and nothing more is sent; and after it: `again` is
    /// asked in place of [`Fault::again`]. The turn among the concurrent calls is kept while waiting, so that a server in trouble is
    /// asked less.
    ///
    /// # Errors
    /// [`NetError`], with [`Fault::Withheld`] for a refusal.
    pub async fn call_within<A: DeserializeOwned, T>(
        &self,
        request: Request,
        admit: impl Fn() -> Result<(), String>,
        again: impl Fn(&Fault) -> Again,
        take: impl Fn(A) -> Result<T, Fault>,
    ) -> Result<T, NetError> {
        let timeout = Duration::from_millis(self.options.timeout_ms);
        let deadline = Duration::from_millis(self.options.deadline_ms);
        let failed = |fault, attempts| NetError {
            url: shown(&request.url),
            fault,
            attempts,
        };
        let (request, admit, take, failed) = (&request, &admit, &take, &failed);
        let _turn = self.turn().await.map_err(|fault| failed(fault, 0))?;
        let started = Instant::now();
        let attempt = |number| async move {
            admit().map_err(|why| failed(Fault::Withheld(why), number - 1))?;
            let limit = deadline.saturating_sub(started.elapsed()).min(timeout);
            let answer = self.send(request, limit).await;
            let shown = |text: &str| shortened(&self.redact(text), true);
            let taken = answer.and_then(|bytes| {
                let json = serde_json::from_slice(&bytes);
                // A page or JSON of a proxy's, or half a body; the server itself may answer the next time.
                let json =
                    json.map_err(|cause: serde_json::Error| Fault::Unusable(cause.to_string()));
                json.and_then(take).map_err(|fault| fault.map_text(shown))
            });
            taken.map_err(|fault| failed(fault, number))
        };
        let again = |error: &NetError| again(&error.fault);
        let outcome = self.options.retry().run(attempt, again).await;
        if outcome.is_ok() {
            *self.answered() = Instant::now();
        }
        outcome
    }

    fn answered(&self) -> MutexGuard<'_, Instant> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn among the concurrent calls, which come in order. How many wait is the caller's doing and no fault of the server, so
    /// the wait ends only when no call was answered for as long as one may take.
    async fn turn(&self) -> Result<Option<SemaphorePermit<'_>>, Fault> {
        let HttpOptions {
            deadline_ms,
            concurrency,
            ..
        } = self.options;
        let (started, deadline) = (Instant::now(), Duration::from_millis(deadline_ms));
        let mut turn = pin!(self.permits.acquire());
        let mut left = deadline;
        while !left.is_zero() {
            if let Ok(permit) = tokio::time::timeout(left, turn.as_mut()).await {
                // The semaphore is never closed.
                return Ok(permit.ok());
            }
            let answered = *self.answered();
            left = deadline.saturating_sub(answered.max(started).elapsed());
        }
        Err(Fault::Queued {
            milliseconds: deadline_ms,
            concurrency,
        })
    }

    /// Sends a request once and gives the body of a successful answer, which keeps its room among all answers in memory until it is
    /// dropped: read it before the next call. Dropping the future closes the connection, and with it the server ends its work.
    ///
    /// # Errors
    /// The fault.
    pub async fn send(&self, request: &Request, limit: Duration) -> Result<Bytes, Fault> {
        let started = Instant::now();
        let outcome = match tokio::time::timeout(limit, self.exchange(request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Fault::Timeout {
                milliseconds: limit.as_millis() as u64,
            }),
        };
        let ms = started.elapsed().as_millis() as u64;
        let url = || shown(&request.url);
        match &outcome {
            Ok(body) => tracing::trace!(url = url(), ms, bytes = body.len(), "request answered"),
            Err(fault) => tracing::debug!(url = url(), ms, %fault, "request failed"),
        }
        outcome
    }

    async fn exchange(&self, request: &Request) -> Result<Bytes, Fault> {
        let mut builder = self
            .http
            .request(request.method.clone(), request.url.clone());
        if request.method != Method::GET {
            builder = builder
                .header(CONTENT_TYPE, request.content_type)
                .body(request.body.clone());
        }
        let response = self.credentials.apply(builder).send().await;
        let response = response.map_err(|cause| Fault::Connect(cause.without_url().into()))?;
        if response.status().is_success() {
            return read(response, self.options.max_answer_bytes, &self.room).await;
        }
        let status = response.status();
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        let place = response.headers().get(LOCATION);
        let place = place.filter(|_| status.is_redirection());
        let sent_on = place.map(|place| {
            let place = String::from_utf8_lossy(place.as_bytes());
            format!("it sends on to {place}, which is not followed; give that address")
        });
        let (body, whole) = match sent_on {
            Some(told) => (told, true),
            None => beginning(response).await,
        };
        let body = self.redact(body.trim());
        Err(Fault::Status {
            status: status.as_u16(),
            body: shortened(&body, whole),
            retry_after,
        })
    }
}

/// A body with its room among all answers in memory.
struct Held {
    body: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// The whole body, refused as soon as it is known to be longer than `limit` bytes, or to hold too many JSON values: parsed, those
/// take many times the memory of their text. What is beyond the free bytes waits for `room`.
async fn read(mut response: Response, limit: u64, room: &Arc<Semaphore>) -> Result<Bytes, Fault> {
    let too_long = || {
        Fault::Protocol(format!(
            "longer than {limit} bytes, the limit `max_answer_bytes`"
        ))
    };
    let announced = response.content_length();
    if announced.is_some_and(|length| length > limit) {
        return Err(too_long());
    }
    // Taken at once for the whole answer: answers that took parts and waited for more could wait for each other.
    let most = u32::try_from(announced.unwrap_or(limit)).unwrap_or(u32::MAX);
    let mut held = None;
    // What is announced is believed up to a point: memory grows with what comes.
    let mut body: Vec<u8> = Vec::with_capacity(announced.unwrap_or(0).min(FREE_BYTES) as usize);
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(cause) => {
                return Err(Fault::Broken {
                    bytes: body.len(),
                    cause: cause.without_url().into(),
                });
            }
        };
        let length = (body.len() + chunk.len()) as u64;
        if length > limit {
            return Err(too_long());
        }
        if length > FREE_BYTES && held.is_none() {
            // The semaphore is never closed.
            let room = Arc::clone(room).acquire_many_owned(most.min(ANSWERS_BYTES));
            held = room.await.ok();
        }
        body.extend_from_slice(&chunk);
    }
    if body.len() >= MOST_VALUES && count_values(&body) > MOST_VALUES {
        let what = format!("more than {MOST_VALUES} JSON values; ask for less at a time");
        return Err(Fault::Protocol(what));
    }
    Ok(match held {
        Some(room) => Bytes::from_owner(Held { body, _room: room }),
        None => body.into(),
    })
}

/// As much of a failure's body as can be had, and whether that is all of it; it only explains a status that is known, and does not make a
/// time-out of it.
async fn beginning(mut response: Response) -> (String, bool) {
    let (mut body, mut whole) = (Vec::new(), false);
    let read = async {
        while body.len() < FAILURE_BYTES {
            match response.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                ended => {
                    whole = ended.is_ok();
                    break;
                }
            }
        }
    };
    // What came until then is enough.
    let _ = tokio::time::timeout(FAILURE_TIME, read).await;
    (String::from_utf8_lossy(&body).into_owned(), whole)
}

/// What a server wrote, as errors show it.
fn shortened(body: &str, whole: bool) -> String {
    let [first, last] = FAILURE_CHARS;
    let count = body.chars().count();
    if whole && count <= first + last {
        return body.to_owned();
    }
    let beginning: String = body.chars().take(first).collect();
    if !whole {
        // Where it was cut off may be half of a credential, which nothing finds.
        return beginning;
    }
    let end: String = body.chars().skip(count - last).collect();
    format!("{beginning} ... {end}")
}

/// An address as errors show it: without its query, which may be long.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

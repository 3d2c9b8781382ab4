//! What servers of any protocol share: tokens, bodies within bounds, counted requests, and an end that drains.

mod body;
mod traffic;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use base64::prelude::{BASE64_STANDARD, Engine};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use body::{BodyError, receive};
pub use traffic::Traffic;

/// How long idle connections and half-written answers may take to close at the end.
const CLOSING: Duration = Duration::from_secs(2);

/// Lets requests pass that carry `token`: as `Authorization: Bearer TOKEN`, as `x-api-key: TOKEN` like other search servers,
/// or as the password of `Authorization: Basic`, for clients that can only be told `http://user:TOKEN@host`. Others get
/// `refusal`. Without a token all pass.
pub fn guarded<S>(router: Router<S>, token: Option<&str>, refusal: fn() -> Response) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    let Some(token) = token else { return router };
    let expected = blake3::hash(token.as_bytes());
    router.layer(middleware::from_fn(move |request: Request, next: Next| async move {
        // Digests are compared, so that the time taken says nothing about the token.
        let admitted = carried(request.headers()).is_some_and(|given| blake3::hash(&given) == expected);
        if admitted { next.run(request).await } else { refusal() }
    }))
}

/// The token that a request carries.
fn carried(headers: &HeaderMap) -> Option<Vec<u8>> {
    let authorization = headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    if let Some(token) = authorization.strip_prefix(b"Bearer ") {
        return Some(token.to_vec());
    }
    if let Some(pair) = authorization.strip_prefix(b"Basic ") {
        let pair = BASE64_STANDARD.decode(pair).ok()?;
        let colon = pair.iter().position(|&byte| byte == b':')?;
        return Some(pair[colon + 1..].to_vec());
    }
    headers.get("x-api-key").map(|key| key.as_bytes().to_vec())
}

/// Failures of starting or running a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration makes no sense.
    #[error("server configuration: {0}")]
    Config(String),
    /// The threads that do the work could not be started.
    #[error("start the worker threads; check the process limits")]
    Threads(#[source] std::io::Error),
    /// Connections can no longer be accepted.
    #[error("accept connections")]
    Accept(#[source] std::io::Error),
}

/// What a refusal's status asks of its headers.
pub fn refusal_headers(status: StatusCode, headers: &mut HeaderMap) {
    match status {
        // One second lets a queue of ordinary requests drain; clients back off further by themselves.
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"))
        }
        StatusCode::UNAUTHORIZED => headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
        // The rest of the body is not read, so the connection is of no further use.
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"))
        }
        _ => None,
    };
}

/// The answer to `GET /metrics`.
pub fn exposition(registry: &Registry) -> Response {
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], traffic::text(registry)).into_response()
}

/// The requests between their heads and the ends of their answers.
#[derive(Debug)]
pub struct Flights {
    draining: AtomicBool,
    count: AtomicU64,
    /// Told when the last request in flight is done.
    finished: Notify,
    in_flight: Gauge,
    cancelled: Counter,
}

impl Flights {
    /// None yet; `in_flight` follows their number, `cancelled` counts those that never landed.
    pub fn new(in_flight: Gauge, cancelled: Counter) -> Self {
        let (draining, count, finished) = (AtomicBool::new(false), AtomicU64::new(0), Notify::new());
        Self { draining, count, finished, in_flight, cancelled }
    }

    /// Whether new work is refused because the server stops.
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// One more request, until what is returned is landed or dropped.
    pub fn enter(self: &Arc<Self>) -> Flight {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.in_flight.inc();
        Flight { flights: Arc::clone(self), landed: false }
    }

    /// Waits for the requests in flight; gives how many are left when time is up.
    async fn drain(&self, until: Instant) -> u64 {
        loop {
            let finished = self.finished.notified();
            let left = self.count.load(Ordering::SeqCst);
            if left == 0 || tokio::time::timeout_at(until, finished).await.is_err() {
                return left;
            }
        }
    }
}

/// A request between its head and the end of its answer. Dropped before it landed, its client went away.
#[derive(Debug)]
pub struct Flight {
    flights: Arc<Flights>,
    landed: bool,
}

impl Flight {
    /// The answer is complete.
    pub fn land(mut self) {
        self.landed = true;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.landed {
            self.flights.cancelled.inc();
        }
        self.flights.in_flight.dec();
        if self.flights.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.flights.finished.notify_one();
        }
    }
}

/// Serves until `shutdown` completes, then drains: from then on [`Flights::draining`] holds, which the routes refuse new
/// work for; requests in flight finish, for at most `drain`; `give_up` ends the rest; connections are closed. Gives the
/// number of requests that did not finish.
///
/// # Errors
/// When connections can no longer be accepted.
pub async fn run(
    listener: TcpListener,
    router: Router,
    flights: &Flights,
    drain: Duration,
    shutdown: impl Future<Output = ()>,
    give_up: impl FnOnce(),
) -> std::io::Result<u64> {
    // Answers are written as they come; waiting to fill a packet only adds latency.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        let _ = stopped.await;
    });
    // In a set, so that dropping this future ends the server too.
    let mut accepting = JoinSet::new();
    accepting.spawn(server.into_future());
    tokio::select! {
        () = shutdown => {}
        Some(ended) = accepting.join_next() => {
            if let Ok(Err(error)) = ended {
                return Err(error);
            }
        }
    }
    flights.draining.store(true, Ordering::SeqCst);
    let dropped = flights.drain(Instant::now() + drain).await;
    // Whatever still waits now gets its refusal instead of a closed connection.
    give_up();
    let _ = stop.send(());
    let _ = tokio::time::timeout(CLOSING, accepting.join_next()).await;
    Ok(dropped)
}

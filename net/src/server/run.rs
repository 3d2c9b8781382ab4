//! The life of a server.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::front::{Front, accept};
use super::routes::Service;

/// Longest time for idle connections and half-written answers to close at the end.
const CLOSING: Duration = Duration::from_secs(2);

/// Largest limit of one body: the memory of one is counted in 32 bits.
const MOST_LIMIT: usize = u32::MAX as usize;

/// A server that cannot start or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration makes no sense.
    #[error("server configuration: {0}")]
    Config(String),
    /// The threads that do the work could not be started.
    #[error("start the worker threads; check the process limits")]
    Threads(#[source] std::io::Error),
    /// The listener does not say where it listens.
    #[error("find out the address that is listened on")]
    Address(#[source] std::io::Error),
}

/// The requests of a server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Requests for work that got an answer, refusals not counted.
    pub served: u64,
    /// Requests refused because the queue was full or the server was stopping.
    pub refused: u64,
    /// Work given up at the end because it did not finish within the time for that.
    pub dropped: u64,
}

/// Serves until `shutdown` completes, then drains: `/readyz` and new work answer 503, work in flight finishes, for at most
/// the configured time; the rest is given up; connections are closed, those of a `WebSocket` too.
///
/// A server that listens for this machine alone and asks for no token refuses what a browser may have sent for a page of
/// somebody else's: requests for a foreign host or from a foreign origin, and bodies posted as anything but JSON.
///
/// # Errors
/// [`ServeError::Config`] for a token that is empty, bodies of 4 GiB, or a queue or connections of none,
/// [`ServeError::Address`] when the listener has none.
pub async fn serve<S: Service>(
    listener: TcpListener,
    app: &Arc<S>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, ServeError> {
    let base = app.base();
    let wrong = |what: &str| Err(ServeError::Config(what.to_owned()));
    if base.config.token.as_ref().is_some_and(String::is_empty) {
        return wrong("the token is empty; write one to its file or run without");
    }
    if base.config.max_body_bytes > MOST_LIMIT {
        return wrong("max_body_bytes must be below 4 GiB");
    }
    if base.config.queue == 0 || base.config.max_connections == 0 {
        return wrong("queue and max_connections must be at least 1");
    }
    let address = listener.local_addr().map_err(ServeError::Address)?;
    tracing::info!(%address, "server started");
    let front = Front::new(app, router, address.ip().is_loopback());
    let (stop, stopped) = watch::channel(false);
    // In a set, so that dropping this future ends the server too.
    let mut accepting = JoinSet::new();
    accepting.spawn(accept(listener, front, stopped));
    shutdown.await;
    tracing::info!("server drains");
    let dropped = base.flights.drain(Instant::now() + base.config.drain).await;
    // Whatever still waits now gets its refusal instead of a closed connection.
    base.give_up();
    app.give_up();
    stop.send_replace(true);
    let _ = tokio::time::timeout(CLOSING, accepting.join_next()).await;
    let summary = Summary {
        served: base.traffic.served().saturating_sub(dropped),
        refused: base.traffic.refused(),
        dropped,
    };
    let Summary {
        served, refused, ..
    } = summary;
    tracing::info!(served, refused, dropped, "server stopped");
    Ok(summary)
}

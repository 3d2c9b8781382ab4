//! The life of a server.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::routes::Service;

/// Longest time for idle connections and half-written answers to close at the end.
const CLOSING: Duration = Duration::from_secs(2);

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
    /// Connections can no longer be accepted.
    #[error("accept connections")]
    Accept(#[source] std::io::Error),
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
/// the configured time; the rest is given up; connections are closed.
///
/// # Errors
/// [`ServeError::Config`] for a token that is empty or a queue of none, [`ServeError::Accept`] when connections can no longer be accepted.
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
    if base.config.queue == 0 {
        return wrong("queue must be at least 1");
    }
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "server started");
    }
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
                return Err(ServeError::Accept(error));
            }
        }
    }
    tracing::info!("server drains");
    let dropped = base.flights.drain(Instant::now() + base.config.drain).await;
    // Whatever still waits now gets its refusal instead of a closed connection.
    base.give_up();
    app.give_up();
    let _ = stop.send(());
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

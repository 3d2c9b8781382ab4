//! The face of a server towards its clients: connections, accepted and answered within bounds of time and number.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tower_service::Service as _;

use super::body::{HELD, Held, Inbound};
use super::connections::{Connection, Connections};
use super::local;
use super::messages::Messages;
use super::routes::Service;
use super::wire::Wire;

/// Longest time for a request's head to arrive, from the beginning of a connection or from the answer before.
const HEAD: Duration = Duration::from_secs(30);
/// Most bytes of a request's head.
const HEAD_BYTES: usize = 64 * 1024;
/// Pause after a connection could not be accepted, for want of descriptors mostly.
const PAUSE: Duration = Duration::from_millis(20);

/// Everything that answering a connection takes.
pub(super) struct Front<S> {
    app: Arc<S>,
    router: Router,
    connections: Arc<Connections>,
    /// Whether only this machine is to be answered.
    local: bool,
}

impl<S: Service> Front<S> {
    pub(super) fn new(app: &Arc<S>, router: Router, loopback: bool) -> Arc<Self> {
        let config = &app.base().config;
        Arc::new(Self {
            connections: Connections::new(config.max_connections),
            local: loopback && config.token.is_none(),
            app: Arc::clone(app),
            router,
        })
    }

    /// Answers a request.
    async fn answer(
        &self,
        mut request: Request<Incoming>,
        connection: Arc<Connection>,
        messages: Messages,
    ) -> Response {
        connection.works();
        request.extensions_mut().insert(messages.clone());
        let refused = if self.local {
            local::foreign(&request).err()
        } else {
            None
        };
        let response = match refused {
            Some(refusal) => self.app.base().refuse(S::Fault::from(refusal)),
            None => self.routed(request, &connection).await,
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            messages.begin(&self.app.base().bodies);
            return response;
        }
        response.map(|body| Body::new(Outbound { body, connection }))
    }

    /// The answer of the routes. The memory of the request's body counts until then, or longer where work holds it.
    async fn routed(&self, request: Request<Incoming>, connection: &Arc<Connection>) -> Response {
        let held = Held::default();
        let request = request.map(|body| {
            if http_body::Body::is_end_stream(&body) {
                return Body::empty();
            }
            let (bodies, connection) = (&self.app.base().bodies, Arc::clone(connection));
            Body::new(Inbound::new(
                body,
                Arc::clone(bodies),
                held.clone(),
                connection,
            ))
        });
        let answer = self.router.clone().call(request);
        match HELD.scope(held, answer).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// A body on its way out. Afterwards the connection waits for the next request.
struct Outbound {
    body: Body,
    connection: Arc<Connection>,
}

impl http_body::Body for Outbound {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        self.connection.waits();
    }
}

/// Accepts connections and answers them until told to stop; then closes them, and waits for those that were upgraded.
pub(super) async fn accept<S: Service>(
    listener: TcpListener,
    front: Arc<Front<S>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut tasks = JoinSet::new();
    loop {
        let (stream, place) = tokio::select! {
            accepted = next(&listener, &front.connections) => accepted,
            () = told(&mut stopped) => break,
        };
        tasks.spawn(converse(
            Wire::new(stream, place),
            Arc::clone(&front),
            stopped.clone(),
        ));
        while tasks.try_join_next().is_some() {}
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
    front.connections.all_closed().await;
}

/// Completes when the server is told to close its connections, or is gone.
async fn told(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// The next connection, with its place.
async fn next(
    listener: &TcpListener,
    connections: &Connections,
) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        let error = match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are written as they come; waiting to fill a packet only adds latency.
                drop(stream.set_nodelay(true));
                return (stream, connections.place().await);
            }
            Err(error) => error,
        };
        let went_away = matches!(
            error.kind(),
            ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
        );
        if !went_away {
            tracing::warn!(%error, "a connection could not be accepted");
            connections.close_longest_waiting();
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// A connection's life.
async fn converse<S: Service>(
    wire: Wire,
    front: Arc<Front<S>>,
    mut stopped: watch::Receiver<bool>,
) {
    let connection = Connection::new(&front.connections);
    let messages = wire.messages();
    let answer = service_fn(|request| {
        let (front, connection) = (Arc::clone(&front), Arc::clone(&connection));
        let messages = messages.clone();
        async move { Ok::<_, Infallible>(front.answer(request, connection, messages).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(wire), answer)
        .with_upgrades();
    let mut served = pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = connection.to_close() => return,
        () = told(&mut stopped) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "a connection failed");
    }
}

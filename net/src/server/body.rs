//! Request bodies, received within bounds of size, time and of memory for all of them together.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};

use super::connections::Connection;

/// Bytes read beyond the limit before the connection is given up, in multiples of the limit: most clients look for an
/// answer only after they have sent everything.
const PATIENCE: usize = 4;
/// Longest time for a body to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);
/// Bytes of a body that are always taken, however many other bodies there are: their number is that of the connections.
const FREE: usize = 64 * 1024;
/// Bytes of all bodies beyond those that are free, at least.
const TOGETHER: usize = 64 * 1024 * 1024;

/// A request body that was not received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It broke off.
    #[error("the request body broke off")]
    Broken,
    /// It did not arrive in time. The rest is not read, so the connection is of no further use.
    #[error("the request body did not arrive in time")]
    Slow,
    /// It is larger than is taken. The rest is not read, so the connection is of no further use.
    #[error("request body over {limit} bytes; split the batch")]
    TooLarge {
        /// Most bytes taken.
        limit: usize,
    },
    /// Other bodies take the memory for them.
    #[error(
        "the request bodies being received take all the memory for them; try again, or send less at a time"
    )]
    Crowded,
}

impl BodyError {
    /// The stable name, for metrics and for answers.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Broken => "broken_body",
            Self::Slow => "slow_body",
            Self::TooLarge { .. } => "too_large",
            Self::Crowded => "overloaded",
        }
    }
}

/// The memory for the bodies of all requests.
#[derive(Debug)]
pub(super) struct Bodies {
    /// Most bytes of one body.
    limit: usize,
    together: Arc<Semaphore>,
}

impl Bodies {
    pub(super) fn new(limit: usize) -> Self {
        let together = limit.saturating_mul(PATIENCE).max(TOGETHER);
        Self {
            limit,
            together: Arc::new(Semaphore::new(together.min(Semaphore::MAX_PERMITS))),
        }
    }
}

/// The memory that a request's body takes, until it is dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Held(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Held {
    /// Takes memory for more bytes.
    fn more(&self, bytes: usize, bodies: &Bodies) -> Result<(), BodyError> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let together = Arc::clone(&bodies.together);
        let more = together.try_acquire_many_owned(bytes);
        let more = more.map_err(|_| BodyError::Crowded)?;
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *held {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        Ok(())
    }
}

/// A body on its way in.
pub(super) struct Inbound {
    body: Incoming,
    bodies: Arc<Bodies>,
    held: Held,
    connection: Arc<Connection>,
    received: usize,
    begin: Instant,
    late: Option<Pin<Box<Sleep>>>,
}

impl Inbound {
    /// The body of a request, whose memory `held` keeps.
    pub(super) fn new(
        body: Incoming,
        bodies: Arc<Bodies>,
        held: Held,
        connection: Arc<Connection>,
    ) -> Self {
        Self {
            body,
            bodies,
            held,
            connection,
            received: 0,
            begin: Instant::now(),
            late: None,
        }
    }

    /// Counts bytes that arrived. What is over the limit is thrown away by whoever reads it.
    fn count(&mut self, bytes: usize) -> Result<(), BodyError> {
        let counted = |received: usize| received.min(self.bodies.limit).saturating_sub(FREE);
        let more = counted(self.received + bytes) - counted(self.received);
        self.received += bytes;
        self.held.more(more, &self.bodies)
    }
}

impl http_body::Body for Inbound {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let outcome = match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                return Poll::Ready(Some(this.count(length).map(|()| frame)));
            }
            Poll::Ready(Some(Err(_))) => Some(Err(BodyError::Broken)),
            Poll::Ready(None) => None,
            Poll::Pending => {
                this.connection.waits();
                let end = this.begin + ARRIVAL;
                let late = this.late.get_or_insert_with(|| Box::pin(sleep_until(end)));
                std::task::ready!(late.as_mut().poll(context));
                Some(Err(BodyError::Slow))
            }
        };
        this.connection.works();
        Poll::Ready(outcome)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        self.connection.works();
    }
}

/// The whole body, at most `limit` bytes.
pub(super) async fn receive(mut body: Body, limit: usize) -> Result<Bytes, BodyError> {
    let most = limit.saturating_mul(PATIENCE);
    let announced = http_body::Body::size_hint(&body).lower();
    if announced > most as u64 {
        return Err(BodyError::TooLarge { limit });
    }
    let mut whole = Vec::with_capacity((announced as usize).min(FREE));
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| cause(&error))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        length += data.len();
        if length <= limit {
            whole.extend_from_slice(data);
        } else if length > most {
            break;
        } else {
            whole = Vec::new();
        }
    }
    if length > limit {
        return Err(BodyError::TooLarge { limit });
    }
    Ok(whole.into())
}

fn cause(error: &axum::Error) -> BodyError {
    let source = std::error::Error::source(error);
    let known = source.and_then(|source| source.downcast_ref::<BodyError>());
    known.copied().unwrap_or(BodyError::Broken)
}

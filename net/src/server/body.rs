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
use super::refusal::Refusal;

/// Bytes read beyond the limit before the connection is given up, in multiples of the limit: most clients look for an
/// answer only after they have sent everything.
pub(super) const PATIENCE: usize = 4;
/// Longest time for a body to arrive.
pub(super) const ARRIVAL: Duration = Duration::from_secs(30);
/// Bytes of a body that are always taken, however many other bodies there are: their number is that of the connections.
pub(super) const FREE: usize = 64 * 1024;
/// Bytes of all bodies beyond those that are free, at least.
const TOGETHER: usize = 64 * 1024 * 1024;

/// The memory for the bodies of all requests.
#[derive(Debug)]
pub(super) struct Bodies {
    /// Most bytes of one body.
    pub(super) limit: usize,
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

tokio::task_local! {
    /// The memory of the body of the request that a task answers.
    pub(super) static HELD: Held;
}

/// The memory that a request's body takes, until all of its copies are dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Held(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Held {
    /// The body memory of the request that this task answers.
    pub(super) fn of_request() -> Self {
        HELD.try_with(Self::clone).unwrap_or_default()
    }

    /// Takes memory for more bytes.
    pub(super) fn more(&self, bytes: usize, bodies: &Bodies) -> Result<(), Refusal> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let together = Arc::clone(&bodies.together);
        let more = together.try_acquire_many_owned(bytes);
        let more = more.map_err(|_| Refusal::BodiesFull)?;
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *held {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        Ok(())
    }

    /// Gives all of it back.
    fn give_back(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A body on its way in.
pub(super) struct Inbound {
    body: Incoming,
    bodies: Arc<Bodies>,
    held: Held,
    connection: Arc<Connection>,
    received: usize,
    refused: bool,
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
            refused: false,
            begin: Instant::now(),
            late: None,
        }
    }

    /// Counts bytes that arrived. What is over the limit is thrown away by whoever reads it, and so is everything once there
    /// was no memory for more.
    fn count(&mut self, bytes: usize) -> Result<(), Refusal> {
        if self.refused {
            return Ok(());
        }
        let counted = |received: usize| received.min(self.bodies.limit).saturating_sub(FREE);
        let more = counted(self.received + bytes) - counted(self.received);
        self.received += bytes;
        let taken = self.held.more(more, &self.bodies);
        if taken.is_err() {
            self.refused = true;
            self.held.give_back();
        }
        taken
    }
}

impl http_body::Body for Inbound {
    type Data = Bytes;
    type Error = Refusal;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Refusal>>> {
        let this = &mut *self;
        let outcome = match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                return Poll::Ready(Some(this.count(length).map(|()| frame)));
            }
            Poll::Ready(Some(Err(_))) => Some(Err(Refusal::BrokenBody)),
            Poll::Ready(None) => None,
            Poll::Pending => {
                this.connection.waits();
                let end = this.begin + ARRIVAL;
                let late = this.late.get_or_insert_with(|| Box::pin(sleep_until(end)));
                std::task::ready!(late.as_mut().poll(context));
                Some(Err(Refusal::SlowBody))
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

/// A whole body, whose memory counts until nobody reads it any more.
struct Whole {
    bytes: Vec<u8>,
    _held: Held,
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The whole body, at most `limit` bytes.
pub(super) async fn receive(mut body: Body, limit: usize) -> Result<Bytes, Refusal> {
    let most = limit.saturating_mul(PATIENCE);
    let announced = http_body::Body::size_hint(&body).lower();
    if announced > most as u64 {
        return Err(Refusal::TooLarge { limit });
    }
    let (mut whole, mut length, mut refused) = (Vec::new(), 0, None);
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| cause(&error)) {
            Ok(frame) => {
                let data = frame.data_ref().map_or(&b""[..], |data| &data[..]);
                length += data.len();
                whole.extend_from_slice(data);
            }
            // The rest is read all the same, for most clients to hear the answer.
            Err(full @ Refusal::BodiesFull) => refused = Some(full),
            Err(failure) => return Err(refused.unwrap_or(failure)),
        }
        if length > limit {
            refused = Some(Refusal::TooLarge { limit });
        }
        if refused.is_some() {
            whole = Vec::new();
        }
        if length > most {
            break;
        }
    }
    if let Some(refusal) = refused {
        return Err(refusal);
    }
    Ok(Bytes::from_owner(Whole {
        bytes: whole,
        _held: Held::of_request(),
    }))
}

fn cause(error: &axum::Error) -> Refusal {
    let source = std::error::Error::source(error);
    let known = source.and_then(|source| source.downcast_ref::<Refusal>());
    known.cloned().unwrap_or(Refusal::BrokenBody)
}

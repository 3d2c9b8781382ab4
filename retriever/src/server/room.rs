//! The memory for answers: so much for one request, and so much for all together.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::fault::Fault;

/// Answers of the largest size that fit into the memory for all.
const TOGETHER: usize = 4;

/// Bytes handed to a connection at a time, so that the memory counts until most of them are sent.
const FRAME: usize = 64 * 1024;

/// The memory for the answers of all requests.
#[derive(Debug)]
pub(super) struct Rooms {
    each: usize,
    together: Arc<Semaphore>,
}

impl Rooms {
    /// At most `each` bytes in an answer.
    pub(super) fn new(each: usize) -> Self {
        let together = each.saturating_mul(TOGETHER).min(Semaphore::MAX_PERMITS);
        Self {
            each,
            together: Arc::new(Semaphore::new(together)),
        }
    }

    /// The memory for the answer of a request that asks for `topk` passages per query.
    pub(super) fn room(&self, topk: usize) -> Arc<Room> {
        Arc::new(Room {
            limit: self.each,
            topk,
            together: Arc::clone(&self.together),
            taken: Mutex::default(),
        })
    }
}

/// The memory for one answer, until it is dropped.
#[derive(Debug)]
pub(super) struct Room {
    limit: usize,
    topk: usize,
    together: Arc<Semaphore>,
    taken: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Room {
    /// Takes memory for more of the answer.
    pub(super) fn take(&self, bytes: usize) -> Result<(), Fault> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let before = taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if before.saturating_add(bytes) > self.limit {
            let (limit, topk) = (self.limit, self.topk);
            return Err(Fault::AnswerTooLarge { limit, topk });
        }
        let together = Arc::clone(&self.together);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let more = together
            .try_acquire_many_owned(bytes)
            .map_err(|_| Fault::AnswersFull)?;
        match &mut *taken {
            Some(taken) => taken.merge(more),
            None => *taken = Some(more),
        }
        Ok(())
    }

    /// The answer in JSON, which keeps its memory until it is sent.
    pub(super) fn answer(self: Arc<Self>, pieces: Vec<Bytes>) -> Response {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        forage_net::json(Body::new(Pieces {
            queue: pieces.into(),
            left,
            _room: self,
        }))
    }
}

/// An answer on its way out, piece by piece.
struct Pieces {
    queue: VecDeque<Bytes>,
    left: u64,
    _room: Arc<Room>,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(mut piece) = self.queue.pop_front() else {
            return Poll::Ready(None);
        };
        if piece.len() > FRAME {
            let rest = piece.split_off(FRAME);
            self.queue.push_front(rest);
        }
        self.left -= piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.queue.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

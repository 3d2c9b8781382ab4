//! The memory for answers, and for whatever else grows while it is kept: so much for one, and so much for all together.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::{Refusal, json};

/// Answers of the largest size that fit into the memory for all.
const TOGETHER: usize = 4;

/// Bytes handed to a connection at a time, so that the memory counts until most of them are sent.
const FRAME: usize = 64 * 1024;

/// The memory for one answer, or for one of other things that are kept, until it is dropped.
#[derive(Debug)]
pub struct Room {
    limit: usize,
    together: Arc<Semaphore>,
    taken: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Room {
    /// Room for an answer of at most `limit` bytes, and for four of the largest together with all that are made beside it.
    pub fn new(limit: usize) -> Self {
        Self::of(limit, limit.saturating_mul(TOGETHER))
    }

    /// Room for `together` bytes of all that is kept, of which one may take whatever the others leave.
    pub fn shared(together: usize) -> Self {
        Self::of(together, together)
    }

    fn of(limit: usize, together: usize) -> Self {
        let together = together.min(Semaphore::MAX_PERMITS);
        Self {
            limit,
            together: Arc::new(Semaphore::new(together)),
            taken: Mutex::default(),
        }
    }

    /// Room for another answer beside this one.
    pub fn beside(&self) -> Arc<Self> {
        Arc::new(Self {
            limit: self.limit,
            together: Arc::clone(&self.together),
            taken: Mutex::default(),
        })
    }

    /// Bytes taken so far.
    pub fn taken(&self) -> usize {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Takes memory for more of the answer.
    ///
    /// # Errors
    /// [`Refusal::AnswerTooLarge`], or [`Refusal::AnswersFull`] when others leave none.
    pub fn take(&self, bytes: usize) -> Result<(), Refusal> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.grow(&mut taken, bytes)
    }

    /// Takes what is missing of `bytes`, or gives back what is taken beyond them.
    ///
    /// # Errors
    /// As [`Self::take`]; then what was taken before stays taken.
    pub fn settle(&self, bytes: usize) -> Result<(), Refusal> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let before = taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if bytes > before {
            return self.grow(&mut taken, bytes - before);
        }
        if let Some(taken) = &mut *taken {
            drop(taken.split(before - bytes));
        }
        Ok(())
    }

    fn grow(&self, taken: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> Result<(), Refusal> {
        let before = taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if before.saturating_add(bytes) > self.limit {
            let limit = self.limit;
            return Err(Refusal::AnswerTooLarge { limit });
        }
        let together = Arc::clone(&self.together);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let more = together
            .try_acquire_many_owned(bytes)
            .map_err(|_| Refusal::AnswersFull)?;
        match taken {
            Some(taken) => taken.merge(more),
            None => *taken = Some(more),
        }
        Ok(())
    }

    /// The answer in JSON, which keeps its memory until it is sent.
    pub fn answer(self: Arc<Self>, pieces: Vec<Bytes>) -> Response {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        json(Body::new(Pieces {
            queue: pieces.into(),
            left,
            _room: self,
        }))
    }

    /// The response, which keeps this memory until it is sent.
    #[must_use]
    pub fn keep(self: Arc<Self>, response: Response) -> Response {
        response.map(|body| Body::new(Kept { body, _room: self }))
    }
}

/// A body that others made, with the memory that it takes.
struct Kept {
    body: Body,
    _room: Arc<Room>,
}

impl http_body::Body for Kept {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_there_for_others() {
        let all = Room::shared(100);
        let (one, other) = (all.beside(), all.beside());
        one.settle(80).unwrap();
        assert_eq!(other.settle(30), Err(Refusal::AnswersFull));
        assert_eq!(other.taken(), 0);
        one.settle(60).unwrap();
        other.settle(30).unwrap();
        assert_eq!((one.taken(), other.taken()), (60, 30));
        assert_eq!(one.settle(101), Err(Refusal::AnswerTooLarge { limit: 100 }));
        assert_eq!(one.taken(), 60);
        drop(one);
        other.settle(100).unwrap();
    }

    #[tokio::test]
    async fn a_response_keeps_its_memory_until_it_is_sent() {
        let all = Room::shared(10);
        let room = all.beside();
        room.take(10).unwrap();
        let response = room.keep(json("{}"));
        assert_eq!(all.beside().take(1), Err(Refusal::AnswersFull));
        let body = axum::body::to_bytes(response.into_body(), 10).await;
        assert_eq!(&body.unwrap()[..], b"{}");
        all.beside().take(1).unwrap();
    }
}

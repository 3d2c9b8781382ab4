//! A connection's stream: it holds its place among the connections, and ends when its client stops reading or reads too slowly.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};

use super::messages::{Fate, Messages};

/// Longest time for a client to take none of the bytes that wait for it.
const STALLED: Duration = Duration::from_secs(30);
/// Bytes that a client takes in a second while others wait for it, at least: a drip would keep an answer's memory for days.
const PACE: f64 = 65_536.0;

#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    patience: Patience,
    /// What comes after an upgrade.
    messages: Messages,
    _place: OwnedSemaphorePermit,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Self {
        Self {
            stream,
            patience: Patience::default(),
            messages: Messages::default(),
            _place: place,
        }
    }

    /// What comes after an upgrade.
    pub(super) fn messages(&self) -> Messages {
        self.messages.clone()
    }

    /// A write's outcome, unless the client takes too little.
    fn progress(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<Result<usize>>,
    ) -> Poll<Result<usize>> {
        let outcome = self.patience.progress(context, outcome);
        if matches!(outcome, Poll::Ready(Err(_))) {
            self.messages.end();
        }
        outcome
    }
}

/// The time for which writes still wait for a client: [`STALLED`] at first, less what they have waited, more for what it takes.
#[derive(Debug)]
struct Patience {
    left: Duration,
    /// Of the write that waits: since when, and the end of the time for it.
    waits: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            left: STALLED,
            waits: None,
        }
    }
}

impl Patience {
    /// A write's outcome, unless it has waited for too long.
    fn progress(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<Result<usize>>,
    ) -> Poll<Result<usize>> {
        let left = self.left;
        if let Poll::Ready(outcome) = outcome {
            if let Some((since, _)) = self.waits.take() {
                self.left = left.saturating_sub(since.elapsed());
            }
            let taken = *outcome.as_ref().unwrap_or(&0);
            let earned = Duration::from_secs_f64(taken as f64 / PACE);
            self.left = (self.left + earned).min(STALLED);
            return Poll::Ready(outcome);
        }
        let begin = || (Instant::now(), Box::pin(sleep(left)));
        let (_, over) = self.waits.get_or_insert_with(begin);
        over.as_mut().poll(context).map(|()| {
            let words = "the client takes nothing of the answer, or too little";
            Err(Error::new(ErrorKind::TimedOut, words))
        })
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let filled = buffer.filled().len();
        loop {
            let read = std::task::ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
            let bytes = buffer.filled().len() - filled;
            if read.is_err() || bytes == 0 {
                self.messages.end();
                return Poll::Ready(read);
            }
            match self.messages.arrived(bytes) {
                Fate::Keep => return Poll::Ready(Ok(())),
                Fate::Discard => buffer.set_filled(filled),
                Fate::End => {
                    buffer.set_filled(filled);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.progress(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.progress(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Seconds until a client that takes `bytes` every `seconds` is given up, if it is before it has taken `whole`.
    async fn given_up(bytes: usize, seconds: u64, whole: usize) -> Option<u64> {
        let mut patience = Patience::default();
        let begin = Instant::now();
        for _ in 0..whole.div_ceil(bytes) {
            let waits = poll_fn(|context| patience.progress(context, Poll::Pending));
            let every = Duration::from_secs(seconds);
            if let Ok(given_up) = tokio::time::timeout(every, waits).await {
                assert_eq!(given_up.unwrap_err().kind(), ErrorKind::TimedOut);
                return Some(begin.elapsed().as_secs());
            }
            let taken = poll_fn(|context| patience.progress(context, Poll::Ready(Ok(bytes))));
            assert_eq!(taken.await.unwrap(), bytes);
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_drips_is_given_up_and_a_slow_one_is_not() {
        const ANSWER: usize = 128 * 1024 * 1024;
        assert_eq!(given_up(1, 31, ANSWER).await, Some(30));
        assert_eq!(given_up(1, 29, ANSWER).await, Some(30));
        assert_eq!(given_up(16 * 1024, 1, ANSWER).await, Some(39));
        assert_eq!(given_up(1024 * 1024, 20, ANSWER).await, Some(78));
        assert_eq!(given_up(70 * 1024, 1, ANSWER).await, None);
        assert_eq!(given_up(2 * 1024 * 1024, 29, ANSWER).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_waiting_counts() {
        let mut patience = Patience::default();
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_mins(1)).await;
            let taken = poll_fn(|context| patience.progress(context, Poll::Ready(Ok(1))));
            assert_eq!(taken.await.unwrap(), 1);
        }
        assert_eq!(patience.left, STALLED);
    }
}

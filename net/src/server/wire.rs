//! A connection's stream: it holds its place among the connections, and ends when its client stops reading.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

use super::messages::{Fate, Messages};

/// Longest time for a client to take none of the bytes that wait for it.
const STALLED: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    /// Ends the wait of a write that makes no progress.
    stalled: Option<Pin<Box<Sleep>>>,
    /// What comes after an upgrade.
    messages: Messages,
    _place: OwnedSemaphorePermit,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Self {
        Self {
            stream,
            stalled: None,
            messages: Messages::default(),
            _place: place,
        }
    }

    /// What comes after an upgrade.
    pub(super) fn messages(&self) -> Messages {
        self.messages.clone()
    }

    /// A write's outcome, unless the client has taken nothing for too long.
    fn progress<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<Result<T>>,
    ) -> Poll<Result<T>> {
        if let Poll::Ready(outcome) = outcome {
            self.stalled = None;
            if outcome.is_err() {
                self.messages.end();
            }
            return Poll::Ready(outcome);
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALLED)));
        stalled.as_mut().poll(context).map(|()| {
            self.messages.end();
            let words = "the client takes nothing of the answer";
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
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.progress(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

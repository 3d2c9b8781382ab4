//! Receiving a request body within bounds of size and time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use futures::StreamExt;

/// Bytes read beyond the limit before the connection is given up, in multiples of the limit: most clients look for an
/// answer only after they have sent everything.
const PATIENCE: usize = 4;
/// Longest time for a body to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);
/// Most memory set aside on a client's word.
const RESERVE: usize = 1024 * 1024;

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
        /// Bytes taken at most.
        limit: usize,
    },
}

/// The whole body, at most `limit` bytes.
///
/// # Errors
/// [`BodyError`] when it breaks off, is late or too large.
pub async fn receive(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, BodyError> {
    match tokio::time::timeout(ARRIVAL, collect(headers, body, limit)).await {
        Ok(received) => received,
        Err(_) => Err(BodyError::Slow),
    }
}

async fn collect(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, BodyError> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit.saturating_mul(PATIENCE)) {
        return Err(BodyError::TooLarge { limit });
    }
    let mut frames = body.into_data_stream();
    let first = next(&mut frames).await?.unwrap_or_default();
    // Nearly every body comes in one piece, which needs no copy.
    let Some(second) = next(&mut frames).await? else {
        return if first.len() > limit { Err(BodyError::TooLarge { limit }) } else { Ok(first) };
    };
    let mut whole = Vec::with_capacity(announced.unwrap_or(0).min(RESERVE));
    let mut length = 0;
    let mut frame = Some(first);
    let mut following = Some(second);
    while let Some(bytes) = frame {
        length += bytes.len();
        if length > limit.saturating_mul(PATIENCE) {
            break;
        }
        if length <= limit {
            whole.extend_from_slice(&bytes);
        }
        frame = match following.take() {
            Some(bytes) => Some(bytes),
            None => next(&mut frames).await?,
        };
    }
    if length > limit { Err(BodyError::TooLarge { limit }) } else { Ok(whole.into()) }
}

async fn next(frames: &mut axum::body::BodyDataStream) -> Result<Option<Bytes>, BodyError> {
    frames.next().await.transpose().map_err(|_| BodyError::Broken)
}

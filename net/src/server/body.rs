//! Receiving a request body within bounds of size and time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// Bytes read beyond the limit before the connection is given up, in multiples of the limit: most clients look for an
/// answer only after they have sent everything.
const PATIENCE: usize = 4;
/// Longest time for a body to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);

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
}

impl BodyError {
    /// The stable name, for metrics and for answers.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Broken => "broken_body",
            Self::Slow => "slow_body",
            Self::TooLarge { .. } => "too_large",
        }
    }
}

/// The whole body, at most `limit` bytes.
pub(super) async fn receive(body: Body, limit: usize) -> Result<Bytes, BodyError> {
    match tokio::time::timeout(ARRIVAL, collect(body, limit)).await {
        Ok(received) => received,
        Err(_) => Err(BodyError::Slow),
    }
}

async fn collect(mut body: Body, limit: usize) -> Result<Bytes, BodyError> {
    let most = limit.saturating_mul(PATIENCE);
    let announced = http_body::Body::size_hint(&body).lower();
    if announced > most as u64 {
        return Err(BodyError::TooLarge { limit });
    }
    match Limited::new(&mut body, limit).collect().await {
        Ok(whole) => return Ok(whole.to_bytes()),
        Err(cause) if cause.is::<LengthLimitError>() => {}
        Err(_) => return Err(BodyError::Broken),
    }
    let mut length = limit;
    while length <= most {
        match body.frame().await {
            Some(Ok(frame)) => length += frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) => return Err(BodyError::Broken),
            None => break,
        }
    }
    Err(BodyError::TooLarge { limit })
}

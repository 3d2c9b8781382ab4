//! Refusals that every server knows, and answers in JSON.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Most bytes of a refusal. A longer one repeats what its client wrote, and no memory is set aside for that.
const LONGEST: usize = 16 * 1024;
/// What is said in place of a longer one, in the forms of all servers.
const TOO_LONG: &str = concat!(
    r#"{"detail":"the reason repeats too much of the request to be sent; send less","code":"VALIDATION_ERROR","cause":"invalid","#,
    r#""error":{"message":"the reason repeats too much of the request to be sent; send less","type":"invalid_request_error","#,
    r#""param":null,"code":null}}"#,
);

/// A reason for which any server refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// 400: the body broke off.
    #[error("the request body broke off")]
    BrokenBody,
    /// 401: the token is missing or wrong.
    #[error("send the server's token as `Authorization: Bearer TOKEN`")]
    Unauthorized,
    /// 403: a request for another host than this machine, to a server for this machine alone.
    #[error(
        "this server has no token and answers requests for this machine alone; ask for 127.0.0.1 or localhost, or start it with --token-file"
    )]
    ForeignHost,
    /// 403: a request of a page from elsewhere, to a server for this machine alone.
    #[error(
        "this server has no token and answers no pages of other origins; start it with --token-file"
    )]
    ForeignOrigin,
    /// 404: there is no such route.
    #[error("no route {0}")]
    NoRoute(String),
    /// 405: the route takes another method.
    #[error("Method Not Allowed")]
    Method,
    /// 408: the body did not arrive in time. The rest is not read, so the connection is of no further use.
    #[error("the request body did not arrive in time")]
    SlowBody,
    /// 413: the body is larger than is taken. The rest is not read, so the connection is of no further use.
    #[error("the request body has over {limit} bytes; send less at a time")]
    TooLarge {
        /// Most bytes taken.
        limit: usize,
    },
    /// 413: the answer is larger than one may be.
    #[error("the answer takes over {limit} bytes; ask for less at a time")]
    AnswerTooLarge {
        /// Most bytes of an answer.
        limit: usize,
    },
    /// 415: the body is not said to be JSON, to a server for this machine alone.
    #[error("send the body as `Content-Type: application/json`")]
    NotJson,
    /// 500: the work panicked.
    #[error("the request failed in an unforeseen way; the server's stderr says where")]
    Panicked,
    /// 503: as many requests as the server takes are being answered.
    #[error("as many requests as the server takes are being answered; try again")]
    Overloaded,
    /// 503: other bodies take the memory for them.
    #[error(
        "the request bodies being received take all the memory for them; try again, or send less at a time"
    )]
    BodiesFull,
    /// 503: other answers take the memory for them.
    #[error("the answers being sent take all the memory for them; try again")]
    AnswersFull,
    /// 503: the server is stopping.
    #[error("the server is stopping; try again elsewhere or later")]
    Stopped,
}

impl Refusal {
    /// The stable name, for metrics and for answers.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::BrokenBody => "broken_body",
            Self::SlowBody => "slow_body",
            Self::TooLarge { .. } => "too_large",
            Self::Unauthorized => "unauthorized",
            Self::ForeignHost => "foreign_host",
            Self::ForeignOrigin => "foreign_origin",
            Self::AnswerTooLarge { .. } => "answer_too_large",
            Self::NotJson => "not_json",
            Self::NoRoute(_) => "not_found",
            Self::Method => "method",
            Self::Panicked => "panic",
            Self::Overloaded | Self::BodiesFull | Self::AnswersFull => "overloaded",
            Self::Stopped => "stopped",
        }
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::BrokenBody => StatusCode::BAD_REQUEST,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge { .. } | Self::AnswerTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::ForeignHost | Self::ForeignOrigin => StatusCode::FORBIDDEN,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NoRoute(_) => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Overloaded | Self::BodiesFull | Self::AnswersFull | Self::Stopped => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

/// A server's own reasons for which a request gets no answer, each written in the form of its protocol.
pub trait Refuse: IntoResponse + From<Refusal> {
    /// The stable name, for metrics.
    fn cause(&self) -> &'static str;
}

/// An answer in JSON.
pub fn json(body: impl Into<Body>) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], body.into()).into_response()
}

/// A refusal in JSON, with the headers that its status asks for. In place of one over 16 KiB the answer says that the reason is
/// too long.
pub fn refused(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut body = body.into();
    if body.len() > LONGEST {
        body = Bytes::from_static(TOO_LONG.as_bytes());
    }
    let mut response = json(body);
    *response.status_mut() = status;
    let header = match status {
        // One second lets a queue of ordinary requests drain; clients back off further by themselves.
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            Some((header::RETRY_AFTER, "1"))
        }
        StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
        // The rest of the body is not read, so the connection is of no further use.
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
            Some((header::CONNECTION, "close"))
        }
        _ => None,
    };
    let header = header.map(|(name, value)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(header);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refusal_does_not_repeat_megabytes() {
        for (sent, whole) in [(1000, true), (LONGEST, true), (1 << 20, false)] {
            let response = refused(StatusCode::SERVICE_UNAVAILABLE, "x".repeat(sent));
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.headers()[header::RETRY_AFTER], "1");
            let body = axum::body::to_bytes(response.into_body(), usize::MAX);
            let body = body.await.unwrap();
            assert_eq!(body.len() == sent, whole);
            if !whole {
                let said: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(said["detail"], said["error"]["message"]);
                assert!(said["detail"].is_string());
            }
        }
    }
}

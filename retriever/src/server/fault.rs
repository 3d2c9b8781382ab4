//! Everything that is not an answer, with its status and its words.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::request::Problem;
use super::shell::{BodyError, refusal_headers};
use crate::error::RetrieverError;

/// Why a request got no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// 422: the body does not fit.
    Invalid(Vec<Problem>),
    /// 400: `FlashRAG`'s answer to a blank query.
    BlankQuery,
    /// 400, 408 or 413: the body was not received.
    Body(BodyError),
    /// 401.
    Unauthorized,
    /// 404, with what was not found.
    NotFound(String),
    /// 405.
    MethodNotAllowed,
    /// 500: a retriever panicked.
    Panicked,
    /// 502 or 503: a retriever failed.
    Retriever(RetrieverError),
    /// 503: the queue is full.
    Overloaded,
    /// 503: the server is stopping.
    Stopped,
    /// 503: not done in time.
    Late,
}

impl Fault {
    pub(super) fn invalid(kind: &'static str, key: &str, msg: impl Into<String>) -> Self {
        Self::Invalid(vec![Problem::new(kind, vec![key.into()], msg)])
    }

    /// A stable name, for metrics and for `cause` in the answer.
    pub(super) fn cause(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::BlankQuery => "blank_query",
            Self::Body(BodyError::Broken) => "broken_body",
            Self::Body(BodyError::Slow) => "slow_body",
            Self::Body(BodyError::TooLarge { .. }) => "too_large",
            Self::Unauthorized => "unauthorized",
            Self::NotFound(_) => "not_found",
            Self::MethodNotAllowed => "method",
            Self::Panicked => "panic",
            Self::Overloaded => "overloaded",
            Self::Stopped | Self::Retriever(RetrieverError::Stopped) => "stopped",
            Self::Late => "deadline",
            Self::Retriever(error) => match error {
                RetrieverError::Index(_) => "index",
                RetrieverError::Postings { .. } => "postings",
                RetrieverError::Unsupported { .. } => "unsupported",
                RetrieverError::Statistics { .. } => "statistics",
                RetrieverError::Model { .. } => "model",
                RetrieverError::Vectors { .. } => "vectors",
                RetrieverError::Remote { .. } => "remote",
                _ => "retriever",
            },
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_)
            | Self::Retriever(RetrieverError::Unsupported { .. } | RetrieverError::Statistics { .. }) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::BlankQuery | Self::Body(BodyError::Broken) => StatusCode::BAD_REQUEST,
            Self::Body(BodyError::Slow) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(BodyError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Retriever(RetrieverError::Remote { .. }) => StatusCode::BAD_GATEWAY,
            Self::Retriever(_) | Self::Overloaded | Self::Stopped | Self::Late => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Invalid(_) => String::new(),
            Self::BlankQuery => "Query content cannot be empty".to_owned(),
            Self::Body(error) => error.to_string(),
            Self::Unauthorized => "send the server's token as `Authorization: Bearer TOKEN`".to_owned(),
            Self::NotFound(what) => what.clone(),
            Self::MethodNotAllowed => "Method Not Allowed".to_owned(),
            Self::Panicked => "the search failed in an unforeseen way; the server's stderr says where".to_owned(),
            Self::Overloaded => "as many requests as the server takes are being answered; try again".to_owned(),
            Self::Stopped => "the server is stopping; try again elsewhere or later".to_owned(),
            Self::Late => "not done within the server's time limit; try again or ask for less".to_owned(),
            Self::Retriever(error) => with_causes(error),
        }
    }
}

/// An error with what lies behind it, as one sentence per cause.
fn with_causes(error: &RetrieverError) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        cause = error.source();
    }
    words
}

#[derive(Serialize)]
struct InvalidBody<'a> {
    detail: &'a [Problem],
}

#[derive(Serialize)]
struct FaultBody {
    detail: String,
    cause: &'static str,
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let status = self.status();
        let body = match &self {
            Self::Invalid(problems) => serde_json::to_vec(&InvalidBody { detail: problems }),
            fault => serde_json::to_vec(&FaultBody { detail: fault.words(), cause: fault.cause() }),
        };
        let mut response = json(body.unwrap_or_default());
        *response.status_mut() = status;
        refusal_headers(status, response.headers_mut());
        response
    }
}

impl From<BodyError> for Fault {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl From<RetrieverError> for Fault {
    fn from(error: RetrieverError) -> Self {
        Self::Retriever(error)
    }
}

impl From<Vec<Problem>> for Fault {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Invalid(problems)
    }
}

/// A JSON answer.
pub(super) fn json(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

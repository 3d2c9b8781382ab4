//! Refusals and failures, with their status and their words.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forage_contracts::retriever::RetrieverError;
use forage_net::{Refusal, Refuse, refused};
use serde::Serialize;

use super::request::Problem;

/// A reason for which a request got no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// 422: the body does not fit.
    Invalid(Vec<Problem>),
    /// 400: `FlashRAG`'s answer to a blank query.
    BlankQuery,
    /// As any server refuses.
    Any(Refusal),
    /// 404, with what was not found.
    NotFound(String),
    /// 502 or 503: a retriever failed.
    Retriever(RetrieverError),
    /// 503: not done in time.
    Late,
}

impl Fault {
    pub(super) fn invalid(kind: &'static str, key: &str, msg: impl Into<String>) -> Self {
        Self::Invalid(vec![Problem::new(kind, vec![key.into()], msg)])
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_)
            | Self::Retriever(
                RetrieverError::Unsupported { .. }
                | RetrieverError::Statistics { .. }
                | RetrieverError::Refused { .. },
            ) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Any(refusal) => refusal.status(),
            Self::BlankQuery => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Retriever(RetrieverError::Remote(_)) => StatusCode::BAD_GATEWAY,
            Self::Retriever(_) | Self::Late => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Invalid(_) => String::new(),
            Self::BlankQuery => "Query content cannot be empty".to_owned(),
            Self::Any(Refusal::AnswerTooLarge { limit }) => format!(
                "the answer has over {limit} bytes; ask for fewer passages (topk) or fewer queries at a time, or start the \
                 server with a larger --max-answer-mib"
            ),
            Self::Any(refusal) => refusal.to_string(),
            Self::NotFound(what) => what.clone(),
            Self::Late => {
                "not done within the server's time limit; try again or ask for less".to_owned()
            }
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
            fault => serde_json::to_vec(&FaultBody {
                detail: fault.words(),
                cause: fault.cause(),
            }),
        };
        refused(status, body.unwrap_or_default())
    }
}

impl Refuse for Fault {
    fn cause(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::BlankQuery => "blank_query",
            Self::Any(refusal) => refusal.cause(),
            Self::NotFound(_) => "not_found",
            Self::Late => "deadline",
            Self::Retriever(error) => match error {
                RetrieverError::Stopped => "stopped",
                RetrieverError::Cancelled => "deadline",
                RetrieverError::Refused { .. } => "refused",
                RetrieverError::Index(_) => "index",
                RetrieverError::Postings { .. } => "postings",
                RetrieverError::Unsupported { .. } => "unsupported",
                RetrieverError::Statistics { .. } => "statistics",
                RetrieverError::Model { .. } => "model",
                RetrieverError::Vectors { .. } => "vectors",
                RetrieverError::Remote(_) => "remote",
                _ => "retriever",
            },
        }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Any(refusal)
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

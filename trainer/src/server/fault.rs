//! Everything that is not an answer, as OpenAI's clients know it: `{"error": {"message", "type", "param", "code"}}`.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forage_env::policy::PolicyError;
use forage_retriever::server::shell::{BodyError, refusal_headers};
use serde::Serialize;

/// Why a request got no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// 400: the request does not fit.
    Invalid {
        /// What is wrong and what to do.
        message: String,
        /// The field at fault.
        param: Option<String>,
        /// OpenAI's name of the fault, where it has one.
        code: Option<&'static str>,
    },
    /// 401.
    Unauthorized,
    /// 404: another model was asked for.
    UnknownModel { asked: String, served: String },
    /// 404.
    NoRoute(String),
    /// 405.
    MethodNotAllowed,
    /// 400, 408 or 413: the body was not received.
    Body(BodyError),
    /// 429: the queue is full.
    Overloaded,
    /// 500: a defect.
    Panicked,
    /// 503: the server is stopping.
    Stopped,
    /// 400, 500, 502 or 503: the engine refused or failed.
    Policy(PolicyError),
}

impl Fault {
    pub(super) fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), param: Some(param.to_owned()), code: None }
    }

    /// A stable name, for metrics.
    pub(super) fn cause(&self) -> &'static str {
        match self {
            Self::Invalid { .. } | Self::Policy(PolicyError::BadRequest(_)) => "invalid",
            Self::Unauthorized => "unauthorized",
            Self::UnknownModel { .. } => "unknown_model",
            Self::NoRoute(_) => "not_found",
            Self::MethodNotAllowed => "method",
            Self::Body(BodyError::Broken) => "broken_body",
            Self::Body(BodyError::Slow) => "slow_body",
            Self::Body(BodyError::TooLarge { .. }) => "too_large",
            Self::Overloaded => "overloaded",
            Self::Panicked => "panic",
            Self::Stopped => "stopped",
            Self::Policy(PolicyError::Gone(_)) => "engine_gone",
            Self::Policy(PolicyError::NonFinite(_)) => "non_finite",
            Self::Policy(PolicyError::Unavailable(_)) => "engine_unavailable",
            Self::Policy(PolicyError::Malformed(_)) => "engine_malformed",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Invalid { .. } | Self::Policy(PolicyError::BadRequest(_)) | Self::Body(BodyError::Broken) => {
                StatusCode::BAD_REQUEST
            }
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::UnknownModel { .. } | Self::NoRoute(_) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body(BodyError::Slow) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(BodyError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Overloaded => StatusCode::TOO_MANY_REQUESTS,
            Self::Panicked | Self::Policy(PolicyError::NonFinite(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Stopped | Self::Policy(PolicyError::Gone(_) | PolicyError::Unavailable(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Policy(PolicyError::Malformed(_)) => StatusCode::BAD_GATEWAY,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Invalid { message, .. } => message.clone(),
            Self::Unauthorized => "send the server's token as `Authorization: Bearer TOKEN`".to_owned(),
            Self::UnknownModel { asked, served } => {
                format!("the model `{asked}` does not exist here; this server has `{served}`")
            }
            Self::NoRoute(path) => {
                format!("no route {path}; there are /v1/completions, /v1/chat/completions and /v1/models")
            }
            Self::MethodNotAllowed => "this route takes another method".to_owned(),
            Self::Body(error) => error.to_string(),
            Self::Overloaded => "as many requests as the server takes are being answered; try again".to_owned(),
            Self::Panicked => "the request failed in an unforeseen way; the server's stderr says where".to_owned(),
            Self::Stopped => "the server is stopping; try again elsewhere or later".to_owned(),
            Self::Policy(error) => error.to_string(),
        }
    }

    fn kind(&self) -> &'static str {
        match self.status() {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            Self::Invalid { code, .. } => *code,
            Self::Unauthorized => Some("invalid_api_key"),
            Self::UnknownModel { .. } => Some("model_not_found"),
            Self::Overloaded => Some("rate_limit_exceeded"),
            Self::Stopped | Self::Policy(PolicyError::Gone(_) | PolicyError::Unavailable(_)) => {
                Some("service_unavailable")
            }
            _ => None,
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            Self::Invalid { param, .. } => param.as_deref(),
            Self::UnknownModel { .. } => Some("model"),
            _ => None,
        }
    }

    /// The error object; also what ends a stream that fails.
    pub(super) fn json(&self) -> Vec<u8> {
        let error = ErrorObject { message: self.words(), kind: self.kind(), param: self.param(), code: self.code() };
        serde_json::to_vec(&ErrorBody { error }).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: Option<&'static str>,
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = json(self.json());
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

impl From<PolicyError> for Fault {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error)
    }
}

/// A JSON answer.
pub(super) fn json(body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body.into()).into_response()
}

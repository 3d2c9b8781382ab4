//! Refusals and failures, as OpenAI's clients know it: `{"error": {"message", "type", "param", "code"}}`.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forage_contracts::policy::PolicyError;
use forage_net::{Refusal, Refuse, refused};
use serde::Serialize;

/// A reason for which a request got no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// 400: the request does not fit.
    Invalid {
        /// The problem and the fix.
        message: String,
        /// The field at fault.
        param: Option<String>,
        /// OpenAI's name of the fault, where it has one.
        code: Option<&'static str>,
    },
    /// 404: another model was asked for.
    UnknownModel { asked: String, served: String },
    /// As any server refuses.
    Any(Refusal),
    /// 503: the client takes the tokens too slowly.
    Behind,
    /// 503: not done in time.
    Late,
    /// 400, 500, 502 or 503: the engine refused or failed.
    Policy(PolicyError),
}

impl Fault {
    pub(super) fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
            param: Some(param.to_owned()),
            code: None,
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Any(Refusal::Overloaded) => StatusCode::TOO_MANY_REQUESTS,
            Self::Any(refusal) => refusal.status(),
            Self::Invalid { .. } | Self::Policy(PolicyError::BadRequest(_)) => {
                StatusCode::BAD_REQUEST
            }
            Self::UnknownModel { .. } => StatusCode::NOT_FOUND,
            Self::Policy(PolicyError::NonFinite(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Behind
            | Self::Late
            | Self::Policy(PolicyError::Gone(_) | PolicyError::Unavailable(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Policy(PolicyError::Malformed(_)) => StatusCode::BAD_GATEWAY,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Invalid { message, .. } => message.clone(),
            Self::UnknownModel { asked, served } => {
                format!("the model `{asked}` does not exist here; this server has `{served}`")
            }
            Self::Any(Refusal::NoRoute(path)) => {
                format!(
                    "no route {path}; there are /v1/completions, /v1/chat/completions and /v1/models"
                )
            }
            Self::Any(refusal) => refusal.to_string(),
            Self::Behind => {
                "too many tokens wait to be read; read the answer faster, or ask for fewer completions".to_owned()
            }
            Self::Late => {
                "not done within the server's time limit; try again, or ask for fewer or shorter completions".to_owned()
            }
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
            Self::Any(Refusal::Unauthorized) => Some("invalid_api_key"),
            Self::UnknownModel { .. } => Some("model_not_found"),
            Self::Any(Refusal::Overloaded) => Some("rate_limit_exceeded"),
            Self::Late => Some("deadline"),
            Self::Any(Refusal::Stopped)
            | Self::Policy(PolicyError::Gone(_) | PolicyError::Unavailable(_)) => {
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
        let error = ErrorObject {
            message: self.words(),
            kind: self.kind(),
            param: self.param(),
            code: self.code(),
        };
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
        refused(self.status(), self.json())
    }
}

impl Refuse for Fault {
    fn cause(&self) -> &'static str {
        match self {
            Self::Invalid { .. } | Self::Policy(PolicyError::BadRequest(_)) => "invalid",
            Self::UnknownModel { .. } => "unknown_model",
            Self::Any(refusal) => refusal.cause(),
            Self::Behind => "slow_reader",
            Self::Late => "deadline",
            Self::Policy(PolicyError::Gone(_)) => "engine_gone",
            Self::Policy(PolicyError::NonFinite(_)) => "non_finite",
            Self::Policy(PolicyError::Unavailable(_)) => "engine_unavailable",
            Self::Policy(PolicyError::Malformed(_)) => "engine_malformed",
        }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Any(refusal)
    }
}

impl From<PolicyError> for Fault {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error)
    }
}

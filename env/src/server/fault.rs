//! Refusals and failures: over HTTP `{"detail", "code", "cause"}` with a status, over a WebSocket an `error`
//! message with the same words and OpenEnv's code.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forage_contracts::Boundary;
use forage_net::{Refusal, Refuse, refused};
use serde_json::{Map, Value, json};

use super::app::LONGEST_ID;

/// Most bytes of what is said of a fault: it may repeat what a client wrote, and no memory is set aside for that.
pub(super) const MOST_WORDS: usize = 4000;

/// A reason for which a request got no answer.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// 422: the request does not fit.
    Invalid(String),
    /// 422: the request is not JSON.
    Json(String),
    /// A message of a type the protocol does not have; WebSocket only.
    UnknownType(String),
    /// As any server refuses.
    Any(Refusal),
    /// 404: no session has this id.
    UnknownSession(String),
    /// 410: there was one, and it is closed.
    Gone { id: String, why: String },
    /// 409: nothing was reset yet.
    NotReset(String),
    /// 409: the episode is over.
    Over(String),
    /// 409: a step of the session is being done.
    Busy(String),
    /// 503: as many sessions as there are places.
    Full { active: usize, max: usize },
    /// 503: what open sessions keep takes all the memory for that.
    Kept {
        active: usize,
        max: usize,
        mib: usize,
    },
    /// 503: something of ours failed and ended the episode.
    Episode {
        id: String,
        boundary: Boundary,
        message: String,
    },
    /// 503: a step took too long and ended the episode.
    Late { id: String, seconds: f64 },
}

impl Fault {
    /// OpenEnv's code.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Json(_) => "INVALID_JSON",
            Self::UnknownType(_) => "UNKNOWN_TYPE",
            Self::Full { .. }
            | Self::Kept { .. }
            | Self::Any(Refusal::Overloaded | Refusal::BodiesFull | Refusal::AnswersFull) => {
                "CAPACITY_REACHED"
            }
            Self::Any(Refusal::Unauthorized | Refusal::Stopped)
            | Self::UnknownSession(_)
            | Self::Gone { .. }
            | Self::NotReset(_)
            | Self::Over(_)
            | Self::Busy(_) => "SESSION_ERROR",
            Self::Any(Refusal::Panicked) | Self::Episode { .. } | Self::Late { .. } => {
                "EXECUTION_ERROR"
            }
            Self::Invalid(_) | Self::Any(_) => "VALIDATION_ERROR",
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) | Self::Json(_) | Self::UnknownType(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::Any(refusal) => refusal.status(),
            Self::UnknownSession(_) => StatusCode::NOT_FOUND,
            Self::Gone { .. } => StatusCode::GONE,
            Self::NotReset(_) | Self::Over(_) | Self::Busy(_) => StatusCode::CONFLICT,
            Self::Full { .. } | Self::Kept { .. } | Self::Episode { .. } | Self::Late { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// The problem and the fix; of a long text its beginning.
    pub(super) fn words(&self) -> String {
        let mut words = self.all_words();
        words.truncate(words.floor_char_boundary(MOST_WORDS));
        words
    }

    fn all_words(&self) -> String {
        match self {
            Self::Invalid(what) => what.clone(),
            Self::Json(what) => format!("not JSON: {what}"),
            Self::UnknownType(kind) => {
                format!("unknown message type `{kind}`; there are reset, step, state and close")
            }
            Self::Any(refusal) => refusal.to_string(),
            Self::UnknownSession(id) => {
                format!(
                    "there is no session `{id}`; it ended long ago or never was: reset to begin one"
                )
            }
            Self::Gone { id, why } => format!("session `{id}` {why}; reset to begin another"),
            Self::NotReset(id) => format!("session `{id}` has no episode; reset it first"),
            Self::Over(id) => {
                format!("the episode of session `{id}` is over; reset to begin another")
            }
            Self::Busy(id) => {
                format!("a request for session `{id}` is being answered; wait for it")
            }
            Self::Full { active, max } => {
                format!(
                    "{active} of {max} sessions are open; close some, or try again when others have ended"
                )
            }
            Self::Kept { active, mib, .. } => {
                format!(
                    "what {active} open sessions keep takes all the memory for that, {mib} MiB; close some, or try again when others have ended"
                )
            }
            Self::Episode {
                id,
                boundary,
                message,
            } => {
                let boundary = boundary_name(*boundary);
                format!(
                    "session `{id}`: the {boundary} failed, which ended the episode without a reward: {message}"
                )
            }
            Self::Late { id, seconds } => {
                format!(
                    "session `{id}`: the step took over {seconds} s, which ended the episode without a reward"
                )
            }
        }
    }

    /// Facts for programs beside the words.
    fn facts(&self) -> Map<String, Value> {
        let facts = match self {
            Self::Full { active, max } | Self::Kept { active, max, .. } => {
                json!({"active_sessions": active, "max_sessions": max})
            }
            Self::UnknownSession(id)
            | Self::Gone { id, .. }
            | Self::NotReset(id)
            | Self::Over(id)
            | Self::Busy(id)
            | Self::Episode { id, .. }
            | Self::Late { id, .. } => {
                json!({"episode_id": id[..id.floor_char_boundary(LONGEST_ID)]})
            }
            _ => json!({}),
        };
        facts.as_object().cloned().unwrap_or_default()
    }

    /// The `data` of a WebSocket's error message, and what stands for a member of a batch.
    pub(super) fn data(&self) -> Value {
        let mut data = self.facts();
        data.insert("message".to_owned(), self.words().into());
        data.insert("code".to_owned(), self.code().into());
        data.insert("cause".to_owned(), self.cause().into());
        Value::Object(data)
    }
}

/// A part of the system, as it is written in records.
pub(super) fn boundary_name(boundary: Boundary) -> &'static str {
    match boundary {
        Boundary::Policy => "policy",
        Boundary::Retriever => "retriever",
        Boundary::Sandbox => "sandbox",
        Boundary::Environment => "environment",
        Boundary::Reward => "reward",
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut body = self.facts();
        let detail = match &self {
            // As FastAPI writes them.
            Self::Invalid(_) => {
                json!([{"type": "value_error", "loc": ["body"], "msg": self.words()}])
            }
            fault => fault.words().into(),
        };
        body.insert("detail".to_owned(), detail);
        body.insert("code".to_owned(), self.code().into());
        body.insert("cause".to_owned(), self.cause().into());
        refused(status, Value::Object(body).to_string())
    }
}

impl Refuse for Fault {
    fn cause(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::Json(_) => "json",
            Self::UnknownType(_) => "unknown_type",
            Self::Any(refusal) => refusal.cause(),
            Self::UnknownSession(_) => "unknown_session",
            Self::Gone { .. } => "session_closed",
            Self::NotReset(_) => "not_reset",
            Self::Over(_) => "episode_over",
            Self::Busy(_) => "busy",
            // The name that counts as a refusal with every server.
            Self::Full { .. } | Self::Kept { .. } => "overloaded",
            Self::Episode { boundary, .. } => boundary_name(*boundary),
            Self::Late { .. } => "deadline",
        }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Any(refusal)
    }
}

/// A small JSON answer, whose memory is not counted: closing a session must work where there is none.
pub(super) fn json_response(body: &Value) -> Response {
    forage_net::json(body.to_string())
}

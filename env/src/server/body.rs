//! Reading requests.

use std::time::Duration;

use axum::body::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::app::{App, Manner};
use super::fault::Fault;
use super::play::Turn;
use crate::policy::Finish;

/// The body as a type; an empty one is an empty object.
pub(super) async fn read<T: DeserializeOwned>(app: &App, body: Body) -> Result<T, Fault> {
    let bytes = app.base.receive(body).await?;
    let text: &[u8] = if bytes.trim_ascii().is_empty() {
        b"{}"
    } else {
        &bytes
    };
    parse(text)
}

/// JSON as a type.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(text).map_err(|error| {
        if error.is_data() {
            Fault::Invalid(error.to_string())
        } else {
            Fault::Json(error.to_string())
        }
    })
}

/// A value as a type.
pub(super) fn parse_value<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    serde_json::from_value(value).map_err(|error| Fault::Invalid(error.to_string()))
}

/// A turn, as an action's fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionBody {
    /// The policy's text.
    text: String,
    /// Why it ended; taken from the text and the stop strings by default.
    finish: Option<Finish>,
    /// OpenEnv's clients send it with every action; it has no effect.
    #[serde(default)]
    #[expect(dead_code, reason = "taken so that it is not refused")]
    metadata: Map<String, Value>,
}

impl From<ActionBody> for Turn {
    fn from(body: ActionBody) -> Self {
        Self {
            text: body.text,
            finish: body.finish,
        }
    }
}

/// A call of a tool in place of a turn's text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallBody {
    #[serde(rename = "type")]
    #[expect(dead_code, reason = "told apart by it before")]
    kind: String,
    pub(super) tool_name: String,
    #[serde(default)]
    pub(super) arguments: Map<String, Value>,
    #[serde(default)]
    #[expect(dead_code, reason = "taken so that it is not refused")]
    metadata: Map<String, Value>,
}

/// An action.
#[derive(Debug)]
pub(super) enum Action {
    /// A turn.
    Turn(Turn),
    /// A turn, written by calling a tool.
    Call(CallBody),
    /// The names of the tools; no turn.
    ListTools,
}

impl Action {
    pub(super) fn parse(value: Value) -> Result<Self, Fault> {
        match value.get("type").and_then(Value::as_str) {
            Some("list_tools") => Ok(Self::ListTools),
            Some("call_tool") => Ok(Self::Call(parse_value(value)?)),
            _ => Ok(Self::Turn(parse_value::<ActionBody>(value)?.into())),
        }
    }
}

/// The action of a batch or of Gymnasium's shape: text alone, or fields.
pub(super) fn gym_action(value: Value) -> Result<Turn, Fault> {
    match value {
        Value::String(text) => Ok(Turn { text, finish: None }),
        fields => Ok(parse_value::<ActionBody>(fields)?.into()),
    }
}

/// The options of a step, checked.
pub(super) fn manner(timeout_s: Option<f64>, request: Option<String>) -> Result<Manner, Fault> {
    let timeout = match timeout_s {
        None => None,
        Some(seconds) => match Duration::try_from_secs_f64(seconds) {
            Ok(timeout) if !timeout.is_zero() => Some(timeout),
            _ => {
                return Err(Fault::Invalid(format!(
                    "`timeout_s` is {seconds}; write a number above 0"
                )));
            }
        },
    };
    Ok(Manner { timeout, request })
}

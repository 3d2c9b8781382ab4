//! Reading requests.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use forage_contracts::policy::Finish;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

use super::app::{App, Manner};
use super::fault::Fault;
use super::play::Turn;
use super::session::Request;

/// The body as a type; an empty one is an empty object.
pub(super) async fn read<T: DeserializeOwned + Send + 'static>(
    app: &App,
    body: Body,
) -> Result<T, Fault> {
    let bytes = app.base.receive(body).await?;
    let read = |bytes: &[u8]| match bytes.trim_ascii() {
        b"" => parse(b"{}"),
        text => parse(text),
    };
    app.base.read(bytes, read).await
}

/// The fields of an address, or what is wrong with them in the form of all refusals.
pub(super) fn query<T>(read: Result<Query<T>, QueryRejection>) -> Result<T, Fault> {
    let Query(fields) = read.map_err(|rejection| Fault::Invalid(rejection.body_text()))?;
    Ok(fields)
}

/// JSON as a type. Types that hold any value keep it as text: a tree of values takes many times its memory.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(text).map_err(|error| {
        if error.is_data() {
            let field = field_of(text, &error).map(|name| format!("`{name}`: "));
            Fault::Invalid(format!("{}{error}", field.unwrap_or_default()))
        } else {
            Fault::Json(error.to_string())
        }
    })
}

/// The field whose value an error is about, by the place where it was met; none where the error names one itself.
fn field_of(text: &[u8], error: &serde_json::Error) -> Option<String> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(text).ok()?;
    let lines = text.split_inclusive(|&byte| byte == b'\n');
    let before: usize = lines
        .take(error.line().checked_sub(1)?)
        .map(<[u8]>::len)
        .sum();
    let read = before + error.column();
    let (name, _) = fields.into_iter().find(|(_, value)| {
        let start = value.get().as_ptr().addr() - text.as_ptr().addr();
        (start + 1..=start + value.get().len()).contains(&read)
    })?;
    Some(name)
}

/// A value as a type.
pub(super) fn parse_value<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Result<T, Fault> {
    parse(value.get().as_bytes())
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
    metadata: IgnoredAny,
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
    pub(super) arguments: Arguments,
    #[serde(default)]
    #[expect(dead_code, reason = "taken so that it is not refused")]
    metadata: IgnoredAny,
}

/// The arguments of a call, each as JSON.
pub(super) type Arguments = BTreeMap<String, Box<RawValue>>;

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
    pub(super) fn parse(value: &RawValue) -> Result<Self, Fault> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(rename = "type", borrow)]
            kind: Option<&'a RawValue>,
        }
        let kind = parse_value::<Kind<'_>>(value).ok().and_then(|it| it.kind);
        match kind.map(RawValue::get) {
            Some(r#""list_tools""#) => Ok(Self::ListTools),
            Some(r#""call_tool""#) => Ok(Self::Call(parse_value(value)?)),
            _ => Ok(Self::Turn(parse_value::<ActionBody>(value)?.into())),
        }
    }
}

/// The action of a batch or of Gymnasium's shape: text alone, or fields.
pub(super) fn gym_action(value: &RawValue) -> Result<Turn, Fault> {
    if value.get().starts_with('"') {
        let text = parse_value(value)?;
        return Ok(Turn { text, finish: None });
    }
    Ok(parse_value::<ActionBody>(value)?.into())
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
    Ok(Manner {
        timeout,
        request: request.map(Request::Step),
    })
}

//! OpenEnv's HTTP routes. A reset opens a session that `/step` and `/state` name by its `episode_id`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use forage_net::{Room, Service};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::app::{App, LONGEST_ID, Manner, Options, check_id};
use super::body::{self, Action, CallBody};
use super::fault::{Fault, json_response};
use super::memory::answer;
use super::play::Reply;
use super::session::{Session, Slot};
use super::tools::{self, CallFault};

type Shared = State<Arc<App>>;

/// A reset's fields.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetBody {
    seed: Option<u64>,
    pub(super) episode_id: Option<String>,
    task_id: Option<String>,
    task_index: Option<usize>,
    member: Option<u64>,
}

impl ResetBody {
    pub(super) fn options(&self) -> Options {
        let Self {
            seed,
            task_id,
            task_index,
            member,
            ..
        } = self;
        Options {
            seed: *seed,
            task_id: task_id.clone(),
            task_index: *task_index,
            member: *member,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepBody {
    action: Box<RawValue>,
    episode_id: Option<String>,
    timeout_s: Option<f64>,
    request_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StateQuery {
    episode_id: Option<String>,
}

/// What OpenEnv calls a result: `{"observation", "reward", "done"}`.
pub(super) fn result(reply: &Reply) -> Value {
    let mut observation = json!({"text": reply.text});
    if let (Some(fields), Value::Object(view)) = (observation.as_object_mut(), json!(reply.view)) {
        fields.extend(view);
    }
    json!({"observation": observation, "reward": reply.reward, "done": reply.done()})
}

/// A result with the session's name beside it, for HTTP.
fn named(room: Arc<Room>, mut result: Value, id: &str) -> Result<Response, Fault> {
    result["episode_id"] = id.into();
    answer(room, &result)
}

pub(super) async fn reset(State(app): Shared, body: Body) -> Response {
    let work = async {
        let asked: ResetBody = body::read(&app, body).await?;
        let room = app.room()?;
        let reply = app
            .begin(asked.episode_id.clone(), &asked.options())
            .await?;
        named(room, result(&reply), &reply.view.episode_id)
    };
    app.observe("reset", work).await
}

pub(super) async fn step(State(app): Shared, body: Body) -> Response {
    let work = async {
        let StepBody {
            action,
            episode_id,
            timeout_s,
            request_id,
        } = body::read(&app, body).await?;
        let id = episode_id.ok_or_else(unnamed)?;
        let action = Action::parse(&action)?;
        let manner = body::manner(timeout_s, request_id)?;
        let room = app.room()?;
        let session = match app.sessions.find(&id) {
            Ok(session) => session,
            // The last answer of an episode may have been lost on its way.
            Err(fault) => {
                let last = app.sessions.grave(&id).and_then(|grave| grave.last);
                let again = last.and_then(|last| last.again(manner.request.as_ref()));
                return named(room, result(&again.ok_or(fault)?), &id);
            }
        };
        named(room, act(&app, &session, action, manner).await?, &id)
    };
    app.observe("step", work).await
}

/// Does what an action asks for.
pub(super) async fn act(
    app: &Arc<App>,
    session: &Arc<Session>,
    action: Action,
    manner: Manner,
) -> Result<Value, Fault> {
    match action {
        Action::Turn(turn) => Ok(result(&app.step(session, turn, manner).await?)),
        Action::ListTools => {
            Ok(json!({"observation": {"tools": tools::listed(app)}, "reward": null, "done": false}))
        }
        Action::Call(call) => called(app, session, call, manner).await,
    }
}

/// A step by a call of a tool. A call that is not a turn is answered to the model and takes none.
async fn called(
    app: &Arc<App>,
    session: &Arc<Session>,
    call: CallBody,
    manner: Manner,
) -> Result<Value, Fault> {
    let mut name = call.tool_name;
    // The answer repeats the name, and no tool's name is longer.
    name.truncate(name.floor_char_boundary(LONGEST_ID));
    match tools::turn(app, &name, &call.arguments) {
        Err(fault) => {
            let kind = match fault {
                CallFault::NotFound(_) => "tool_not_found",
                CallFault::Arguments(_) => "invalid_args",
            };
            let error = json!({"error_type": kind, "message": fault.words()});
            let observation = json!({"tool_name": name, "result": null, "error": error});
            Ok(json!({"observation": observation, "reward": null, "done": false}))
        }
        Ok(turn) => {
            let reply = app.step(session, turn, manner).await?;
            let mut result = result(&reply);
            result["observation"]["tool_name"] = name.into();
            result["observation"]["result"] = reply.text.clone().into();
            result["observation"]["error"] = Value::Null;
            Ok(result)
        }
    }
}

fn unnamed() -> Fault {
    Fault::Invalid("`episode_id` is missing; it stands in the answer to the reset".to_owned())
}

/// The state of a session: while one works on it, what is known of it without waiting.
pub(super) fn state_of(session: &Session) -> Value {
    let Ok(slot) = session.slot.try_lock() else {
        return json!({"episode_id": session.id, "status": "stepping"});
    };
    match &*slot {
        Slot::Empty | Slot::Failed(_) => {
            json!({"episode_id": session.id, "step_count": 0, "status": "empty"})
        }
        Slot::Playing(playing) => described(&playing.last.reply),
        Slot::Over(last) => described(&last.reply),
    }
}

fn described(reply: &Reply) -> Value {
    let view = &reply.view;
    json!({
        "episode_id": view.episode_id,
        "step_count": view.turn,
        "status": if reply.done() { "over" } else { "running" },
        "task_id": view.task_id,
        "seed": view.seed,
        "terminated": view.terminated,
        "truncated": view.truncated,
        "score": view.info.score,
    })
}

pub(super) async fn state(
    State(app): Shared,
    query: Result<Query<StateQuery>, QueryRejection>,
) -> Response {
    let work = async {
        let id = body::query(query)?.episode_id.ok_or_else(unnamed)?;
        let room = app.room()?;
        let state = match app.sessions.find(&id) {
            Ok(session) => state_of(&session),
            Err(fault) => {
                let last = app.sessions.grave(&id).and_then(|grave| grave.last);
                described(&last.ok_or(fault)?.reply)
            }
        };
        answer(room, &state)
    };
    app.observe("state", work).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CloseBody {
    episode_id: String,
}

pub(super) async fn close(State(app): Shared, body: Body) -> Response {
    let work = async {
        let CloseBody { episode_id } = body::read(&app, body).await?;
        check_id("episode_id", &episode_id)?;
        let closed = app.close(&episode_id);
        Ok(json_response(
            &json!({"episode_id": episode_id, "closed": closed}),
        ))
    };
    app.observe("close", work).await
}

pub(super) async fn metadata(State(app): Shared) -> Response {
    let spec = app.served.factory.spec();
    json_response(&json!({
        "name": spec.id,
        "description": format!("turns of text, at most {} in an episode; stop strings: {}", spec.max_turns, spec.stop.join(" ")),
        "readme_content": null,
        "version": env!("CARGO_PKG_VERSION"),
        "author": null,
        "documentation_url": null,
    }))
}

pub(super) async fn schema() -> Response {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer", "minimum": 0});
    let maybe = |kind: &str| json!({"type": [kind, "null"]});
    let flag = json!({"type": "boolean"});
    json_response(&json!({
        "action": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "what the policy wrote in this turn"},
                "finish": {"enum": ["stop", "eos", "length", "context", null], "description": "why the turn ended"},
                "metadata": {"type": "object"},
            },
            "required": ["text"],
            "additionalProperties": false,
        },
        "observation": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "what the policy reads next; the prompt after a reset"},
                "episode_id": text, "task_id": text, "question": text, "data_source": text,
                "turn": number, "max_turns": number,
                "stop": {"type": "array", "items": text},
                "forced_prefix": maybe("string"),
                "seed": number, "terminated": flag, "truncated": flag,
                "info": {
                    "type": "object",
                    "properties": {
                        "kind": maybe("object"), "ending": maybe("object"), "score": maybe("object"),
                        "ignored_chars": number,
                    },
                },
            },
            "required": ["text"],
        },
        "state": {
            "type": "object",
            "properties": {
                "episode_id": text, "step_count": number,
                "status": {"enum": ["empty", "running", "stepping", "over"]},
                "task_id": text, "seed": number, "terminated": flag, "truncated": flag, "score": maybe("object"),
            },
        },
    }))
}

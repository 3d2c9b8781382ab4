//! Gymnasium's shape in JSON: `make`, `reset`, `step`, `close`, for one environment or, with lists, for many at once.
//!
//! A handle outlives its episodes, as a Gymnasium environment does. In a batch each member has its own fault: the others are
//! not lost with it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use forage_net::{Room, Service};
use futures::future::join_all;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::app::{App, Manner, Options};
use super::body;
use super::fault::{Fault, json_response};
use super::memory::answer;
use super::play::Reply;
use crate::registry;

type Shared = State<Arc<App>>;

/// Bytes of an environment's name in an answer, and of what stands around it.
const NAME: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MakeBody {
    id: Option<String>,
    num_envs: Option<usize>,
}

/// What a reset may ask for beside its seed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResetOptions {
    task_id: Option<String>,
    task_index: Option<usize>,
    member: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResetBody {
    env_id: Option<String>,
    env_ids: Option<Vec<String>>,
    /// Seeds of a batch, one for each or one for all: then member `i` has the seed plus `i`, as in Gymnasium's vectors.
    seed: Option<Box<RawValue>>,
    /// Options of a batch, one for each or one for all.
    options: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepBody {
    env_id: Option<String>,
    env_ids: Option<Vec<String>>,
    action: Option<Box<RawValue>>,
    actions: Option<Vec<Box<RawValue>>>,
    timeout_s: Option<f64>,
    request_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CloseBody {
    env_id: Option<String>,
    env_ids: Option<Vec<String>>,
}

enum OneOrMany<T> {
    Many(Vec<Option<T>>),
    One(T),
}

impl<T: DeserializeOwned> OneOrMany<T> {
    /// Reads the field `name` of a request.
    fn read(name: &str, raw: Option<&RawValue>) -> Result<Option<Self>, Fault> {
        let Some(raw) = raw else {
            return Ok(None);
        };
        let read = if raw.get().starts_with('[') {
            body::parse_value(raw).map(Self::Many)
        } else {
            body::parse_value(raw).map(Self::One)
        };
        read.map(Some).map_err(|fault| match fault {
            Fault::Invalid(words) => Fault::Invalid(format!("`{name}`: {words}")),
            fault => fault,
        })
    }
}

/// Which environments a request is for.
enum Which {
    One(String),
    Many(Vec<String>),
}

impl Which {
    /// Refuses a batch of more environments than can be open: each member takes a place in the answer, open or not.
    fn of(app: &App, one: Option<String>, many: Option<Vec<String>>) -> Result<Self, Fault> {
        let most = app.sessions.max();
        match (one, many) {
            (Some(id), None) => Ok(Self::One(id)),
            (None, Some(ids)) if ids.len() > most => Err(Fault::Invalid(format!(
                "`env_ids` names {} environments; at most {most} are open at a time",
                ids.len()
            ))),
            (None, Some(ids)) if !ids.is_empty() => Ok(Self::Many(ids)),
            _ => Err(Fault::Invalid(
                "give either `env_id` or `env_ids`, a list that is not empty".to_owned(),
            )),
        }
    }

    fn ids(self) -> Vec<String> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}

fn info(reply: &Reply) -> Value {
    json!(reply.view)
}

pub(super) async fn make(State(app): Shared, body: Body) -> Response {
    let work = async {
        let MakeBody { id, num_envs } = body::read(&app, body).await?;
        let (spec, entry) = (app.served.factory.spec(), app.served.factory.entry());
        if let Some(id) = id {
            let found = registry::find(&id).map_err(|error| Fault::Invalid(error.to_string()));
            if id != spec.id && found?.id != entry {
                return Err(Fault::Invalid(format!(
                    "this server has `{}`, not `{id}`",
                    spec.id
                )));
            }
        }
        let count = num_envs.unwrap_or(1);
        let max = app.sessions.max();
        if count == 0 || count > max {
            return Err(Fault::Invalid(format!(
                "`num_envs` is {count}; write 1 to {max}"
            )));
        }
        let room = app.room()?;
        // No environment is opened for whose name the answer has no room.
        room.take(count.saturating_mul(NAME))?;
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            match app.open(None, true) {
                Ok(session) => ids.push(session.id.clone()),
                Err(fault) => {
                    // All or none.
                    for id in &ids {
                        app.close(id);
                    }
                    return Err(fault);
                }
            }
        }
        let made = match num_envs {
            None => json!({"env_id": ids[0], "spec": spec}),
            Some(_) => json!({"env_ids": ids, "spec": spec}),
        };
        answer(room, &made)
    };
    app.observe("gym_make", work).await
}

pub(super) async fn reset(State(app): Shared, body: Body) -> Response {
    let work = async {
        let ResetBody {
            env_id,
            env_ids,
            seed,
            options,
        } = body::read(&app, body).await?;
        let seed: Option<OneOrMany<u64>> = OneOrMany::read("seed", seed.as_deref())?;
        let options: Option<OneOrMany<ResetOptions>> =
            OneOrMany::read("options", options.as_deref())?;
        let room = app.room()?;
        match Which::of(&app, env_id, env_ids)? {
            Which::One(id) => {
                let (Some(seed), Some(options)) = (single(seed), single(options)) else {
                    return Err(Fault::Invalid(
                        "`seed` and `options` are lists; `env_id` names one".to_owned(),
                    ));
                };
                let options = options.unwrap_or_default();
                let reply = reset_one(&app, &id, seed, options, &room).await?;
                answer(
                    room,
                    &json!({"observation": reply.text, "info": info(&reply)}),
                )
            }
            Which::Many(ids) => {
                let seeds = each("seed", seed, ids.len(), |seed, place| {
                    seed.wrapping_add(place as u64)
                })?;
                let options = each("options", options, ids.len(), |options, _| options.clone())?;
                let resets = ids.iter().zip(seeds).zip(options);
                let resets = resets.map(|((id, seed), options)| {
                    reset_one(&app, id, seed, options.unwrap_or_default(), &room)
                });
                let replies = join_all(resets).await;
                let told = json!({
                    "observations": each_of(&replies, |reply| json!(reply.text)),
                    "infos": each_of(&replies, info),
                    "errors": errors(&replies),
                });
                answer(room, &told)
            }
        }
    };
    app.observe("gym_reset", work).await
}

async fn reset_one(
    app: &Arc<App>,
    id: &str,
    seed: Option<u64>,
    options: ResetOptions,
    room: &Room,
) -> Result<Reply, Fault> {
    let session = app.sessions.find(id)?;
    let ResetOptions {
        task_id,
        task_index,
        member,
    } = options;
    let asked = app.ask(&Options {
        seed,
        task_id,
        task_index,
        member,
    })?;
    counted(app.reset(&session, asked).await?, room)
}

/// A reply for which the answer has room.
fn counted(reply: Reply, room: &Room) -> Result<Reply, Fault> {
    room.take(reply.bytes)?;
    Ok(reply)
}

/// The one value of a request for one environment; `None` when it is a list.
#[expect(
    clippy::option_option,
    reason = "no value and a list are different things"
)]
fn single<T>(value: Option<OneOrMany<T>>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(OneOrMany::One(value)) => Some(Some(value)),
        Some(OneOrMany::Many(_)) => None,
    }
}

/// A value for each member of a batch.
fn each<T>(
    name: &str,
    value: Option<OneOrMany<T>>,
    count: usize,
    spread: impl Fn(&T, usize) -> T,
) -> Result<Vec<Option<T>>, Fault> {
    match value {
        None => Ok(std::iter::repeat_with(|| None).take(count).collect()),
        Some(OneOrMany::One(value)) => Ok((0..count)
            .map(|place| Some(spread(&value, place)))
            .collect()),
        Some(OneOrMany::Many(values)) if values.len() == count => Ok(values),
        Some(OneOrMany::Many(values)) => {
            let given = values.len();
            Err(Fault::Invalid(format!(
                "`{name}` has {given} entries for {count} environments; write one for each"
            )))
        }
    }
}

pub(super) async fn step(State(app): Shared, body: Body) -> Response {
    let work = async {
        let StepBody {
            env_id,
            env_ids,
            action,
            actions,
            timeout_s,
            request_id,
        } = body::read(&app, body).await?;
        let manner = body::manner(timeout_s, request_id)?;
        let room = app.room()?;
        match (Which::of(&app, env_id, env_ids)?, action, actions) {
            (Which::One(id), Some(action), None) => {
                let reply = step_one(&app, &id, &action, manner, &room).await?;
                let told = json!({
                    "observation": reply.text,
                    "reward": reply.reward,
                    "terminated": reply.view.terminated,
                    "truncated": reply.view.truncated,
                    "info": info(&reply),
                });
                answer(room, &told)
            }
            (Which::Many(ids), None, Some(actions)) if actions.len() == ids.len() => {
                let steps = ids
                    .iter()
                    .zip(&actions)
                    .map(|(id, action)| step_one(&app, id, action, manner.clone(), &room));
                let replies = join_all(steps).await;
                let told = json!({
                    "observations": each_of(&replies, |reply| json!(reply.text)),
                    "rewards": each_of(&replies, |reply| json!(reply.reward)),
                    "terminations": each_of(&replies, |reply| json!(reply.view.terminated)),
                    "truncations": each_of(&replies, |reply| json!(reply.view.truncated)),
                    "infos": each_of(&replies, info),
                    "errors": errors(&replies),
                });
                answer(room, &told)
            }
            (Which::One(_), ..) => Err(Fault::Invalid("`env_id` goes with `action`".to_owned())),
            (Which::Many(ids), ..) => {
                let count = ids.len();
                Err(Fault::Invalid(format!(
                    "`env_ids` goes with `actions`, {count} of them here"
                )))
            }
        }
    };
    app.observe("gym_step", work).await
}

async fn step_one(
    app: &Arc<App>,
    id: &str,
    action: &RawValue,
    manner: Manner,
    room: &Room,
) -> Result<Reply, Fault> {
    let session = app.sessions.find(id)?;
    let turn = body::gym_action(action)?;
    counted(app.step(&session, turn, manner).await?, room)
}

/// A column of a batch's answer; null where a member failed.
fn each_of(replies: &[Result<Reply, Fault>], of: impl Fn(&Reply) -> Value) -> Vec<Value> {
    replies
        .iter()
        .map(|reply| reply.as_ref().map_or(Value::Null, &of))
        .collect()
}

/// What failed, for each member; null where nothing did.
fn errors(replies: &[Result<Reply, Fault>]) -> Vec<Value> {
    replies
        .iter()
        .map(|reply| reply.as_ref().map_or_else(Fault::data, |_| Value::Null))
        .collect()
}

pub(super) async fn close(State(app): Shared, body: Body) -> Response {
    let work = async {
        let CloseBody { env_id, env_ids } = body::read(&app, body).await?;
        let ids = Which::of(&app, env_id, env_ids)?.ids();
        let closed = ids.iter().filter(|id| app.close(id)).count();
        Ok(json_response(&json!({"closed": closed})))
    };
    app.observe("gym_close", work).await
}

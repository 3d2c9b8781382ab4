//! The routes of a NeMo-Gym resources server: `/seed_session` begins an episode and names it in a cookie, a route per tool
//! takes a turn, `/verify` takes the last message as the last turn and gives the reward (`aggregate` has the last route).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use forage_contracts::policy::Finish;
use forage_contracts::{Limit, Score};
use forage_net::{Refusal, Service};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::app::{App, Manner, Options};
use super::body::{self, Arguments};
use super::fault::{Fault, json_response};
use super::memory::{answer, answer_text};
use super::play::{Reply, Turn};
use super::session::Session;
use super::tools;

type Shared = State<Arc<App>>;
/// A row of a data set, of which little is read.
pub(super) type Row = BTreeMap<String, Box<RawValue>>;

/// The session's cookie.
const COOKIE: &str = "forage_session";

pub(super) async fn seed_session(State(app): Shared, body: Body) -> Response {
    let work = async {
        let row: Row = body::read(&app, body).await?;
        let room = app.room()?;
        let reply = app.begin(None, &options(&row)?).await?;
        let view = &reply.view;
        let told =
            json!({"episode_id": view.episode_id, "task_id": view.task_id, "prompt": reply.text});
        let mut response = answer(room, &told)?;
        name_session(&mut response, &view.episode_id);
        Ok(response)
    };
    app.observe("seed_session", work).await
}

/// Names the session in an answer.
fn name_session(response: &mut Response, id: &str) {
    let cookie = format!("{COOKIE}={id}; Path=/; HttpOnly");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
}

/// Names a request's session in its answer, refusals included: NeMo-Gym's agents send the cookies of the last answer they
/// had, whatever route it came from, and no older ones.
pub(super) async fn keep_session(request: Request, next: Next) -> Response {
    let id = cookie(request.headers());
    let mut response = next.run(request).await;
    if let Some(id) = id
        && !response.headers().contains_key(header::SET_COOKIE)
    {
        name_session(&mut response, &id);
    }
    response
}

/// Which question a row of a data set asks: the row's own fields, or those of its `verifier_metadata`. Its other fields are
/// for others.
fn options(row: &Row) -> Result<Options, Fault> {
    let known = ["seed", "task_id", "task_index", "member"];
    let inner = row.get("verifier_metadata");
    let inner: Row = inner
        .and_then(|inner| serde_json::from_str(inner.get()).ok())
        .unwrap_or_default();
    let fields: BTreeMap<&str, &RawValue> = known
        .into_iter()
        .filter_map(|name| Some((name, &**row.get(name).or_else(|| inner.get(name))?)))
        .collect();
    let fields = serde_json::to_vec(&fields).map_err(|error| Fault::Invalid(error.to_string()))?;
    body::parse(&fields)
}

pub(super) async fn tool(
    State(app): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let work = async {
        if !is_tool(&app, &name) {
            return Err(Refusal::NoRoute(format!("/{name}")).into());
        }
        let arguments: Arguments = body::read(&app, body).await?;
        let id = cookie(&headers).ok_or_else(|| {
            Fault::Invalid(format!(
                "no cookie `{COOKIE}`; POST /seed_session first and keep it"
            ))
        })?;
        let room = app.room()?;
        let session = app.sessions.find(&id)?;
        let turn = match tools::turn(&app, &name, &arguments) {
            Ok(turn) => turn,
            // For the model to read, as results are.
            Err(fault) => return Ok(json_response(&json!({"error": fault.words()}))),
        };
        let reply = app.step(&session, turn, Manner::default()).await?;
        answer(
            room,
            &json!({"result": shown(&reply), "done": reply.done()}),
        )
    };
    app.observe("tool", work).await
}

/// Refuses what is not a POST: a name is a route only where it is a tool's.
pub(super) async fn unposted(State(app): Shared, Path(name): Path<String>) -> Response {
    app.base.refuse(Fault::from(if is_tool(&app, &name) {
        Refusal::Method
    } else {
        Refusal::NoRoute(format!("/{name}"))
    }))
}

fn is_tool(app: &App, name: &str) -> bool {
    tools::all(app).iter().any(|tool| tool.name == name)
}

/// What a model reads of a tool's turn.
fn shown(reply: &Reply) -> &str {
    if reply.done() {
        "The episode is over."
    } else {
        &reply.text
    }
}

pub(super) async fn verify(State(app): Shared, headers: HeaderMap, body: Body) -> Response {
    let work = async {
        let mut row: Row = body::read(&app, body).await?;
        let response = row
            .get("response")
            .ok_or_else(|| Fault::Invalid("`response` is missing".to_owned()))?;
        let last = last_message(&items(response)?);
        let room = app.room()?;
        let score = verified(&app, cookie(&headers), &row, last).await?;
        let written = |fault: serde_json::Error| Fault::Invalid(fault.to_string());
        row.insert(
            "reward".to_owned(),
            to_raw_value(&score.total).map_err(written)?,
        );
        row.insert(
            "reward_components".to_owned(),
            to_raw_value(&score.parts).map_err(written)?,
        );
        answer_text(room, serde_json::to_string(&row).map_err(written)?)
    };
    app.observe("verify", work).await
}

/// The score of a session's episode, which the last message ends unless a tool has; without a session, of an episode whose
/// only turn is that message.
async fn verified(
    app: &Arc<App>,
    id: Option<String>,
    row: &Row,
    last: Option<String>,
) -> Result<Score, Fault> {
    let Some(id) = id else {
        let session = begun_for(app, row).await?;
        let score = ended(app, &session, last).await;
        // Nobody else knows of it.
        return score.inspect_err(|_| {
            app.close(&session.id);
        });
    };
    let session = match app.sessions.find(&id) {
        Ok(session) => session,
        Err(fault) => {
            let last = app.sessions.grave(&id).and_then(|grave| grave.last);
            return last
                .and_then(|last| last.reply.view.info.score)
                .ok_or(fault);
        }
    };
    ended(app, &session, last).await
}

/// The score of an episode that a message ends.
async fn ended(
    app: &Arc<App>,
    session: &Arc<Session>,
    last: Option<String>,
) -> Result<Score, Fault> {
    let mut reply = None;
    // Too long a message is the policy's doing, which is scored: it is not a turn, and the episode ends without one.
    let last = last.map(|text| as_last_turn(app, text));
    if let Some(text) = last.filter(|text| text.len() <= app.config.max_action_bytes) {
        let turn = Turn {
            text,
            finish: Some(Finish::Eos),
        };
        reply = Some(app.step(session, turn, Manner::default()).await?);
    }
    let over = match reply {
        Some(reply) if reply.done() => reply,
        // The model stopped without an end that the environment knows.
        _ => app.stop(session, Limit::Turns).await?,
    };
    Ok(over.view.info.score.unwrap_or_default())
}

/// An episode on the question of a row that came without a session.
async fn begun_for(app: &Arc<App>, row: &Row) -> Result<Arc<Session>, Fault> {
    let options = options(row)?;
    if options.task_id.is_none() && options.task_index.is_none() {
        let words = "the row has neither `task_id` nor `task_index`, and there is no session";
        return Err(Fault::Invalid(words.to_owned()));
    }
    let reply = app.begin(None, &options).await?;
    app.sessions.find(&reply.view.episode_id)
}

/// A message as the turn that ends an episode: as it is when it holds one of the environment's own endings, else as what the
/// environment's last tool would write.
fn as_last_turn(app: &App, text: String) -> String {
    let tools = app.served.factory.tools();
    let own = app
        .served
        .factory
        .spec()
        .stop
        .iter()
        .any(|stop| text.contains(stop.as_str()));
    match tools.last() {
        Some(tool) if !own => tool.turn(text.trim()).unwrap_or(text),
        _ => text,
    }
}

/// The items of a Responses object.
///
/// # Errors
/// [`Fault::Invalid`] for anything else: a score would blame the policy for it.
fn items(response: &RawValue) -> Result<Vec<Box<RawValue>>, Fault> {
    #[derive(Deserialize)]
    struct Responses {
        output: Vec<Box<RawValue>>,
    }
    let found: Option<Responses> = lenient(response);
    let words = "`response` must be a Responses object, with its items in a list `output`";
    let found = found.ok_or_else(|| Fault::Invalid(words.to_owned()))?;
    Ok(found.output)
}

/// The text of the last message among the items of a response; `None` without one, as when the model was cut off in a call.
fn last_message(items: &[Box<RawValue>]) -> Option<String> {
    #[derive(Deserialize)]
    struct Item {
        r#type: String,
        content: Option<Box<RawValue>>,
    }
    #[derive(Deserialize)]
    struct Part {
        text: String,
    }
    let mut items = items.iter().rev().filter_map(|item| lenient::<Item>(item));
    let content = items.find(|item| item.r#type == "message")?.content?;
    let text = lenient::<String>(&content).or_else(|| {
        let parts: Vec<Box<RawValue>> = lenient(&content)?;
        let texts = parts.iter().filter_map(|part| lenient::<Part>(part));
        Some(texts.map(|part| part.text).collect())
    })?;
    (!text.trim().is_empty()).then_some(text)
}

/// A value that has this type, or nothing.
pub(super) fn lenient<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    let pairs = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';'));
    pairs.find_map(|pair| {
        pair.trim()
            .strip_prefix(COOKIE)?
            .strip_prefix('=')
            .map(str::to_owned)
    })
}

//! OpenEnv's WebSocket: one session per connection, which ends with it.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use forage_net::{Refusal, Refuse};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::app::{App, Manner};
use super::body::{self, Action};
use super::fault::Fault;
use super::openenv::{self, ResetBody};
use super::session::{How, Session, Sessions};

pub(super) async fn upgrade(State(app): State<Arc<App>>, upgrade: WebSocketUpgrade) -> Response {
    let most = app.config.base.max_body_bytes;
    upgrade
        .max_message_size(most)
        .max_frame_size(most)
        .on_upgrade(move |socket| converse(app, socket))
}

/// An error message, and whether the connection ends with it.
fn error(fault: &Fault) -> Value {
    json!({"type": "error", "data": fault.data()})
}

/// A connection's life.
async fn converse(app: Arc<App>, mut socket: WebSocket) {
    let opened = if app.base.draining() {
        Err(Refusal::Stopped.into())
    } else {
        app.sessions.unlisted(&app.metrics, app.fresh_id(), true)
    };
    let session = match opened {
        Ok(session) => session,
        Err(fault) => {
            app.base.failed(fault.cause());
            let _ = socket.send(Message::text(error(&fault).to_string())).await;
            let _ = socket.send(Message::Close(None)).await;
            return;
        }
    };
    let how = answer_all(&app, &session, &mut socket).await;
    // Its place is free before the client can hear that the connection is closed.
    Sessions::count_closed(&app.metrics, how);
    drop(session);
    let _ = socket.send(Message::Close(None)).await;
}

/// Answers messages until the client closes, is idle for too long, or the server stops.
async fn answer_all(app: &Arc<App>, session: &Arc<Session>, socket: &mut WebSocket) -> How {
    loop {
        let left = app.sessions.ttl().saturating_sub(session.idle());
        let message = tokio::select! {
            message = tokio::time::timeout(left, socket.recv()) => message,
            () = app.base.given_up() => {
                let _ = socket.send(Message::text(error(&Refusal::Stopped.into()).to_string())).await;
                return How::Closed;
            }
        };
        let text = match message {
            Err(_) => {
                let why = "was closed because it was idle for too long".to_owned();
                let fault = Fault::Gone {
                    id: session.id.clone(),
                    why,
                };
                let _ = socket.send(Message::text(error(&fault).to_string())).await;
                return How::Expired;
            }
            Ok(None | Some(Err(_) | Ok(Message::Close(_)))) => return How::Closed,
            Ok(Some(Ok(Message::Text(text)))) => text.into(),
            Ok(Some(Ok(Message::Binary(bytes)))) => bytes,
            // Signs of life of the connection, not of the client.
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => continue,
        };
        session.touch();
        // A server that stops waits for the answer to be sent.
        let _flight = app.base.enter();
        let begin = Instant::now();
        let answered = answer(app, session, text).await;
        let (reply, status) = match answered {
            Ok(None) => return How::Closed,
            Ok(Some(reply)) => (reply, 200),
            Err(fault) => {
                app.base.failed(fault.cause());
                (error(&fault), fault.status().as_u16())
            }
        };
        app.base.answered("ws", status, begin.elapsed());
        session.touch();
        if socket.send(Message::text(reply.to_string())).await.is_err() {
            return How::Closed;
        }
    }
}

/// A message, read.
enum Said {
    Reset(ResetBody),
    Step(Action),
    State,
    Close,
}

impl Said {
    fn read(text: &[u8]) -> Result<Self, Fault> {
        #[derive(Deserialize)]
        struct Envelope<'a> {
            #[serde(rename = "type", default)]
            kind: String,
            #[serde(borrow)]
            data: Option<&'a RawValue>,
        }
        let Envelope { kind, data } = body::parse(text)?;
        match kind.as_str() {
            "reset" => Ok(Self::Reset(match data {
                Some(data) => body::parse_value(data)?,
                None => ResetBody::default(),
            })),
            "step" => {
                let missing = || Fault::Invalid("a step's `data` is the action".to_owned());
                Ok(Self::Step(Action::parse(data.ok_or_else(missing)?)?))
            }
            "state" => Ok(Self::State),
            "close" => Ok(Self::Close),
            _ => Err(Fault::UnknownType(kind)),
        }
    }
}

/// The answer to one message; `None` to a farewell.
async fn answer(
    app: &Arc<App>,
    session: &Arc<Session>,
    text: Bytes,
) -> Result<Option<Value>, Fault> {
    let observation = |data: Value| Some(json!({"type": "observation", "data": data}));
    match app.base.read(text, Said::read).await? {
        Said::Reset(asked) => {
            let options = asked.options();
            let reply = app
                .reset(session, app.ask(&options)?.named(asked.episode_id))
                .await?;
            Ok(observation(openenv::result(&reply)))
        }
        Said::Step(action) => Ok(observation(
            openenv::act(app, session, action, Manner::default()).await?,
        )),
        Said::State => Ok(Some(
            json!({"type": "state", "data": openenv::state_of(session)}),
        )),
        Said::Close => Ok(None),
    }
}

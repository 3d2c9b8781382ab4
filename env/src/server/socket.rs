//! OpenEnv's WebSocket: one session per connection, which ends with it.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, State};
use axum::response::Response;
use forage_net::{Messages, Refusal, Refuse, Room};
use futures::SinkExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::app::{App, Manner};
use super::body::{self, Action};
use super::fault::Fault;
use super::openenv::{self, ResetBody};
use super::session::{How, Session, Sessions};

/// Bytes read at a time: every connection keeps as many.
const READ_BYTES: usize = 16 * 1024;
/// Time for a client that is still sending to hear why it is not listened to.
const FAREWELL: Duration = Duration::from_secs(1);

pub(super) async fn upgrade(
    State(app): State<Arc<App>>,
    Extension(messages): Extension<Messages>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let most = Messages::most(app.config.base.max_body_bytes);
    upgrade
        .read_buffer_size(READ_BYTES)
        .max_message_size(most)
        .max_frame_size(most)
        .on_upgrade(move |socket| converse(app, messages, socket))
}

/// An error message.
fn error(fault: &Fault) -> Value {
    json!({"type": "error", "data": fault.data()})
}

/// A connection's life.
async fn converse(app: Arc<App>, messages: Messages, mut socket: WebSocket) {
    let opened = if app.base.draining() {
        Err(Refusal::Stopped.into())
    } else {
        app.sessions.unlisted(&app.metrics, app.fresh_id(), true)
    };
    let session = match opened {
        Ok(session) => session,
        Err(fault) => {
            app.base.failed(fault.cause());
            return part(&mut socket, vec![Message::text(error(&fault).to_string())]).await;
        }
    };
    let (how, refused) = match answer_all(&app, &session, &messages, &mut socket).await {
        Ok(how) => (how, None),
        Err(fault) => (How::Closed, Some(fault)),
    };
    // Its place is free before the client can hear that the connection is closed.
    Sessions::count_closed(&app.metrics, how);
    drop(session);
    match refused {
        None => part(&mut socket, Vec::new()).await,
        Some(fault) => dismiss(&app, &mut socket, &fault).await,
    }
}

/// Tells a client why what it sends is not listened to.
async fn dismiss(app: &App, socket: &mut WebSocket, fault: &Fault) {
    app.base.failed(fault.cause());
    app.base
        .answered("ws", fault.status().as_u16(), Duration::ZERO);
    let code = match fault {
        Fault::Any(Refusal::TooLarge { .. }) => close_code::SIZE,
        Fault::Any(Refusal::BodiesFull) => close_code::AGAIN,
        _ => close_code::POLICY,
    };
    let reason = fault.cause().into();
    let close = Message::Close(Some(CloseFrame { code, reason }));
    let last = vec![Message::text(error(fault).to_string()), close];
    part(socket, last).await;
}

/// Says the last of what is to be said, and closes the connection; where the client was first to close it, that is answered.
async fn part(socket: &mut WebSocket, last: Vec<Message>) {
    let told = async {
        for message in last {
            socket.send(message).await?;
        }
        socket.close().await?;
        // What arrives by now is thrown away. A connection that is closed over it is reset, and its client hears nothing.
        while socket.recv().await.is_some() {}
        Ok::<_, axum::Error>(())
    };
    drop(tokio::time::timeout(FAREWELL, told).await);
}

/// What arrives over a connection; `None` once it has ended.
type Heard = Option<Result<Message, axum::Error>>;

/// Does work and listens meanwhile, for a client that asks for signs of life closes a connection that gives none. What else it
/// says is kept for afterwards, one message at most.
async fn listening<T>(
    socket: &mut WebSocket,
    kept: &mut Vec<Heard>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = work.as_mut() => return done,
            heard = socket.recv(), if kept.is_empty() => {
                // A ping is answered when the connection is read on.
                if !matches!(heard, Some(Ok(Message::Ping(_) | Message::Pong(_)))) {
                    kept.push(heard);
                }
            }
        }
    }
}

/// Answers messages until the client closes, is idle for too long, or the server stops.
///
/// # Errors
/// For a message that cannot be received.
async fn answer_all(
    app: &Arc<App>,
    session: &Arc<Session>,
    messages: &Messages,
    socket: &mut WebSocket,
) -> Result<How, Fault> {
    let limit = app.config.base.max_body_bytes;
    let mut kept = Vec::new();
    loop {
        let left = app.sessions.ttl().saturating_sub(session.idle());
        let message = if let Some(heard) = kept.pop() {
            Ok(heard)
        } else {
            tokio::select! {
                message = tokio::time::timeout(left, socket.recv()) => message,
                refusal = messages.refused() => return Err(refusal.into()),
                () = app.base.given_up() => {
                    let _ = socket.send(Message::text(error(&Refusal::Stopped.into()).to_string())).await;
                    return Ok(How::Closed);
                }
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
                return Ok(How::Expired);
            }
            Ok(Some(Err(error))) if !messages.ended() => {
                let what = format!("the message cannot be read: {error}");
                return Err(Fault::Invalid(what));
            }
            Ok(None | Some(Err(_) | Ok(Message::Close(_)))) => return Ok(How::Closed),
            Ok(Some(Ok(Message::Text(text)))) => text.into(),
            Ok(Some(Ok(Message::Binary(bytes)))) => bytes,
            // Signs of life of the connection, not of the client.
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => continue,
        };
        session.touch();
        // A server that stops waits for the answer to be sent.
        let _flight = app.base.enter();
        let begin = Instant::now();
        let said: Result<Option<Said>, Fault> = if text.len() > limit {
            Err(Refusal::TooLarge { limit }.into())
        } else {
            app.base.read(text, Said::read).await
        };
        // What is left of it counts with its session, and the next message may arrive.
        messages.taken();
        let answered = match said {
            Ok(None) => return Ok(How::Closed),
            Ok(Some(said)) => listening(socket, &mut kept, answer(app, session, said)).await,
            Err(fault) => Err(fault),
        };
        // The memory of the reply counts until it is sent.
        let (reply, status, _room) = match answered {
            Ok((reply, room)) => (reply, 200, Some(room)),
            Err(fault) => {
                app.base.failed(fault.cause());
                (error(&fault).to_string(), fault.status().as_u16(), None)
            }
        };
        app.base.answered("ws", status, begin.elapsed());
        session.touch();
        if socket.send(Message::text(reply)).await.is_err() {
            return Ok(How::Closed);
        }
    }
}

/// A message, read.
enum Said {
    Reset(ResetBody),
    Step(Action),
    State,
}

impl Said {
    /// The request in a message; `None` when the message says goodbye.
    fn read(text: &[u8]) -> Result<Option<Self>, Fault> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Envelope<'a> {
            #[serde(rename = "type", default)]
            kind: String,
            #[serde(borrow)]
            data: Option<&'a RawValue>,
        }
        let Envelope { kind, data } = body::parse(text)?;
        Ok(Some(match kind.as_str() {
            "reset" => Self::Reset(match data {
                Some(data) => body::parse_value(data)?,
                None => ResetBody::default(),
            }),
            "step" => {
                let missing = || Fault::Invalid("a step's `data` is the action".to_owned());
                Self::Step(Action::parse(data.ok_or_else(missing)?)?)
            }
            "state" => Self::State,
            "close" => return Ok(None),
            _ => return Err(Fault::UnknownType(kind)),
        }))
    }
}

/// The answer to one message, and its memory.
async fn answer(
    app: &Arc<App>,
    session: &Arc<Session>,
    said: Said,
) -> Result<(String, Arc<Room>), Fault> {
    let room = app.room()?;
    let observation = |data: Value| json!({"type": "observation", "data": data});
    let reply = match said {
        Said::Reset(asked) => {
            let options = asked.options();
            let reply = app
                .reset(session, app.ask(&options)?.named(asked.episode_id))
                .await?;
            observation(openenv::result(&reply))
        }
        Said::Step(action) => {
            observation(openenv::act(app, session, action, Manner::default()).await?)
        }
        Said::State => json!({"type": "state", "data": openenv::state_of(session)}),
    };
    let reply = reply.to_string();
    room.settle(reply.len())?;
    Ok((reply, room))
}

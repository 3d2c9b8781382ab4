//! The environment's actions as tools of the Model Context Protocol: `new_question` begins an episode, every other call is a
//! turn of it.
//!
//! Within an MCP session calls mean the session's own episode, which ends with it. Clients of protocol versions without
//! sessions name the episode in each call, by the `episode_id` that `new_question` gave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use forage_net::{Refuse, Room, count_values};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    InitializeRequestParams, InitializeResult, JsonObject, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::app::{App, Manner, Options};
use super::body::{self, Arguments};
use super::fault::Fault;
use super::play::Reply;
use super::tools;

/// Begins an episode.
const NEW: &str = "new_question";
/// Names an episode in a call.
const EPISODE: &str = "episode_id";

/// Most JSON values in a message: the transport makes a tree of it, and keeps a part of that as long as a call takes.
const MAX_VALUES: usize = 20_000;
/// Most bytes of an `initialize` request: the transport keeps a tree of its parameters as long as the session.
const INITIALIZE_BYTES: usize = 16 * 1024;
/// Most JSON values of an `initialize` request.
const INITIALIZE_VALUES: usize = 500;

/// The service at `/mcp`.
pub(super) type Service = StreamableHttpService<Handler, LocalSessionManager>;

/// The sessions of the transport, which are counted.
pub(super) type Manager = Arc<LocalSessionManager>;

/// The service and its sessions, which end when the server gives up its work.
pub(super) fn service(app: &Arc<App>) -> (Service, Manager) {
    let mut manager = LocalSessionManager::default();
    // The transport takes the time of a call, in which its session says nothing, for idleness.
    let idle = app.sessions.ttl().saturating_add(app.config.step_timeout);
    manager.session_config.keep_alive = Some(idle);
    let manager = Arc::new(manager);
    // Which hosts are answered is decided for all routes together.
    let config = StreamableHttpServerConfig::default()
        .with_max_request_body_bytes(app.config.base.max_body_bytes)
        .with_json_response(true)
        .disable_allowed_hosts();
    let (base, end) = (Arc::clone(&app.base), config.cancellation_token.clone());
    tokio::spawn(async move {
        base.given_up().await;
        end.cancel();
    });
    let app = Arc::clone(app);
    let make = move || {
        Ok(Handler {
            app: Arc::clone(&app),
            bound: AtomicBool::new(false),
            current: Mutex::default(),
        })
    };
    (
        StreamableHttpService::new(make, Arc::clone(&manager), config),
        manager,
    )
}

/// Bounds what the transport takes: bodies, answers, and its sessions to as many as there may be episodes.
pub(super) async fn limit(
    State((app, manager)): State<(Arc<App>, Manager)>,
    request: Request,
    next: Next,
) -> Response {
    // A server that stops waits for answers, not for the stream on which a client listens.
    let _flight = (request.method() == Method::POST).then(|| app.base.enter());
    let begin = std::time::Instant::now();
    let ends = request.method() == Method::DELETE;
    let received = received(&app, &manager, request);
    let received = app.base.unless_given_up(received).await;
    let mut response = match received {
        Ok((request, room)) => room.keep(next.run(request).await),
        Err(fault) => app.base.refuse(fault),
    };
    if ends && response.status() == StatusCode::ACCEPTED {
        // A session that was ended is gone, not pending: the reference client takes 202 for a failure.
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    app.base
        .answered("mcp", response.status().as_u16(), begin.elapsed());
    response
}

/// The request with its whole body, received within the bounds of every other and of the values in it, and the memory for its
/// answer, which handlers find among its extensions. One that begins a session is refused beyond the most of them.
async fn received(
    app: &App,
    manager: &Manager,
    request: Request,
) -> Result<(Request, Arc<Room>), Fault> {
    let (mut head, body) = request.into_parts();
    let body = app.base.receive(body).await?;
    let values = count_values(&body);
    if values > MAX_VALUES {
        let what =
            format!("about {values} JSON values in a message, at most {MAX_VALUES} are read");
        return Err(Fault::Invalid(what));
    }
    let is_large = body.len() > INITIALIZE_BYTES || values > INITIALIZE_VALUES;
    let is_initialize = |method: Option<String>| method.as_deref() == Some("initialize");
    if is_large && is_initialize(method(&body)?) {
        let length = body.len();
        let what = format!(
            "an `initialize` request of {length} bytes and about {values} JSON values; it may have {INITIALIZE_BYTES} bytes and {INITIALIZE_VALUES} values"
        );
        return Err(Fault::Invalid(what));
    }
    let is_outside = head.method == Method::POST && !head.headers.contains_key("mcp-session-id");
    // What cannot be read here may be one for the transport.
    let begins = is_outside
        && match method(&body) {
            Ok(method) => is_initialize(method),
            Err(_) => true,
        };
    let max = app.sessions.max();
    if begins && manager.sessions.read().await.len() >= max {
        return Err(Fault::Full { active: max, max });
    }
    let room = if head.method == Method::POST {
        app.room()?
    } else {
        // On the stream of a client that listens no call is answered.
        app.answers.beside()
    };
    head.extensions.insert(Arc::clone(&room));
    Ok((Request::from_parts(head, Body::from(body)), room))
}

/// The method that a message names.
fn method(message: &[u8]) -> Result<Option<String>, Fault> {
    /// Two methods are refused: which one the transport takes is not known here.
    #[derive(Deserialize)]
    struct Named {
        method: Option<String>,
    }
    Ok(body::parse::<Named>(message)?.method)
}

/// The memory for the answer to a call.
fn room_of(context: &RequestContext<RoleServer>) -> Option<Arc<Room>> {
    let head = context.extensions.get::<Parts>()?;
    head.extensions.get::<Arc<Room>>().cloned()
}

/// One MCP session, or one request where there are none.
pub(super) struct Handler {
    app: Arc<App>,
    /// Whether a session stands behind it, whose end is its end.
    bound: AtomicBool,
    /// The episode that calls mean.
    current: Mutex<Option<String>>,
}

impl Drop for Handler {
    fn drop(&mut self) {
        let current = self
            .current
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(id) = current.filter(|_| self.bound.load(Ordering::SeqCst)) {
            self.app.close(&id);
        }
    }
}

impl Handler {
    /// Begins an episode; the one before is closed, and so is one that was begun at the same time.
    async fn begin(&self, arguments: Map<String, Value>) -> Result<Reply, Fault> {
        let arguments = Value::Object(arguments).to_string();
        let options: Options = body::parse(arguments.as_bytes())?;
        let asked = self.app.ask(&options)?;
        if let Some(before) = self.current().take() {
            self.app.close(&before);
        }
        let reply = self.app.begin_asked(None, asked).await?;
        let other = self.current().replace(reply.view.episode_id.clone());
        if let Some(other) = other {
            self.app.close(&other);
        }
        Ok(reply)
    }

    fn current(&self) -> MutexGuard<'_, Option<String>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn act(&self, name: &str, mut arguments: Map<String, Value>) -> Result<Reply, Fault> {
        let named = match arguments.remove(EPISODE) {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) => Some(id),
            Some(_) => return Err(Fault::Invalid(format!("`{EPISODE}` must be a string"))),
        };
        let arguments: Arguments = serde_json::from_value(Value::Object(arguments))
            .map_err(|error| Fault::Invalid(error.to_string()))?;
        let turn = tools::turn(&self.app, name, &arguments)
            .map_err(|fault| Fault::Invalid(fault.words().to_owned()))?;
        let id = named.or_else(|| self.current().clone()).ok_or_else(|| {
            Fault::Invalid(if self.bound.load(Ordering::SeqCst) {
                format!("no episode was begun; call {NEW} first, or give its `{EPISODE}`")
            } else {
                format!("no episode is named; give the `{EPISODE}` that {NEW} answers with, for there is no session")
            })
        })?;
        let session = self.app.sessions.find(&id)?;
        self.app.step(&session, turn, Manner::default()).await
    }
}

/// What the model reads of a call, and what a program does. In a session the episode goes without saying.
fn result(reply: &Reply, is_new: bool, in_session: bool) -> CallToolResult {
    let text = if is_new && in_session {
        format!("Question: {}", reply.view.question)
    } else if is_new {
        format!(
            "Question: {}\nGive {EPISODE} \"{}\" with each call.",
            reply.view.question, reply.view.episode_id
        )
    } else if reply.done() {
        let parts = reply.view.info.score.iter().flat_map(|score| &score.parts);
        let parts: Vec<String> = parts
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        format!(
            "The episode is over. Reward: {} ({})",
            reply.reward.unwrap_or_default(),
            parts.join(", ")
        )
    } else {
        reply.text.clone()
    };
    let mut structured = super::openenv::result(reply);
    structured[EPISODE] = reply.view.episode_id.clone().into();
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(structured);
    result
}

/// A refusal or a fault, for the model to read.
fn failure(fault: &Fault) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(fault.words())]);
    result.structured_content = Some(fault.data());
    result
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

fn listed(app: &App) -> Vec<Tool> {
    let choice = json!({
        "type": "object",
        "properties": {
            "task_id": {"type": "string"},
            "task_index": {"type": "integer", "minimum": 0},
            "seed": {"type": "integer", "minimum": 0},
            "member": {"type": "integer", "minimum": 0},
        },
    });
    let about =
        "Begins an episode and returns its question: the next one, or the one that is named.";
    let mut list = vec![Tool::new(NEW, about, object(choice))];
    for tool in tools::all(app) {
        let mut schema = tool.schema();
        schema["properties"][EPISODE] =
            json!({"type": "string", "description": "which episode; the session's own by default"});
        list.push(Tool::new(tool.name, tool.about, object(schema)));
    }
    list
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let spec = self.app.served.factory.spec();
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(
                spec.id.clone(),
                env!("CARGO_PKG_VERSION"),
            ))
            .with_instructions(format!(
                "Call {NEW}, then the other tools until the episode is over; at most {} calls.",
                spec.max_turns
            ))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        self.bound.store(true, Ordering::SeqCst);
        let answer = self.negotiate_initialize(&request);
        context.peer.set_peer_info(request);
        answer
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(listed(&self.app)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let room = room_of(&context);
        let arguments = request.arguments.unwrap_or_default();
        let is_new = request.name == NEW;
        let done = if is_new {
            self.begin(arguments).await
        } else {
            self.act(&request.name, arguments).await
        };
        let done = done.and_then(|reply| {
            if let Some(room) = &room {
                // The text is there twice: for the model to read, and for programs.
                room.settle(reply.bytes.saturating_mul(2))?;
            }
            Ok(result(&reply, is_new, self.bound.load(Ordering::SeqCst)))
        });
        let result = done.unwrap_or_else(|fault| {
            self.app.base.failed(fault.cause());
            failure(&fault)
        });
        Ok(result.into())
    }
}

//! Routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header;
use axum::middleware;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::App;
use super::fault::{Fault, json_response};
use super::memory::answer;
use super::{aggregate, body, gym, mcp, nemo, openenv, socket, tools};

const PAGE: &str = include_str!("page.html");
/// The page needs nothing but itself.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

type Shared = State<Arc<App>>;

/// Tasks listed in one answer, at most.
const TASKS: usize = 1000;

pub(super) fn router(app: &Arc<App>) -> Router {
    let (service, manager) = mcp::service(app);
    let tools = Router::new()
        .route_service("/mcp", service)
        .layer(middleware::from_fn_with_state(
            (Arc::clone(app), manager),
            mcp::limit,
        ));
    let guarded = Router::new()
        .route("/reset", post(openenv::reset))
        .route("/step", post(openenv::step))
        .route("/state", get(openenv::state))
        .route("/close", post(openenv::close))
        .route("/schema", get(openenv::schema))
        .route("/metadata", get(openenv::metadata))
        .route("/ws", get(socket::upgrade))
        .route("/gym/make", post(gym::make))
        .route("/gym/reset", post(gym::reset))
        .route("/gym/step", post(gym::step))
        .route("/gym/close", post(gym::close))
        .route("/seed_session", post(nemo::seed_session))
        .route("/verify", post(nemo::verify))
        .route("/aggregate_metrics", post(aggregate::aggregate_metrics))
        .route("/{tool}", post(nemo::tool).fallback(nemo::unposted))
        .route("/info", get(info))
        .route("/tasks", get(tasks))
        .layer(middleware::from_fn(nemo::keep_session))
        .merge(tools);
    forage_net::router(app, guarded, Router::new().route("/", get(page)))
}

/// A page that tells who opens its address in a browser what the server is for and how it is spoken to.
async fn page() -> Response {
    ([(header::CONTENT_SECURITY_POLICY, PAGE_POLICY)], Html(PAGE)).into_response()
}

async fn info(State(app): Shared) -> Response {
    let config = &app.config;
    json_response(&json!({
        "name": "forage",
        "version": env!("CARGO_PKG_VERSION"),
        "spec": app.served.factory.spec(),
        "tasks": app.tasks.all().len(),
        "tools": tools::listed(&app),
        "limits": {
            "sessions": config.max_sessions,
            "session_ttl_s": config.session_ttl.as_secs_f64(),
            "body_bytes": config.base.max_body_bytes,
            "action_bytes": config.max_action_bytes,
            "answer_bytes": config.max_answer_bytes,
            "step_timeout_s": config.step_timeout.as_secs_f64(),
        },
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
}

/// The tasks, without their answers.
async fn tasks(State(app): Shared, page: Result<Query<Page>, QueryRejection>) -> Response {
    let listed = body::query(page).and_then(|page| listed(&app, &page));
    listed.unwrap_or_else(|fault| app.base.refuse(fault))
}

fn listed(app: &App, page: &Page) -> Result<Response, Fault> {
    let room = app.room()?;
    let all = app.tasks.all();
    let limit = page.limit.unwrap_or(TASKS).min(TASKS);
    let mut tasks: Vec<Value> = Vec::new();
    for (index, task) in all.iter().enumerate().skip(page.offset).take(limit) {
        room.take(task.question.len())?;
        tasks.push(json!({
            "task_index": index, "task_id": app.tasks.called(task), "question": task.question,
            "data_source": task.data_source, "split": task.split,
        }));
    }
    answer(room, &json!({"total": all.len(), "tasks": tasks}))
}

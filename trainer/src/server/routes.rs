//! Routes.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use forage_retriever::server::shell;
use serde_json::{Value, json};

use super::app::App;
use super::chat;
use super::completions;
use super::fault::{self, Fault};

type Shared = State<Arc<App>>;

pub(super) fn router(app: &Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/v1/completions", post(complete))
        .route("/v1/chat/completions", post(converse))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/metrics", get(metrics));
    shell::guarded(guarded, app.config.token.as_deref(), || Fault::Unauthorized.into_response())
        .route("/healthz", get(alive))
        .route("/health", get(alive))
        .route("/readyz", get(ready))
        .fallback(|request: Request| async move { Fault::NoRoute(request.uri().path().to_owned()) })
        .method_not_allowed_fallback(|| async { Fault::MethodNotAllowed })
        .with_state(app.clone())
}

async fn complete(State(app): Shared, headers: HeaderMap, body: Body) -> Response {
    let work = async {
        let (place, job) = app.admitted(&headers, body, completions::prepare).await?;
        completions::answer(&app, place, job).await
    };
    app.observe("completions", work).await
}

async fn converse(State(app): Shared, headers: HeaderMap, body: Body) -> Response {
    let work = async {
        let (place, job) = app.admitted(&headers, body, chat::prepare).await?;
        chat::answer(&app, place, job).await
    };
    app.observe("chat", work).await
}

fn description(app: &App) -> Value {
    json!({
        "id": app.model.name,
        "object": "model",
        "created": app.started,
        "owned_by": "forage",
        "max_model_len": app.model.context,
    })
}

async fn models(State(app): Shared) -> Response {
    fault::json(json!({"object": "list", "data": [description(&app)]}).to_string())
}

async fn model(State(app): Shared, Path(id): Path<String>) -> Response {
    if id == app.model.name {
        return fault::json(description(&app).to_string());
    }
    Fault::UnknownModel { asked: id, served: app.model.name.clone() }.into_response()
}

async fn metrics(State(app): Shared) -> Response {
    app.metrics.exposition()
}

async fn alive() -> Response {
    fault::json(r#"{"status":"ok"}"#)
}

async fn ready(State(app): Shared) -> Response {
    if app.flights.draining() || !app.model.engine.is_alive() {
        return Fault::Stopped.into_response();
    }
    fault::json(r#"{"status":"ready"}"#)
}

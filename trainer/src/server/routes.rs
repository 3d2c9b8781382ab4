//! Routes.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::app::App;
use super::chat;
use super::completions;
use super::fault::Fault;

type Shared = State<Arc<App>>;

pub(super) fn router(app: &Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/v1/completions", post(complete))
        .route("/v1/chat/completions", post(converse))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model));
    forage_net::router(app, guarded, Router::new())
}

async fn complete(State(app): Shared, body: Body) -> Response {
    let work = async {
        let (place, body) = app.base.admitted(body).await?;
        app.in_time(async {
            let (place, job) = app.prepared(place, body, completions::prepare).await?;
            completions::answer(&app, place, job).await
        })
        .await
    };
    app.answer("completions", work).await
}

async fn converse(State(app): Shared, body: Body) -> Response {
    let work = async {
        let (place, body) = app.base.admitted(body).await?;
        app.in_time(async {
            let (place, job) = app.prepared(place, body, chat::prepare).await?;
            chat::answer(&app, place, job).await
        })
        .await
    };
    app.answer("chat", work).await
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
    forage_net::json(json!({"object": "list", "data": [description(&app)]}).to_string())
}

async fn model(State(app): Shared, Path(id): Path<String>) -> Response {
    if id == app.model.name {
        return forage_net::json(description(&app).to_string());
    }
    app.base.refuse(Fault::UnknownModel {
        asked: id,
        served: app.model.name.clone(),
    })
}

//! Routes.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use forage_contracts::retriever::RetrieverError;
use forage_net::{Service, json};

use super::answer;
use super::app::App;
use super::fault::Fault;
use super::plan;
use super::request::{Limits, Problem, RerankRequest, RetrieveRequest, parse_statistics};

const PAGE: &str = include_str!("page.html");
/// The page needs nothing but itself and this server, so nothing else is allowed, whatever a passage may contain.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

type Shared = State<Arc<App>>;

pub(super) fn router(app: &Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/retrieve", post(retrieve))
        .route("/search", post(search))
        .route("/batch_search", post(batch_search))
        .route("/rerank", post(rerank))
        .route("/statistics", post(statistics))
        .route("/doc/{*id}", get(document))
        .route("/info", get(info));
    forage_net::router(app, guarded, Router::new().route("/", get(page)))
}

async fn retrieve(State(app): Shared, body: Body) -> Response {
    let work = async {
        let (ticket, body) = app.base.admitted(body).await?;
        in_time(&app, async {
            let request = parsed(&app, body, RetrieveRequest::parse).await?;
            plan::retrieve(&app, &ticket, request).await
        })
        .await
    };
    app.observe("retrieve", work).await
}

async fn search(State(app): Shared, body: Body) -> Response {
    app.observe("search", flashrag(&app, body, false)).await
}

async fn batch_search(State(app): Shared, body: Body) -> Response {
    app.observe("batch_search", flashrag(&app, body, true))
        .await
}

async fn flashrag(app: &Arc<App>, body: Body, batch: bool) -> Result<Response, Fault> {
    let (ticket, body) = app.base.admitted(body).await?;
    in_time(app, async {
        let parse = move |body: &[u8], limits: &Limits| {
            RetrieveRequest::parse_flashrag(body, limits, batch)
        };
        let request = parsed(app, body, parse).await?;
        if !batch
            && request
                .queries
                .iter()
                .any(|query| query.text.trim().is_empty())
        {
            return Err(Fault::BlankQuery);
        }
        plan::retrieve(app, &ticket, request).await
    })
    .await
}

async fn rerank(State(app): Shared, body: Body) -> Response {
    let work = async {
        let (ticket, body) = app.base.admitted(body).await?;
        in_time(&app, async {
            let request = parsed(&app, body, RerankRequest::parse).await?;
            plan::rerank_documents(&app, &ticket, request).await
        })
        .await
    };
    app.observe("rerank", work).await
}

async fn statistics(State(app): Shared, body: Body) -> Response {
    let work = async {
        let (ticket, body) = app.base.admitted(body).await?;
        in_time(&app, async {
            let texts = parsed(&app, body, parse_statistics).await?;
            plan::statistics(&app, &ticket, texts).await
        })
        .await
    };
    app.observe("statistics", work).await
}

async fn document(State(app): Shared, Path(id): Path<String>) -> Response {
    let work = async {
        let missing = || Fault::NotFound(format!("no passage has the id `{id}`"));
        let bm25 = app.services.bm25.clone().ok_or_else(missing)?;
        let ticket = app.base.admit()?;
        let wanted = id.clone();
        let room = app.room.beside();
        let taken = Arc::clone(&room);
        let job = async move {
            let index = bm25.index();
            let Some(ordinal) = index.ordinal_of(&wanted).map_err(RetrieverError::from)? else {
                return Ok(None);
            };
            let found = index.document(ordinal).map_err(RetrieverError::from)?;
            let mut out = vec![b'{'];
            answer::document(
                &mut out,
                answer::Document {
                    id: found.id,
                    title: found.title,
                    text: found.text,
                },
            );
            out.push(b'}');
            taken.take(out.len())?;
            Ok::<_, Fault>(Some(out))
        };
        let found = in_time(&app, app.pool.run(&ticket, job)).await??;
        let found = found.ok_or_else(missing)?;
        Ok(room.answer(vec![found.into()]))
    };
    app.observe("doc", work).await
}

async fn parsed<T: Send + 'static>(
    app: &Arc<App>,
    body: Bytes,
    parse: impl FnOnce(&[u8], &Limits) -> Result<T, Vec<Problem>> + Send + 'static,
) -> Result<T, Fault> {
    let limits = app.limits;
    let parse = move |body: &[u8]| parse(body, &limits).map_err(Fault::from);
    app.base.read(body, parse).await
}

async fn in_time<T>(app: &App, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    tokio::time::timeout(app.config.deadline, work)
        .await
        .map_err(|_| Fault::Late)?
}

async fn info(State(app): Shared) -> Response {
    json(app.info.clone())
}

async fn page() -> Response {
    let headers = [
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(PAGE_POLICY),
        ),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        ),
    ];
    (headers, Html(PAGE)).into_response()
}

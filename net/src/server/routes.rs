//! The routes that every server has, and the token before the others.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::prelude::{BASE64_STANDARD, Engine};
use tower_http::trace::TraceLayer;
use tower_http::validate_request::ValidateRequestHeaderLayer;
use tracing::Span;

use super::base::Base;
use super::refusal::{Refusal, Refuse, json};

/// A server.
pub trait Service: Send + Sync + 'static {
    /// The form of its refusals.
    type Fault: Refuse;
    /// The answer to `GET /healthz`.
    const HEALTH: &'static str = r#"{"status":"ok"}"#;

    /// The description of its routes in `OpenAPI`'s form, the answer to `GET /openapi.json`.
    const OPENAPI: Option<&'static str> = None;

    /// The part that all servers share.
    fn base(&self) -> &Arc<Base>;

    /// Returns true while it can answer; readiness also needs that it does not stop.
    fn ready(&self) -> bool {
        true
    }

    /// Ends work in flight beyond what [`Base::given_up`] tells.
    fn give_up(&self) {}

    /// Answers a request, counted and measured, also when its client goes away before the end.
    fn observe(
        &self,
        route: &'static str,
        work: impl Future<Output = Result<Response, Self::Fault>> + Send,
    ) -> impl Future<Output = Response> + Send {
        self.base().observe(route, work)
    }
}

/// The routes of a server: those of `guarded` and `/metrics` for requests that carry the token, those of `open`, `/healthz`,
/// `/health` and `/readyz` for all.
///
/// The token comes as `Authorization: Bearer TOKEN`, as `x-api-key: TOKEN` like other search servers want it, or as the
/// password of `Authorization: Basic`, for clients that take only `http://user:TOKEN@host`; where a request has both headers,
/// it is in one of them. Without a token in the configuration all requests pass.
pub fn router<S: Service>(app: &Arc<S>, guarded: Router<Arc<S>>, open: Router<Arc<S>>) -> Router {
    let mut guarded = guarded.route("/metrics", get(metrics::<S>));
    if let Some(description) = S::OPENAPI {
        guarded = guarded.route(
            "/openapi.json",
            get(move || async move { json(description) }),
        );
    }
    guard(guarded, app)
        .merge(open)
        .route("/healthz", get(health::<S>))
        .route("/health", get(health::<S>))
        .route("/readyz", get(ready::<S>))
        .fallback(|State(app): State<Arc<S>>, request: Request| async move {
            refuse(&app, Refusal::NoRoute(request.uri().path().to_owned()))
        })
        .method_not_allowed_fallback(|State(app): State<Arc<S>>| async move {
            refuse(&app, Refusal::Method)
        })
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(|request: &Request| {
                    let (method, path) = (request.method(), request.uri().path());
                    tracing::debug_span!("request", %method, path)
                })
                .on_request(())
                .on_response(|response: &Response, took: Duration, _: &Span| {
                    let (status, ms) = (response.status().as_u16(), took.as_secs_f64() * 1e3);
                    tracing::debug!(status, ms, "answered");
                })
                .on_failure(()),
        )
        .with_state(Arc::clone(app))
}

#[expect(
    clippy::result_large_err,
    reason = "the layer takes the refusal as it is sent"
)]
fn guard<S: Service>(router: Router<Arc<S>>, app: &Arc<S>) -> Router<Arc<S>> {
    let Some(token) = &app.base().config.token else {
        return router;
    };
    // Digests are compared, so that the time taken says nothing about the token.
    let expected = blake3::hash(token.as_bytes());
    let app = Arc::clone(app);
    let check = move |request: &mut Request| {
        let mut given = carried(request.headers());
        if given.any(|given| blake3::hash(&given) == expected) {
            Ok(())
        } else {
            Err(refuse(&app, Refusal::Unauthorized))
        }
    };
    router.layer(ValidateRequestHeaderLayer::custom(check))
}

/// A refusal that no route makes, counted.
fn refuse<S: Service>(app: &Arc<S>, refusal: Refusal) -> Response {
    app.base().refuse(S::Fault::from(refusal))
}

/// What a request carries that may be the token: what is in one header may be meant for a proxy on the way.
fn carried(headers: &HeaderMap) -> impl Iterator<Item = Vec<u8>> {
    let authorization = headers.get(header::AUTHORIZATION);
    let key = headers.get("x-api-key");
    let authorized = authorization.and_then(|value| authorized(value.as_bytes()));
    authorized
        .into_iter()
        .chain(key.map(|key| key.as_bytes().to_vec()))
}

/// The token in an `Authorization` header, whose scheme may be written in any case.
fn authorized(value: &[u8]) -> Option<Vec<u8>> {
    let space = value.iter().position(|&byte| byte == b' ')?;
    let (scheme, rest) = (&value[..space], value[space..].trim_ascii_start());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(rest.to_vec());
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = BASE64_STANDARD.decode(rest).ok()?;
    let colon = pair.iter().position(|&byte| byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

async fn health<S: Service>() -> Response {
    json(S::HEALTH)
}

async fn ready<S: Service>(State(app): State<Arc<S>>) -> Response {
    if app.base().draining() || !app.ready() {
        return S::Fault::from(Refusal::Stopped).into_response();
    }
    json(r#"{"status":"ready"}"#)
}

async fn metrics<S: Service>(State(app): State<Arc<S>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.base().exposition()).into_response()
}

//! What all requests share.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use forage_env::seed::Seed;
use forage_retriever::server::shell::{Flights, receive};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::fault::{Fault, json};
use super::metrics::Metrics;
use super::request::Common;
use super::{Model, ServerConfig};

/// A place among the admitted requests.
pub(super) type Place = OwnedSemaphorePermit;

/// An answer without a fault so far.
pub(super) enum Answer {
    /// A JSON object.
    Whole(Vec<u8>),
    /// Server-sent events, ended by a fault at most.
    Stream(BoxStream<'static, Result<Bytes, Fault>>),
}

#[derive(Debug)]
pub(super) struct App {
    pub(super) config: ServerConfig,
    pub(super) model: Model,
    pub(super) metrics: Metrics,
    pub(super) flights: Arc<Flights>,
    /// Seconds since 1970 at which the server started.
    pub(super) started: u64,
    places: Arc<Semaphore>,
    /// Whether requests in flight must end now.
    gave_up: watch::Sender<bool>,
    /// Differs from process to process.
    seed: Seed,
    numbers: AtomicU64,
}

impl App {
    pub(super) fn new(config: ServerConfig, model: Model) -> Self {
        let metrics = Metrics::new(Arc::clone(&model.engine));
        let flights = Arc::new(Flights::new(metrics.traffic.in_flight(), metrics.traffic.cancelled()));
        Self {
            flights,
            metrics,
            started: now(),
            places: Arc::new(Semaphore::new(config.queue)),
            gave_up: watch::Sender::new(false),
            seed: Seed::root(RandomState::new().hash_one(now())),
            numbers: AtomicU64::new(0),
            config,
            model,
        }
    }

    /// A number no other request of this process has.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// A seed nobody chose.
    pub(super) fn fresh_seed(&self) -> Seed {
        self.seed.child("request", &[self.number()])
    }

    /// A name for an answer or a call: `prefix` and 24 hexadecimal digits.
    pub(super) fn name(&self, prefix: &str) -> String {
        let seed = self.seed.child("name", &[self.number()]);
        format!("{prefix}{:016x}{:08x}", seed.0, seed.child("tail", &[]).0 as u32)
    }

    /// Refuses another model's name and more completions than a request may ask for.
    pub(super) fn check(&self, common: &Common, prompts: usize) -> Result<(), Fault> {
        let served = &self.model.name;
        if let Some(asked) = common.model.as_ref().filter(|asked| *asked != served) {
            return Err(Fault::UnknownModel { asked: asked.clone(), served: served.clone() });
        }
        let (asked, most) = (prompts.saturating_mul(common.n), self.config.max_choices);
        if asked > most {
            let message = format!("{asked} completions asked for, at most {most} go into one request; split it");
            return Err(Fault::invalid("n", message));
        }
        Ok(())
    }

    /// Refuses prompts that cannot be run; `whole` when nothing is to follow them.
    pub(super) fn check_prompt(&self, tokens: &[u32], param: &str, whole: bool) -> Result<(), Fault> {
        let Model { context, vocab_size, .. } = self.model;
        if tokens.is_empty() {
            return Err(Fault::invalid(
                param,
                format!("`{param}` has no tokens; there must be at least one to continue"),
            ));
        }
        if tokens.len() + usize::from(!whole) > context {
            let message =
                format!("`{param}` has {} tokens, which leaves no room in a context of {context}", tokens.len());
            let code = Some("context_length_exceeded");
            return Err(Fault::Invalid { message, param: Some(param.to_owned()), code });
        }
        match tokens.iter().find(|&&id| id as usize >= vocab_size) {
            Some(id) => Err(Fault::invalid(
                param,
                format!("`{param}`: token id {id} is outside the vocabulary of {vocab_size}"),
            )),
            None => Ok(()),
        }
    }

    /// Ends all requests in flight.
    pub(super) fn give_up(&self) {
        self.gave_up.send_replace(true);
    }

    async fn given_up(&self) {
        // The sender lives as long as this does.
        let _ = self.gave_up.subscribe().wait_for(|given_up| *given_up).await;
    }

    /// Receives the body, takes a place (whoever sends slowly holds none) and prepares the work on a blocking thread:
    /// parsing and tokenizing megabytes must not hold up others.
    pub(super) async fn admitted<T: Send + 'static>(
        self: &Arc<Self>,
        headers: &HeaderMap,
        body: Body,
        prepare: impl FnOnce(&Self, &[u8]) -> Result<T, Fault> + Send + 'static,
    ) -> Result<(Place, T), Fault> {
        let body = receive(headers, body, self.config.max_body_bytes).await?;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Fault::Overloaded)?;
        let app = Arc::clone(self);
        let prepared =
            tokio::task::spawn_blocking(move || prepare(&app, &body)).await.map_err(|_| Fault::Panicked)??;
        Ok((place, prepared))
    }

    /// Answers a request for work, counted and measured, also when its client goes away before the end.
    pub(super) async fn observe(
        self: &Arc<Self>,
        route: &'static str,
        work: impl Future<Output = Result<Answer, Fault>>,
    ) -> Response {
        let flight = self.flights.enter();
        let begin = Instant::now();
        let outcome = if self.flights.draining() {
            Err(Fault::Stopped)
        } else {
            tokio::select! {
                outcome = work => outcome,
                () = self.given_up() => Err(Fault::Stopped),
            }
        };
        let response = match outcome {
            Ok(Answer::Stream(events)) => {
                let app = Arc::clone(self);
                let landed = move |app: &Self| {
                    app.metrics.traffic.answered(route, 200, begin.elapsed());
                    flight.land();
                };
                return event_stream(app, events, landed);
            }
            Ok(Answer::Whole(body)) => json(body),
            Err(fault) => {
                self.metrics.traffic.failed(fault.cause());
                fault.into_response()
            }
        };
        self.metrics.traffic.answered(route, response.status().as_u16(), begin.elapsed());
        flight.land();
        response
    }
}

/// Writes events as they come; a fault is the last of them.
fn event_stream(
    app: Arc<App>,
    events: BoxStream<'static, Result<Bytes, Fault>>,
    landed: impl FnOnce(&App) + Send + 'static,
) -> Response {
    let written = stream::unfold((app, events, Some(landed)), |(app, mut events, mut landed)| async move {
        landed.as_ref()?;
        let next = tokio::select! {
            next = events.next() => next,
            () = app.given_up() => Some(Err(Fault::Stopped)),
        };
        let bytes = match next {
            Some(Ok(bytes)) => bytes,
            ended => {
                landed.take().into_iter().for_each(|landed| landed(&app));
                let Some(Err(fault)) = ended else { return None };
                app.metrics.traffic.failed(fault.cause());
                event(&fault.json())
            }
        };
        Some((Ok::<_, Infallible>(bytes), (app, events, landed)))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, Body::from_stream(written)).into_response()
}

/// A server-sent event.
pub(super) fn event(data: &[u8]) -> Bytes {
    [b"data: ", data, b"\n\n"].concat().into()
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "OpenAI's answers say when they were made; nothing else depends on it")]
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

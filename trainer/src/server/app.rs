//! The state that all requests share.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use forage_contracts::Tokenizer;
use forage_contracts::seed::Seed;
use forage_env::chat::Renderer;
use forage_net::{Base, Observed, Refusal, Refuse, Room, Service, Ticket};
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::Map;

use super::fault::Fault;
use super::metrics::{Metrics, REQUESTS};
use super::request::Common;
use super::{Model, ServerConfig};

/// Bytes of a prompt that are tokenized in any case: it takes a moment, and some tokenizers have one token for an unknown
/// word of any length.
const ALWAYS_ENCODED: usize = 64 * 1024;

/// Most bytes of what is told in a whole answer: a thousand completions of a thousand tokens each, with log-probabilities.
const ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// Answers over this are not written by the threads that move bytes.
const WRITTEN_HERE: usize = 64 * 1024;

/// An answer without a fault so far.
pub(super) enum Answer {
    /// A JSON object, and its memory.
    Whole(Arc<Room>, Vec<u8>),
    /// Server-sent events, ended by a fault at most.
    Stream(BoxStream<'static, Result<Bytes, Fault>>),
}

#[derive(Debug)]
pub(super) struct App {
    pub(super) config: ServerConfig,
    pub(super) model: Model,
    pub(super) metrics: Metrics,
    pub(super) base: Arc<Base>,
    /// The memory for whole answers; each has a part of it.
    pub(super) room: Room,
    /// The token that ends a turn in the chat template, and its text, where it is none of the model's own ends.
    pub(super) turn_end: Option<(u32, String)>,
    /// Bytes of a prompt beyond which it cannot fit into the context.
    most_prompt_bytes: usize,
    /// Seconds since 1970 at which the server started.
    pub(super) started: u64,
    /// Differs from process to process.
    seed: Seed,
    numbers: AtomicU64,
}

impl App {
    pub(super) fn new(config: ServerConfig, model: Model) -> Self {
        let engine = Arc::clone(&model.engine);
        let (base, metrics) = Base::new(
            config.base.clone(),
            "forage_policy",
            &REQUESTS,
            |registry| Metrics::register(registry, engine),
        );
        Self {
            base,
            metrics,
            room: Room::new(ANSWER_BYTES),
            turn_end: turn_end(&model),
            most_prompt_bytes: most_prompt_bytes(&model),
            started: now(),
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
        format!(
            "{prefix}{:016x}{:08x}",
            seed.0,
            seed.child("tail", &[]).0 as u32
        )
    }

    /// Refuses another model's name and more completions than a request may ask for.
    pub(super) fn check(&self, common: &Common, prompts: usize) -> Result<(), Fault> {
        let served = &self.model.name;
        if let Some(asked) = common.model.as_ref().filter(|asked| *asked != served) {
            return Err(Fault::UnknownModel {
                asked: asked.clone(),
                served: served.clone(),
            });
        }
        let (asked, most) = (prompts.saturating_mul(common.n), self.config.max_choices);
        if asked > most {
            let message = format!(
                "{asked} completions asked for, at most {most} go into one request; split it"
            );
            return Err(Fault::invalid("n", message));
        }
        Ok(())
    }

    /// Refuses prompts that cannot be run; `whole` when nothing is to follow them.
    pub(super) fn check_prompt(
        &self,
        tokens: &[u32],
        param: &str,
        whole: bool,
    ) -> Result<(), Fault> {
        let Model {
            context,
            vocab_size,
            ..
        } = self.model;
        if tokens.is_empty() {
            return Err(Fault::invalid(
                param,
                format!("`{param}` has no tokens; there must be at least one to continue"),
            ));
        }
        if tokens.len() + usize::from(!whole) > context {
            let message = format!(
                "`{param}` has {} tokens, which leaves no room in a context of {context}",
                tokens.len()
            );
            let code = Some("context_length_exceeded");
            return Err(Fault::Invalid {
                message,
                param: Some(param.to_owned()),
                code,
            });
        }
        match tokens.iter().find(|&&id| id as usize >= vocab_size) {
            Some(id) => Err(Fault::invalid(
                param,
                format!("`{param}`: token id {id} is outside the vocabulary of {vocab_size}"),
            )),
            None => Ok(()),
        }
    }

    /// Refuses a prompt that is too long for the context whatever its tokens are, before they are looked for: that takes
    /// seconds and a hundred times the prompt's memory when it is megabytes long.
    pub(super) fn check_text(&self, text: &str, param: &str) -> Result<(), Fault> {
        let (length, most) = (text.len(), self.most_prompt_bytes);
        if length <= most {
            return Ok(());
        }
        Err(Fault::Invalid {
            message: format!(
                "`{param}` has {length} bytes; a context of {} tokens holds at most {most}",
                self.model.context
            ),
            param: Some(param.to_owned()),
            code: Some("context_length_exceeded"),
        })
    }

    /// Prepares the work of an admitted request, a few requests at a time and not on the threads that move bytes: parsing and
    /// tokenizing megabytes must not hold up others.
    pub(super) async fn prepared<T: Send + 'static>(
        self: &Arc<Self>,
        place: Ticket,
        body: Bytes,
        prepare: impl FnOnce(&Self, &[u8]) -> Result<T, Fault> + Send + 'static,
    ) -> Result<(Ticket, T), Fault> {
        let app = Arc::clone(self);
        // Prepared, a request is as large as its tokens, which its completions share: a stream that lasts for minutes holds no memory of
        // bodies.
        let prepared =
            move || prepare(&app, &body).map(|prepared| (place.without_body(), prepared));
        self.base.heavy(prepared).await
    }

    /// Does the work of an admitted request until its time is over; a stream that goes on then ends with the fault. Work that is
    /// dropped takes its completions along.
    pub(super) async fn in_time(
        &self,
        work: impl Future<Output = Result<Answer, Fault>>,
    ) -> Result<Answer, Fault> {
        let (begin, deadline) = (Instant::now(), self.config.deadline);
        let answer = tokio::time::timeout(deadline, work).await;
        match answer.map_err(|_| Fault::Late)?? {
            Answer::Stream(events) => Ok(Answer::Stream(until(begin, deadline, events))),
            whole @ Answer::Whole(..) => Ok(whole),
        }
    }

    /// Writes a whole answer: here when it is small, else as heavy work.
    pub(super) async fn written(
        &self,
        place: Ticket,
        room: Arc<Room>,
        write: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> Result<Answer, Fault> {
        if room.taken() <= WRITTEN_HERE {
            return Ok(Answer::Whole(room, write()));
        }
        let write = move || {
            let _place = place;
            Ok(Answer::Whole(room, write()))
        };
        self.base.heavy(write).await
    }

    /// Answers a request for work, counted and measured until the last event of a stream.
    pub(super) async fn answer(
        &self,
        route: &'static str,
        work: impl Future<Output = Result<Answer, Fault>>,
    ) -> Response {
        let observed = self.base.observed(route);
        let response = match self.base.unless_given_up(work).await {
            Ok(Answer::Stream(events)) => {
                return event_stream(Arc::clone(&self.base), events, observed);
            }
            Ok(Answer::Whole(room, body)) => room.answer(vec![body.into()]),
            Err(fault) => self.base.refuse(fault),
        };
        observed.answered(response.status().as_u16());
        response
    }
}

impl Service for App {
    type Fault = Fault;
    const OPENAPI: Option<&'static str> = Some(include_str!("openapi.json"));

    fn base(&self) -> &Arc<Base> {
        &self.base
    }

    fn ready(&self) -> bool {
        self.model.engine.is_alive()
    }
}

/// As [`App::turn_end`]: a base model that was fine-tuned on chats writes it, and its engine goes on.
fn turn_end(model: &Model) -> Option<(u32, String)> {
    // A template that rewrites what it wrote ends turns in no one way.
    let renderer = Renderer::new(model.chat.clone()?, Vec::new(), Map::new()).ok()?;
    let end = renderer.end();
    match model.tokenizer.encode(end)[..] {
        [token] if !model.ends.contains(&token) => Some((token, end.to_owned())),
        _ => None,
    }
}

/// Bytes beyond which a prompt has more tokens than the context, whatever they are.
fn most_prompt_bytes(model: &Model) -> usize {
    let ids = 0..u32::try_from(model.vocab_size).unwrap_or(u32::MAX);
    let lengths = ids.map(|id| model.tokenizer.token_bytes(id).len());
    model
        .context
        .saturating_mul(lengths.max().unwrap_or(0))
        .max(ALWAYS_ENCODED)
}

/// Events until the time is over; then the fault stands in place of the next one.
fn until(
    begin: Instant,
    deadline: Duration,
    events: BoxStream<'static, Result<Bytes, Fault>>,
) -> BoxStream<'static, Result<Bytes, Fault>> {
    let next = move |events: Option<BoxStream<'static, Result<Bytes, Fault>>>| async move {
        let mut events = events?;
        let left = deadline.saturating_sub(begin.elapsed());
        // An event that is there already would come before any time-out.
        let next = if left.is_zero() {
            Some(Err(Fault::Late))
        } else {
            let next = tokio::time::timeout(left, events.next()).await;
            next.unwrap_or(Some(Err(Fault::Late)))
        };
        let rest = matches!(next, Some(Ok(_))).then_some(events);
        Some((next?, rest))
    };
    stream::unfold(Some(events), next).boxed()
}

/// Writes events as they come; a fault is the last of them.
fn event_stream(
    base: Arc<Base>,
    events: BoxStream<'static, Result<Bytes, Fault>>,
    observed: Observed,
) -> Response {
    let written = stream::unfold(
        (base, events, Some(observed)),
        |(base, mut events, mut observed)| async move {
            observed.as_ref()?;
            let next = tokio::select! {
                next = events.next() => next,
                () = base.given_up() => Some(Err(Refusal::Stopped.into())),
            };
            let bytes = match next {
                Some(Ok(bytes)) => bytes,
                ended => {
                    observed.take().into_iter().for_each(|it| it.answered(200));
                    let Some(Err(fault)) = ended else { return None };
                    base.failed(fault.cause());
                    event(&fault.json())
                }
            };
            Some((Ok::<_, Infallible>(bytes), (base, events, observed)))
        },
    );
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream; charset=utf-8"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, Body::from_stream(written)).into_response()
}

/// A server-sent event.
pub(super) fn event(data: &[u8]) -> Bytes {
    [b"data: ", data, b"\n\n"].concat().into()
}

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "OpenAI's answers say when they were made; nothing else depends on it"
)]
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

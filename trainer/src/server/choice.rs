//! One completion on its way from the engine to the answer.

use std::sync::Arc;
use std::time::Instant;

use forage_contracts::policy::{Finish, GenerateRequest, Policy, PolicyError};
use forage_contracts::seed::Seed;
use forage_net::Room;
use futures::future::try_join_all;
use futures::stream::{self, BoxStream, StreamExt};

use super::app::App;
use super::fault::Fault;
use super::request::Common;
use super::text::{Detokenizer, StopFilter};
use crate::generate::{Event, StreamOptions, TokenEvent, TokenStream};

/// Bytes that a token of a whole answer takes, where other tokens' log-probabilities are told or none at all.
pub(super) fn told_bytes(logprobs: Option<usize>) -> usize {
    logprobs.map_or(64, |top| (top + 2) * 64)
}

/// A token and where its text begins.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) event: TokenEvent,
    /// Characters of the completion's text before it.
    pub(super) offset: usize,
}

/// Why a completion ended, in OpenAI's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Stop,
    Length,
}

impl Ended {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// What is new about a completion.
#[derive(Debug, Default)]
pub(super) struct Delta {
    pub(super) text: String,
    pub(super) tokens: Vec<Told>,
    pub(super) ended: Option<Ended>,
}

/// What is to be generated for one prompt.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) tokens: Arc<[u32]>,
    pub(super) max_tokens: usize,
    /// Other tokens told at each position.
    pub(super) top: usize,
}

/// A completion being generated. Dropped before its end, it is cancelled.
pub(super) struct Choice {
    app: Arc<App>,
    stream: TokenStream,
    episode: u64,
    ignore_eos: bool,
    end: Option<u32>,
    detokenizer: Detokenizer,
    filter: StopFilter,
    /// Characters decoded so far.
    decoded: usize,
    ended: bool,
    last_token: Option<Instant>,
    begin: Instant,
}

impl Choice {
    fn start(app: &Arc<App>, order: &Order, common: &Common, seed: Seed) -> Result<Self, Fault> {
        let episode = app.number();
        let request = GenerateRequest {
            episode,
            tokens: Vec::new(),
            max_tokens: order.max_tokens,
            stop: common.stop.clone(),
            ignore_eos: common.ignore_eos,
            sampling: common.sampling,
            seed,
        };
        let stream = app.model.engine.stream(
            Arc::clone(&order.tokens),
            request,
            StreamOptions {
                top_logprobs: order.top,
            },
        )?;
        Ok(Self {
            app: Arc::clone(app),
            stream,
            episode,
            ignore_eos: common.ignore_eos,
            end: common.end,
            detokenizer: Detokenizer::default(),
            filter: StopFilter::new(common.stop.clone(), common.include_stop),
            decoded: 0,
            ended: false,
            last_token: None,
            begin: Instant::now(),
        })
    }

    /// What comes next; `None` after the end.
    async fn next(&mut self) -> Option<Result<Delta, Fault>> {
        if self.ended {
            return None;
        }
        // The engine looks for stop strings in the last tokens, the filter in the whole text. The completion is as it is to be,
        // whatever the engine does with the next token.
        if self.filter.stopped() {
            return Some(Ok(self.end(Ended::Stop)));
        }
        let gone = || PolicyError::Gone("the generation engine stopped".to_owned());
        let delta = match self.stream.next().await.unwrap_or_else(|| Err(gone())) {
            Ok(Event::Token(event)) => Ok(self.token(event)),
            Ok(Event::Done(completion)) => Ok(self.end(match completion.finish {
                Finish::Stop | Finish::Eos => Ended::Stop,
                Finish::Length | Finish::Context => Ended::Length,
            })),
            Ok(Event::Behind) => {
                self.ended = true;
                Err(Fault::Behind)
            }
            Err(error) => {
                self.ended = true;
                Err(error.into())
            }
        };
        Some(delta)
    }

    fn token(&mut self, event: TokenEvent) -> Delta {
        let now = Instant::now();
        match self.last_token.replace(now) {
            None => self.app.metrics.first_token(now - self.begin),
            Some(before) => self.app.metrics.later_token(now - before),
        }
        let offset = self.decoded;
        // The token that ends a completion is not text.
        let is_end = self.end == Some(event.token) || self.app.model.ends.contains(&event.token);
        let text = if is_end && !self.ignore_eos {
            String::new()
        } else {
            let text = self
                .detokenizer
                .push(&self.app.model.tokenizer, event.token);
            self.decoded += text.chars().count();
            self.filter.push(&text)
        };
        Delta {
            text,
            tokens: vec![Told { event, offset }],
            ended: None,
        }
    }

    fn end(&mut self, ended: Ended) -> Delta {
        self.ended = true;
        let rest = self.detokenizer.finish(&self.app.model.tokenizer);
        let mut text = self.filter.push(&rest);
        let stopped = self.filter.stopped();
        text.push_str(&self.filter.finish());
        Delta {
            text,
            tokens: Vec::new(),
            ended: Some(if stopped { Ended::Stop } else { ended }),
        }
    }
}

impl Drop for Choice {
    fn drop(&mut self) {
        self.app.model.engine.release(self.episode);
    }
}

/// Starts `common.n` completions of each order: those of the first come first. What each has of its own takes from the room.
pub(super) fn start(
    app: &Arc<App>,
    orders: &[Order],
    common: &Common,
    room: &Room,
) -> Result<Vec<Choice>, Fault> {
    // The engine looks for stop strings, and so does the filter of the text.
    let stops: usize = common.stop.iter().map(String::len).sum();
    room.take(orders.len() * common.n * 2 * stops)?;
    let root = common.seed.map_or_else(|| app.fresh_seed(), Seed::root);
    let mut choices = Vec::with_capacity(orders.len() * common.n);
    for order in orders {
        for number in 0..common.n {
            // Independent of the prompt's place, so that a prompt alone gives what it gives among others.
            choices.push(Choice::start(
                app,
                order,
                common,
                root.child("choice", &[number as u64]),
            )?);
        }
    }
    Ok(choices)
}

/// Runs completions to their ends. Each token takes `told` bytes of the room.
pub(super) async fn collect(
    choices: Vec<Choice>,
    room: &Room,
    told: usize,
) -> Result<Vec<Delta>, Fault> {
    let whole = move |mut choice: Choice| async move {
        let mut whole = Delta::default();
        while let Some(delta) = choice.next().await {
            let delta = delta?;
            room.take(delta.tokens.len() * told + delta.text.len())?;
            whole.text.push_str(&delta.text);
            whole.tokens.extend(delta.tokens);
            whole.ended = delta.ended;
        }
        Ok::<_, Fault>(whole)
    };
    try_join_all(choices.into_iter().map(whole)).await
}

/// What comes next of any of several completions, with its place among them. Ends with the first fault.
pub(super) fn merge(choices: Vec<Choice>) -> BoxStream<'static, Result<(usize, Delta), Fault>> {
    let one = |(index, choice): (usize, Choice)| {
        let next =
            |mut choice: Choice| async move { choice.next().await.map(|delta| (delta, choice)) };
        stream::unfold(choice, next)
            .map(move |delta| delta.map(|delta| (index, delta)))
            .boxed()
    };
    stream::select_all(choices.into_iter().enumerate().map(one)).boxed()
}

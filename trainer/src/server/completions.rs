//! `POST /v1/completions`.

use std::sync::Arc;

use forage_contracts::Tokenizer;
use forage_net::{Room, Ticket};
use futures::future::try_join_all;
use futures::stream::{self, StreamExt};

use super::answer::{
    Body, CompletionChoice, Count, Head, Logprobs, Usage, Writer, ids, offsets, streamed,
};
use super::app::{Answer, App, event, now};
use super::choice::{self, Delta, Ended, Order, Told};
use super::fault::Fault;
use super::request::{Common, CompletionRequest, Prompt};
use crate::generate::StreamOptions;

/// Bytes that the id of a prompt's token takes in an answer.
const ID_BYTES: usize = 16;

/// A request ready to run.
#[derive(Debug)]
pub(super) struct Job {
    common: Common,
    /// One per prompt.
    orders: Vec<Order>,
    /// Text of each prompt, to be repeated before its completions.
    echo: Option<Vec<String>>,
    logprobs: Option<usize>,
    max_tokens: usize,
}

pub(super) fn prepare(app: &App, body: &[u8]) -> Result<Job, Fault> {
    let CompletionRequest {
        common,
        prompts,
        max_tokens,
        echo,
        logprobs,
    } = CompletionRequest::parse(body, app.model.sampling)?;
    app.check(&common, prompts.len())?;
    // All of them before any is tokenized.
    for prompt in &prompts {
        match prompt {
            Prompt::Text(text) => app.check_text(text, "prompt")?,
            Prompt::Tokens(tokens) => app.check_prompt(tokens, "prompt", max_tokens == 0)?,
        }
    }
    let mut orders = Vec::with_capacity(prompts.len());
    let mut texts = Vec::new();
    for prompt in prompts {
        let (tokens, text) = match prompt {
            Prompt::Text(text) => (app.model.tokenizer.encode(&text), echo.then_some(text)),
            Prompt::Tokens(tokens) => {
                let text = echo.then(|| offsets(&app.model.tokenizer, &tokens).0);
                (tokens, text)
            }
        };
        app.check_prompt(&tokens, "prompt", max_tokens == 0)?;
        orders.push(Order {
            tokens: tokens.into(),
            max_tokens,
            top: logprobs.unwrap_or(0),
        });
        texts.extend(text);
    }
    Ok(Job {
        common,
        orders,
        echo: echo.then_some(texts),
        logprobs,
        max_tokens,
    })
}

pub(super) async fn answer(app: &Arc<App>, place: Ticket, job: Job) -> Result<Answer, Fault> {
    let head = Head {
        id: app.name("cmpl-"),
        object: "text_completion",
        created: now(),
        model: app.model.name.clone(),
    };
    let told = choice::told_bytes(job.logprobs);
    let room = app.room.beside();
    let repeated = match (&job.echo, job.common.token_ids) {
        (None, false) => 0,
        (None, true) => ID_BYTES,
        (Some(_), false) => told,
        (Some(_), true) => told + ID_BYTES,
    };
    // Streams repeat a prompt as they come to it.
    let copies = if job.common.stream { 1 } else { job.common.n };
    let tokens: usize = job.orders.iter().map(|order| order.tokens.len()).sum();
    room.take(tokens * copies * repeated)?;
    let echoes = echoes(app, &job).await?;
    let choices = match job.max_tokens {
        0 => Vec::new(),
        _ => choice::start(app, &job.orders, &job.common, &room)?,
    };
    let begun = vec![false; job.orders.len() * job.common.n];
    let mut writer = Pieces {
        app: Arc::clone(app),
        head,
        job,
        echoes,
        begun,
        generated: 0,
        _room: Arc::clone(&room),
    };
    if !writer.job.common.stream {
        let wholes = choice::collect(choices, &room, told).await?;
        return app.written(place, room, move || writer.whole(wholes)).await;
    }
    if writer.job.max_tokens > 0 {
        return streamed(place, choice::merge(choices), writer).await;
    }
    let ended: Vec<_> = writer.empty().into_iter().enumerate().map(Ok).collect();
    streamed(place, stream::iter(ended).boxed(), writer).await
}

/// What is said of a prompt that is repeated.
struct Echo {
    text: String,
    chars: usize,
    /// Log-probabilities of the prompt's tokens, if they were asked for.
    told: Option<Vec<Told>>,
}

async fn echoes(app: &Arc<App>, job: &Job) -> Result<Option<Vec<Echo>>, Fault> {
    let Some(texts) = &job.echo else {
        return Ok(None);
    };
    let temperature = match job.common.sampling.temperature {
        temperature if temperature > 0.0 => temperature,
        _ => 1.0,
    };
    let echo = |(order, text): (&Order, &String)| {
        let (tokens, text) = (order.tokens.to_vec(), text.clone());
        async move {
            let told = match job.logprobs {
                None => None,
                Some(top) => {
                    let (_, offsets) = offsets(&app.model.tokenizer, &tokens);
                    let options = StreamOptions { top_logprobs: top };
                    let scored = app
                        .model
                        .engine
                        .score_with(tokens, temperature, options)
                        .await?;
                    let told = scored.into_iter().zip(offsets.into_iter().skip(1));
                    Some(told.map(|(event, offset)| Told { event, offset }).collect())
                }
            };
            Ok::<_, Fault>(Echo {
                chars: text.chars().count(),
                text,
                told,
            })
        }
    };
    Ok(Some(
        try_join_all(job.orders.iter().zip(texts).map(echo)).await?,
    ))
}

/// Writes the answer, whole or in pieces.
struct Pieces {
    app: Arc<App>,
    head: Head,
    job: Job,
    echoes: Option<Vec<Echo>>,
    /// Whether something was said of each choice.
    begun: Vec<bool>,
    /// Tokens.
    generated: usize,
    /// The memory of what is repeated, and of what the completions hold.
    _room: Arc<Room>,
}

impl Pieces {
    /// Completions of no tokens.
    fn empty(&self) -> Vec<Delta> {
        let ended = || Delta {
            ended: Some(Ended::Length),
            ..Delta::default()
        };
        self.begun.iter().map(|_| ended()).collect()
    }

    fn usage(&self) -> Usage {
        Usage::new(
            self.job.orders.iter().map(|order| order.tokens.len()).sum(),
            self.generated,
        )
    }

    fn whole(&mut self, wholes: Vec<Delta>) -> Vec<u8> {
        let wholes = if wholes.is_empty() {
            self.empty()
        } else {
            wholes
        };
        let choices: Vec<_> = wholes
            .into_iter()
            .enumerate()
            .map(|(index, whole)| self.choice(index, whole))
            .collect();
        Body {
            head: &self.head,
            choices,
            usage: Some(Count::Known(self.usage())),
            prompt_token_ids: None,
        }
        .json()
    }

    /// A choice or a piece of one.
    fn choice(&mut self, index: usize, delta: Delta) -> CompletionChoice {
        self.generated += delta.tokens.len();
        let begins = !std::mem::replace(&mut self.begun[index], true);
        let prompt = index / self.job.common.n;
        let tokenizer = &self.app.model.tokenizer;
        let echo = self.echoes.as_ref().map(|echoes| &echoes[prompt]);
        let generated = |before| Logprobs::new(tokenizer, &delta.tokens, before);
        let mut logprobs = self
            .job
            .logprobs
            .map(|_| generated(echo.map_or(0, |echo| echo.chars)));
        let mut text = delta.text;
        if let Some(echo) = echo.filter(|_| begins) {
            text.insert_str(0, &echo.text);
            if let (Some(told), Some(after)) = (&echo.told, logprobs.take()) {
                let mut whole = Logprobs::default();
                whole.push_first(tokenizer, self.job.orders[prompt].tokens[0]);
                whole.append(Logprobs::new(tokenizer, told, 0));
                whole.append(after);
                logprobs = Some(whole);
            }
        }
        let token_ids = self.job.common.token_ids;
        CompletionChoice {
            index,
            text,
            logprobs,
            finish_reason: delta.ended.map(Ended::name),
            token_ids: token_ids.then(|| ids(&delta.tokens)),
            prompt_token_ids: (token_ids && begins)
                .then(|| self.job.orders[prompt].tokens.to_vec()),
        }
    }

    fn event(&self, choices: Vec<CompletionChoice>, usage: Count) -> Vec<u8> {
        let usage = self.job.common.include_usage.then_some(usage);
        event(
            &Body {
                head: &self.head,
                choices,
                usage,
                prompt_token_ids: None,
            }
            .json(),
        )
        .into()
    }
}

impl Writer for Pieces {
    fn delta(&mut self, index: usize, delta: Delta) -> Vec<u8> {
        let told = self.job.logprobs.is_some() || self.job.common.token_ids;
        if self.begun[index] && delta.text.is_empty() && delta.ended.is_none() && !told {
            self.generated += delta.tokens.len();
            return Vec::new();
        }
        let choice = self.choice(index, delta);
        self.event(vec![choice], Count::Later)
    }

    fn end(&mut self) -> Vec<u8> {
        if !self.job.common.include_usage {
            return Vec::new();
        }
        self.event(Vec::new(), Count::Known(self.usage()))
    }
}

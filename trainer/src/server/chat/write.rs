//! Answers of a chat.

use std::sync::Arc;

use forage_env::HfTokenizer;
use forage_env::chat::hermes::{self, Piece, ToolCall};
use forage_net::Room;
use serde::Serialize;

use super::Job;
use crate::server::answer::{Body, Count, Head, Usage, Writer, ids};
use crate::server::app::{App, event};
use crate::server::choice::{Delta, Ended, Told};

#[derive(Debug, Serialize)]
struct Choice {
    index: usize,
    message: Message,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Serialize)]
struct Message {
    role: &'static str,
    /// Null where there are calls only.
    content: Option<String>,
    refusal: Option<()>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
}

#[derive(Debug, Serialize)]
struct ChoicePiece {
    index: usize,
    delta: MessagePiece,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Default, Serialize)]
struct MessagePiece {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
}

#[derive(Debug, Serialize)]
struct Call {
    /// Place among the calls of a streamed answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    id: String,
    r#type: &'static str,
    function: Function,
}

#[derive(Debug, Serialize)]
struct Function {
    name: String,
    /// JSON, as text.
    arguments: String,
}

/// Log-probabilities in the form of `/v1/chat/completions`.
#[derive(Debug, Serialize)]
struct Logprobs {
    content: Vec<TokenLogprob>,
    refusal: Option<()>,
}

#[derive(Debug, Serialize)]
struct TokenLogprob {
    #[serde(flatten)]
    token: Spelled,
    top_logprobs: Vec<Spelled>,
}

#[derive(Debug, Serialize)]
struct Spelled {
    /// With replacement marks where the token is a part of a character.
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl Spelled {
    fn new(tokenizer: &HfTokenizer, token: u32, logprob: f32) -> Self {
        let bytes = tokenizer.token_bytes(token);
        Self {
            token: String::from_utf8_lossy(&bytes).into_owned(),
            logprob,
            bytes,
        }
    }
}

/// Writes the answer, whole or in pieces.
pub(super) struct Pieces {
    app: Arc<App>,
    head: Head,
    job: Job,
    states: Vec<State>,
    /// Tokens.
    generated: usize,
    /// The memory of what the completions hold.
    _room: Arc<Room>,
}

/// What was said of a choice.
#[derive(Debug, Default)]
struct State {
    begun: bool,
    calls: usize,
    /// Finds calls in the text.
    reader: hermes::Stream,
}

impl Pieces {
    pub(super) fn new(app: Arc<App>, head: Head, job: Job, room: Arc<Room>) -> Self {
        let states = std::iter::repeat_with(State::default)
            .take(job.common.n)
            .collect();
        Self {
            app,
            head,
            job,
            states,
            generated: 0,
            _room: room,
        }
    }

    fn usage(&self) -> Usage {
        Usage::new(self.job.order.tokens.len(), self.generated)
    }

    fn logprobs(&self, tokens: &[Told]) -> Option<Logprobs> {
        let tokenizer = &self.app.model.tokenizer;
        let told = |told: &Told| TokenLogprob {
            token: Spelled::new(tokenizer, told.event.token, told.event.logprob),
            top_logprobs: told
                .event
                .top
                .iter()
                .map(|&(id, logprob)| Spelled::new(tokenizer, id, logprob))
                .collect(),
        };
        self.job.logprobs.then(|| Logprobs {
            content: tokens.iter().map(told).collect(),
            refusal: None,
        })
    }

    fn token_ids(&self, tokens: &[Told]) -> Option<Vec<u32>> {
        self.job.common.token_ids.then(|| ids(tokens))
    }

    /// Text and calls of what is new; a block that is not a call is text as it was written.
    fn read(&mut self, index: usize, delta: &Delta) -> (String, Vec<ToolCall>) {
        if !self.job.tools {
            return (delta.text.clone(), Vec::new());
        }
        let reader = &mut self.states[index].reader;
        let mut pieces = reader.push(&delta.text);
        if delta.ended.is_some() {
            pieces.extend(reader.finish());
        }
        let (mut text, mut calls) = (String::new(), Vec::new());
        for piece in pieces {
            match piece {
                Piece::Text(piece) => text.push_str(&piece),
                Piece::Malformed(block) => text.push_str(&block.text),
                Piece::Call(call) => calls.push(call),
            }
        }
        (text, calls)
    }

    fn calls(&mut self, index: usize, calls: Vec<ToolCall>, numbered: bool) -> Vec<Call> {
        let state = &mut self.states[index];
        let app = &self.app;
        let call = |call: ToolCall| {
            state.calls += 1;
            Call {
                index: numbered.then(|| state.calls - 1),
                id: app.name("call_"),
                r#type: "function",
                function: Function {
                    name: call.name,
                    arguments: call.arguments.to_string(),
                },
            }
        };
        calls.into_iter().map(call).collect()
    }

    fn reason(&self, index: usize, ended: Option<Ended>) -> Option<&'static str> {
        match ended {
            Some(Ended::Stop) if self.states[index].calls > 0 => Some("tool_calls"),
            ended => ended.map(Ended::name),
        }
    }

    /// The whole answer.
    pub(super) fn whole(&mut self, wholes: Vec<Delta>) -> Vec<u8> {
        let mut choices = Vec::with_capacity(wholes.len());
        for (index, whole) in wholes.into_iter().enumerate() {
            self.generated += whole.tokens.len();
            let (text, calls) = self.read(index, &whole);
            let tool_calls = self.calls(index, calls, false);
            let content = (tool_calls.is_empty() || !text.is_empty()).then_some(text);
            choices.push(Choice {
                index,
                message: Message {
                    role: "assistant",
                    content,
                    refusal: None,
                    tool_calls,
                },
                logprobs: self.logprobs(&whole.tokens),
                finish_reason: self.reason(index, whole.ended),
                token_ids: self.token_ids(&whole.tokens),
            });
        }
        let prompt_token_ids = self.job.common.token_ids.then_some(&*self.job.order.tokens);
        Body {
            head: &self.head,
            choices,
            usage: Some(Count::Known(self.usage())),
            prompt_token_ids,
        }
        .json()
    }

    fn event(&self, choices: Vec<ChoicePiece>, usage: Count, prompt: bool) -> Vec<u8> {
        let usage = self.job.common.include_usage.then_some(usage);
        let prompt_token_ids =
            (prompt && self.job.common.token_ids).then_some(&*self.job.order.tokens);
        event(
            &Body {
                head: &self.head,
                choices,
                usage,
                prompt_token_ids,
            }
            .json(),
        )
        .into()
    }
}

impl Writer for Pieces {
    fn delta(&mut self, index: usize, delta: Delta) -> Vec<u8> {
        self.generated += delta.tokens.len();
        let mut events = Vec::new();
        if !std::mem::replace(&mut self.states[index].begun, true) {
            let role = MessagePiece {
                role: Some("assistant"),
                content: Some(String::new()),
                tool_calls: Vec::new(),
            };
            let piece = ChoicePiece {
                index,
                delta: role,
                logprobs: None,
                finish_reason: None,
                token_ids: None,
            };
            events.append(&mut self.event(vec![piece], Count::Later, true));
        }
        let (text, calls) = self.read(index, &delta);
        let tool_calls = self.calls(index, calls, true);
        let told = !delta.tokens.is_empty() && (self.job.logprobs || self.job.common.token_ids);
        if text.is_empty() && tool_calls.is_empty() && delta.ended.is_none() && !told {
            return events;
        }
        let piece = ChoicePiece {
            index,
            delta: MessagePiece {
                role: None,
                content: (!text.is_empty()).then_some(text),
                tool_calls,
            },
            logprobs: self.logprobs(&delta.tokens),
            finish_reason: self.reason(index, delta.ended),
            token_ids: self.token_ids(&delta.tokens),
        };
        events.append(&mut self.event(vec![piece], Count::Later, false));
        events
    }

    fn end(&mut self) -> Vec<u8> {
        if !self.job.common.include_usage {
            return Vec::new();
        }
        self.event(Vec::new(), Count::Known(self.usage()), false)
    }
}

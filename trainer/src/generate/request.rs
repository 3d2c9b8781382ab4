//! Requests in flight: the request, the tokens drawn so far, the receiver.

use forage_contracts::Tokenizer;
use forage_contracts::policy::{Completion, Finish, GenerateRequest, PolicyError};
use tokio::sync::{mpsc, oneshot};

use super::sampler::{Answer, Question, Wanted};

/// The content of a stream besides tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    /// Most likely tokens reported at each place.
    pub top_logprobs: usize,
}

/// One token of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenEvent {
    /// Token id.
    pub token: u32,
    /// ln p(token), nats, as [`Completion::logprobs`].
    pub logprob: f32,
    /// The most likely tokens with their log-probabilities, best first.
    pub top: Vec<(u32, f32)>,
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// The next token.
    Token(TokenEvent),
    /// The end, with everything once more.
    Done(Completion),
}

/// The tokens of one completion as they are drawn. Dropping it cancels the request and frees its cache.
#[derive(Debug)]
pub(crate) struct TokenStream {
    pub(super) events: mpsc::UnboundedReceiver<Result<Event, PolicyError>>,
}

impl TokenStream {
    /// The next event; `None` after the end or an error.
    pub(crate) async fn next(&mut self) -> Option<Result<Event, PolicyError>> {
        self.events.recv().await
    }
}

/// The receiver of a completion.
#[derive(Debug)]
pub(super) enum Reply {
    Whole(oneshot::Sender<Result<Completion, PolicyError>>),
    Stream(
        mpsc::UnboundedSender<Result<Event, PolicyError>>,
        StreamOptions,
    ),
}

impl Reply {
    /// Returns whether nobody waits any more.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Whole(reply) => reply.is_closed(),
            Self::Stream(events, _) => events.is_closed(),
        }
    }

    /// A receiver that is gone needs no answer.
    pub(super) fn end(self, result: Result<Completion, PolicyError>) {
        match self {
            Self::Whole(reply) => drop(reply.send(result)),
            Self::Stream(events, _) => drop(events.send(result.map(Event::Done))),
        }
    }
}

/// The receiver of the log-probabilities of given tokens.
#[derive(Debug)]
pub(super) struct ScoreReply {
    pub(super) sender: oneshot::Sender<Result<Vec<TokenEvent>, PolicyError>>,
    pub(super) options: StreamOptions,
}

/// A completion being drawn.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) request: GenerateRequest,
    pub(super) reply: Reply,
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    /// Tokens at the end of the completion that can hold a stop string.
    tail: usize,
}

impl Active {
    pub(super) fn new(request: GenerateRequest, reply: Reply) -> Self {
        // A token is a byte at least, and a stop string may begin inside one.
        let tail = request.stop.iter().map(String::len).max().unwrap_or(0) + 1;
        Self {
            request,
            reply,
            tokens: Vec::new(),
            logprobs: Vec::new(),
            tail,
        }
    }

    /// Asks for the next token of the completion.
    pub(super) fn question(&self) -> Question {
        let GenerateRequest { sampling, seed, .. } = self.request;
        Question {
            token: Wanted::Draw(sampling, seed, self.tokens.len()),
            top: match &self.reply {
                Reply::Stream(_, options) => options.top_logprobs,
                Reply::Whole(_) => 0,
            },
        }
    }

    /// Adds a drawn token; returns the reason if the completion ends with it. `full`: another one does not fit.
    pub(super) fn push(
        &mut self,
        Answer {
            sampled: drawn,
            top,
        }: Answer,
        full: bool,
        eos: &[u32],
        tokenizer: &dyn Tokenizer,
    ) -> Option<Finish> {
        self.tokens.push(drawn.token);
        self.logprobs.push(drawn.logprob);
        if let Reply::Stream(events, _) = &self.reply {
            let event = TokenEvent {
                token: drawn.token,
                logprob: drawn.logprob,
                top,
            };
            // Whether anyone still listens is looked at before each pass.
            let _ = events.send(Ok(Event::Token(event)));
        }
        if !self.request.ignore_eos && eos.contains(&drawn.token) {
            return Some(Finish::Eos);
        }
        let tail = &self.tokens[self.tokens.len().saturating_sub(self.tail)..];
        if !self.request.stop.is_empty() {
            let text = tokenizer.decode(tail);
            if self.request.stop.iter().any(|stop| text.contains(stop)) {
                return Some(Finish::Stop);
            }
        }
        if self.tokens.len() >= self.request.max_tokens {
            return Some(Finish::Length);
        }
        full.then_some(Finish::Context)
    }

    pub(super) fn end(self, finish: Finish, version: u64) {
        let Self {
            reply,
            tokens,
            logprobs,
            ..
        } = self;
        reply.end(Ok(Completion {
            tokens,
            logprobs,
            finish,
            version,
        }));
    }
}

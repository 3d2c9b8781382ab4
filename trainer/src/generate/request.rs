//! Requests in flight: the request, the tokens drawn so far, the receiver.

use std::sync::Arc;

use forage_contracts::Tokenizer;
use forage_contracts::policy::{Completion, Finish, GenerateRequest, PolicyError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

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
    /// The end, because the reader is too far behind.
    Behind,
}

/// Tokens that may wait for the reader of a stream in any case.
const UNREAD: usize = 16;
/// Tokens beyond those that may wait for the readers of all streams of an engine.
pub(super) const UNREAD_TOGETHER: usize = 1 << 20;

/// An event and its place among those that wait.
type Sent = (Result<Event, PolicyError>, Option<OwnedSemaphorePermit>);

/// The tokens of one completion as they are drawn. Dropping it cancels the request and frees its cache.
#[derive(Debug)]
pub(crate) struct TokenStream {
    events: mpsc::UnboundedReceiver<Sent>,
}

impl TokenStream {
    /// The next event; `None` after the end or an error.
    pub(crate) async fn next(&mut self) -> Option<Result<Event, PolicyError>> {
        let (event, _place) = self.events.recv().await?;
        Some(event)
    }
}

/// The engine's end of a [`TokenStream`]. What nobody reads is bounded: the engine draws on whether its reader keeps up or not.
#[derive(Debug)]
pub(super) struct Outlet {
    events: mpsc::UnboundedSender<Sent>,
    /// Places of this stream.
    own: Arc<Semaphore>,
    /// Places of all streams together.
    together: Arc<Semaphore>,
}

impl Outlet {
    pub(super) fn new(together: Arc<Semaphore>) -> (Self, TokenStream) {
        let (sender, events) = mpsc::unbounded_channel();
        let outlet = Self {
            events: sender,
            own: Arc::new(Semaphore::new(UNREAD)),
            together,
        };
        (outlet, TokenStream { events })
    }

    /// Sends a token. Where there is no place for it, the stream ends with [`Event::Behind`] instead; returns false.
    fn token(&self, token: TokenEvent) -> bool {
        let mut places = [&self.own, &self.together].into_iter();
        let place = places.find_map(|places| Arc::clone(places).try_acquire_owned().ok());
        let has_place = place.is_some();
        let event = if has_place {
            Event::Token(token)
        } else {
            Event::Behind
        };
        // Whether anyone still listens is looked at before each pass.
        let _ = self.events.send((Ok(event), place));
        has_place
    }

    fn end(self, result: Result<Completion, PolicyError>) {
        // A receiver that is gone needs no answer.
        let _ = self.events.send((result.map(Event::Done), None));
    }
}

/// The receiver of a completion.
#[derive(Debug)]
pub(super) enum Reply {
    Whole(oneshot::Sender<Result<Completion, PolicyError>>),
    Stream(Outlet, StreamOptions),
}

impl Reply {
    /// Returns whether nobody waits any more.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Whole(reply) => reply.is_closed(),
            Self::Stream(outlet, _) => outlet.events.is_closed(),
        }
    }

    /// A receiver that is gone needs no answer.
    pub(super) fn end(self, result: Result<Completion, PolicyError>) {
        match self {
            Self::Whole(reply) => drop(reply.send(result)),
            Self::Stream(outlet, _) => outlet.end(result),
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
    /// Whether its reader was told that it is too far behind.
    is_behind: bool,
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
            is_behind: false,
        }
    }

    /// Returns whether nobody waits for more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_behind || self.reply.is_closed()
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
        if let Reply::Stream(outlet, _) = &self.reply {
            let event = TokenEvent {
                token: drawn.token,
                logprob: drawn.logprob,
                top,
            };
            if !outlet.token(event) {
                // The engine lets go of it before the next pass.
                self.is_behind = true;
                return None;
            }
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

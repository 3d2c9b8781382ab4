//! What the engine keeps for one episode.

use forage_env::policy::{Completion, Finish, GenerateRequest, PolicyError};
use forage_env::tokenizer::Tokenizer;
use tokio::sync::oneshot;

use super::sampler::Sampled;

/// Answers one request.
pub(super) type Reply = oneshot::Sender<Result<Completion, PolicyError>>;

/// A request being generated.
pub(super) struct Active {
    pub(super) request: GenerateRequest,
    reply: Reply,
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    /// Tokens at the end of the completion that can hold a stop string.
    tail: usize,
}

/// An episode's slot in the cache.
pub(super) struct Session {
    pub(super) slot: usize,
    /// Tokens whose keys and values stand in the cache.
    pub(super) cached: Vec<u32>,
    /// Tokens to run next.
    pub(super) pending: Vec<u32>,
    pub(super) active: Option<Active>,
    /// Engine tick of the last use: the least recently used idle session is evicted first.
    pub(super) last_used: u64,
}

impl Session {
    pub(super) fn new(slot: usize) -> Self {
        Self { slot, cached: Vec::new(), pending: Vec::new(), active: None, last_used: 0 }
    }

    /// Starts a request; what is cached stays as far as the request's tokens agree with it.
    pub(super) fn start(&mut self, request: GenerateRequest, reply: Reply) {
        // At least one token must run to give logits.
        let limit = request.tokens.len() - 1;
        let common = self.cached.iter().zip(&request.tokens[..limit]).take_while(|(a, b)| a == b).count();
        self.cached.truncate(common);
        self.pending = request.tokens[common..].to_vec();
        let tail = request.stop.iter().map(String::len).max().unwrap_or(0) + 1;
        self.active = Some(Active { request, reply, tokens: Vec::new(), logprobs: Vec::new(), tail });
    }

    /// The cached values are stale: all tokens run again before the next one is drawn.
    pub(super) fn forget(&mut self) {
        let mut tokens = std::mem::take(&mut self.cached);
        if self.active.is_some() {
            tokens.append(&mut self.pending);
            self.pending = tokens;
        }
    }

    /// The pending tokens were run.
    pub(super) fn commit(&mut self) {
        self.cached.append(&mut self.pending);
    }

    /// Index of the next token of the completion.
    pub(super) fn index(&self) -> usize {
        self.active.as_ref().map_or(0, |active| active.tokens.len())
    }

    /// Takes a sampled token; replies and goes idle when it ends the completion. Returns whether it did.
    pub(super) fn take(&mut self, sampled: Sampled, positions: usize, tokenizer: &dyn Tokenizer, version: u64) -> bool {
        let Some(active) = self.active.as_mut() else { return true };
        active.tokens.push(sampled.token);
        active.logprobs.push(sampled.logprob);
        // The new token needs a position of its own to be continued.
        let full = self.cached.len() + 1 >= positions;
        let Some(finish) = active.finish(full, tokenizer) else {
            self.pending = vec![sampled.token];
            return false;
        };
        if let Some(Active { reply, tokens, logprobs, .. }) = self.active.take() {
            // The receiver is gone only when its episode was cancelled.
            let _ = reply.send(Ok(Completion { tokens, logprobs, finish, version }));
        }
        true
    }

    /// Ends the request with an error.
    pub(super) fn fail(&mut self, error: PolicyError) {
        if let Some(active) = self.active.take() {
            let _ = active.reply.send(Err(error));
        }
        // What a failed forward pass wrote is not trusted.
        self.cached.clear();
        self.pending.clear();
    }
}

impl Active {
    fn finish(&self, context_full: bool, tokenizer: &dyn Tokenizer) -> Option<Finish> {
        if self.tokens.last() == Some(&tokenizer.eos()) {
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
        context_full.then_some(Finish::Context)
    }
}

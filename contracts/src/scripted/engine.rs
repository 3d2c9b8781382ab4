//! A script as a policy: text inside, tokens outside.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::read;
use crate::policy::{Completion, Finish, GenerateRequest, Policy, PolicyError};
use crate::seed::Seed;
use crate::tag::Tag;
use crate::tokenizer::Tokenizer;

/// The part of its episode that a script sees.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The opening prompt.
    pub prompt: &'a str,
    /// The environment's reply to each turn so far.
    pub shown: &'a [String],
    /// The driver has opened the answer tag: only an answer makes sense.
    pub must_answer: bool,
    /// Start of this turn's random stream.
    pub seed: Seed,
}

impl<'a> View<'a> {
    /// The question of the prompt: what follows its last `Question:` up to the end of the line; else its last line.
    pub fn question(&self) -> &'a str {
        read::question(self.prompt)
    }

    /// Titles of the passages shown so far, in the default passage format.
    pub fn titles(&self) -> impl Iterator<Item = &'a str> {
        let blocks = self
            .shown
            .iter()
            .filter_map(|shown| Tag::Information.inside(shown));
        blocks.flat_map(read::titles)
    }
}

/// Writes turns as text.
pub trait Script: Send + Sync {
    /// Writes the next turn.
    ///
    /// # Errors
    /// When the script cannot go on.
    fn write(&self, view: &View<'_>) -> Result<String, PolicyError>;
}

/// What is kept of an episode between its turns.
#[derive(Debug, Default)]
struct Conversation {
    prompt: String,
    shown: Vec<String>,
    /// Tokens known so far, the own completions included.
    seen: usize,
}

/// A [`Script`] that speaks tokens.
pub struct Scripted {
    script: Box<dyn Script>,
    tokenizer: Arc<dyn Tokenizer>,
    episodes: Mutex<HashMap<u64, Conversation>>,
}

impl Scripted {
    /// Lets `script` speak the tokens of `tokenizer`.
    pub fn with_script(script: impl Script + 'static, tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self {
            script: Box::new(script),
            tokenizer,
            episodes: Mutex::default(),
        }
    }

    fn episodes(&self) -> MutexGuard<'_, HashMap<u64, Conversation>> {
        self.episodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what is new in the request; returns whether the driver has opened the answer.
    fn listen(&self, conversation: &mut Conversation, tokens: &[u32]) -> bool {
        let first = conversation.seen == 0 || conversation.seen > tokens.len();
        if first {
            *conversation = Conversation {
                prompt: self.tokenizer.decode(tokens),
                ..Conversation::default()
            };
            return false;
        }
        let mut text = self.tokenizer.decode(&tokens[conversation.seen..]);
        let must_answer = text.ends_with(Tag::Answer.opening());
        if must_answer {
            text.truncate(text.len() - Tag::Answer.opening().len());
        }
        conversation.shown.push(text);
        must_answer
    }

    /// Encodes a turn within the request's limit, cut after the first stop string.
    fn speak(&self, mut text: String, request: &GenerateRequest) -> Completion {
        let stops = request
            .stop
            .iter()
            .filter_map(|stop| text.find(stop.as_str()).map(|start| start + stop.len()));
        let stop = stops.min();
        if let Some(end) = stop {
            text.truncate(end);
        }
        let mut tokens = self.tokenizer.encode(&text);
        let finish = if tokens.len() > request.max_tokens {
            tokens.truncate(request.max_tokens);
            Finish::Length
        } else if stop.is_some() {
            Finish::Stop
        } else if tokens.len() < request.max_tokens {
            tokens.push(self.tokenizer.eos());
            Finish::Eos
        } else {
            Finish::Length
        };
        Completion {
            logprobs: vec![0.0; tokens.len()],
            tokens,
            finish,
            version: 0,
        }
    }
}

/// What remains to be written of a turn whose answer tag the driver has opened.
fn rest_of_answer(turn: &str) -> &str {
    turn.rsplit_once(Tag::Answer.opening())
        .map_or(turn, |(_, rest)| rest)
}

#[async_trait]
impl Policy for Scripted {
    fn version(&self) -> u64 {
        0
    }

    async fn generate(&self, request: GenerateRequest) -> Result<Completion, PolicyError> {
        if request.tokens.is_empty() {
            return Err(PolicyError::BadRequest("the prompt is empty".to_owned()));
        }
        let mut conversation = self.episodes().remove(&request.episode).unwrap_or_default();
        let must_answer = self.listen(&mut conversation, &request.tokens);
        let view = View {
            prompt: &conversation.prompt,
            shown: &conversation.shown,
            must_answer,
            seed: request.seed,
        };
        let written = self.script.write(&view)?;
        let written = if must_answer {
            rest_of_answer(&written).to_owned()
        } else {
            written
        };
        let completion = self.speak(written, &request);
        conversation.seen = request.tokens.len() + completion.tokens.len();
        self.episodes().insert(request.episode, conversation);
        Ok(completion)
    }

    fn release(&self, episode: u64) {
        self.episodes().remove(&episode);
    }
}

//! A script as a policy: text inside, tokens outside.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::code_search::{PYTHON_CLOSE, PYTHON_OPEN};
use crate::policy::{Completion, Finish, GenerateRequest, Policy, PolicyError};
use crate::protocol::Tag;
use crate::query_writer::{QUERY_CLOSE, QUERY_OPEN, REASONING_CLOSE, REASONING_OPEN};
use crate::seed::Seed;
use crate::tokenizer::Tokenizer;

/// What a script sees of its episode.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The opening prompt.
    pub prompt: &'a str,
    /// What the environment wrote after each turn so far.
    pub shown: &'a [String],
    /// The driver has opened the answer tag: only an answer makes sense.
    pub must_answer: bool,
    /// Start of this turn's random stream.
    pub seed: Seed,
}

/// What a script writes in one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// A search, after a thought unless that is empty.
    Search {
        /// Written between think tags.
        thought: String,
        /// The query.
        query: String,
    },
    /// A program, after a thought unless that is empty.
    Program {
        /// Written between think tags.
        thought: String,
        /// The program.
        code: String,
    },
    /// A query that ends the episode, after reasoning unless that is empty.
    Query {
        /// Written between reasoning tags.
        reasoning: String,
        /// The query.
        query: String,
    },
    /// An answer, after a thought unless that is empty.
    Answer {
        /// Written between think tags.
        thought: String,
        /// The answer.
        answer: String,
    },
    /// Text as it is.
    Raw(String),
}

/// Writes turns as text.
pub trait Script: Send + Sync {
    /// Writes the next turn.
    ///
    /// # Errors
    /// When the script cannot go on.
    fn write(&self, view: &View<'_>) -> Result<Written, PolicyError>;
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
pub struct Scripted<S> {
    script: S,
    tokenizer: Arc<dyn Tokenizer>,
    episodes: Mutex<HashMap<u64, Conversation>>,
}

impl<S: Script> Scripted<S> {
    /// Lets `script` speak the tokens of `tokenizer`.
    pub fn with_script(script: S, tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self { script, tokenizer, episodes: Mutex::default() }
    }

    fn episodes(&self) -> MutexGuard<'_, HashMap<u64, Conversation>> {
        self.episodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what is new in the request; returns whether the driver has opened the answer.
    fn listen(&self, conversation: &mut Conversation, tokens: &[u32]) -> bool {
        let first = conversation.seen == 0 || conversation.seen > tokens.len();
        if first {
            *conversation = Conversation { prompt: self.tokenizer.decode(tokens), ..Conversation::default() };
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
        let stops = request.stop.iter().filter_map(|stop| text.find(stop.as_str()).map(|start| start + stop.len()));
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
        Completion { logprobs: vec![0.0; tokens.len()], tokens, finish, version: 0 }
    }
}

/// The turn's text; after a forced `<answer>` only the rest of it.
fn render(written: Written, must_answer: bool) -> String {
    let (thought, [opening, closing], content) = match written {
        Written::Raw(text) => return text,
        Written::Query { reasoning, query } => {
            let reasoning = match reasoning.as_str() {
                "" => String::new(),
                reasoning => [REASONING_OPEN, reasoning, REASONING_CLOSE].concat(),
            };
            return [&reasoning, QUERY_OPEN, &query, QUERY_CLOSE].concat();
        }
        Written::Search { thought, query } => (thought, [Tag::Search.opening(), Tag::Search.closing()], query),
        Written::Program { thought, code } => (thought, [PYTHON_OPEN, PYTHON_CLOSE], code),
        Written::Answer { thought, answer } => (thought, [Tag::Answer.opening(), Tag::Answer.closing()], answer),
    };
    if must_answer {
        let content = if closing == Tag::Answer.closing() { content } else { String::new() };
        return [&content, Tag::Answer.closing()].concat();
    }
    let action = [opening, &content, closing].concat();
    if thought.is_empty() {
        return action;
    }
    [Tag::Think.opening(), &thought, Tag::Think.closing(), &action].concat()
}

#[async_trait]
impl<S: Script> Policy for Scripted<S> {
    fn version(&self) -> u64 {
        0
    }

    async fn generate(&self, request: GenerateRequest) -> Result<Completion, PolicyError> {
        if request.tokens.is_empty() {
            return Err(PolicyError::BadRequest("the prompt is empty".to_owned()));
        }
        let mut conversation = self.episodes().remove(&request.episode).unwrap_or_default();
        let must_answer = self.listen(&mut conversation, &request.tokens);
        let view = View { prompt: &conversation.prompt, shown: &conversation.shown, must_answer, seed: request.seed };
        let written = self.script.write(&view)?;
        let completion = self.speak(render(written, must_answer), &request);
        conversation.seen = request.tokens.len() + completion.tokens.len();
        self.episodes().insert(request.episode, conversation);
        Ok(completion)
    }

    fn release(&self, episode: u64) {
        self.episodes().remove(&episode);
    }
}

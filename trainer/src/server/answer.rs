//! Answers in OpenAI's form.

use std::collections::HashSet;

use axum::body::Bytes;
use forage_contracts::Tokenizer;
use forage_env::HfTokenizer;
use forage_net::Ticket;
use futures::stream::{self, BoxStream, StreamExt};
use serde::{Serialize, Serializer};

use super::app::{Answer, event};
use super::choice::{Delta, Told};
use super::fault::Fault;

/// Tokens counted.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "the protocol's names")]
pub(super) struct Usage {
    pub(super) prompt_tokens: usize,
    pub(super) completion_tokens: usize,
    total_tokens: usize,
}

impl Usage {
    pub(super) fn new(prompt_tokens: usize, completion_tokens: usize) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
        }
    }
}

/// What a body says of usage.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub(super) enum Count {
    /// Null: a later piece says it.
    Later,
    Known(Usage),
}

/// Log-probabilities in the form of `/v1/completions`: lists side by side.
#[derive(Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "the protocol's names")]
pub(super) struct Logprobs {
    tokens: Vec<String>,
    /// None for a first token, which nothing stands before.
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<Top>>,
    text_offset: Vec<usize>,
}

/// An object with the best first.
#[derive(Debug)]
struct Top(Vec<(String, f32)>);

impl Serialize for Top {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(token, logprob)| (token, logprob)))
    }
}

impl Logprobs {
    /// The log-probabilities of tokens whose text begins `before` characters into the answer's.
    pub(super) fn new(tokenizer: &HfTokenizer, tokens: &[Told], before: usize) -> Self {
        let mut logprobs = Self::default();
        for told in tokens {
            logprobs.push(tokenizer, told, before);
        }
        logprobs
    }

    /// A token that nothing stands before.
    pub(super) fn push_first(&mut self, tokenizer: &HfTokenizer, token: u32) {
        self.tokens.push(spelled(tokenizer, token));
        self.token_logprobs.push(None);
        self.top_logprobs.push(None);
        self.text_offset.push(0);
    }

    pub(super) fn push(&mut self, tokenizer: &HfTokenizer, told: &Told, before: usize) {
        let event = &told.event;
        let mut top: Vec<(u32, f32)> = event.top.clone();
        if !top.iter().any(|&(token, _)| token == event.token) {
            top.push((event.token, event.logprob));
        }
        let mut seen = HashSet::new();
        let spelled_top = top
            .into_iter()
            .map(|(token, logprob)| (spelled(tokenizer, token), logprob));
        // Of different tokens with one spelling the best counts.
        let top = spelled_top
            .filter(|(token, _)| seen.insert(token.clone()))
            .collect();
        self.tokens.push(spelled(tokenizer, event.token));
        self.token_logprobs.push(Some(event.logprob));
        self.top_logprobs.push(Some(Top(top)));
        self.text_offset.push(before + told.offset);
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.tokens.append(&mut other.tokens);
        self.token_logprobs.append(&mut other.token_logprobs);
        self.top_logprobs.append(&mut other.top_logprobs);
        self.text_offset.append(&mut other.text_offset);
    }
}

/// A token's text; for parts of characters their bytes, `bytes:\xe2\x80`, as OpenAI writes them.
fn spelled(tokenizer: &HfTokenizer, token: u32) -> String {
    match String::from_utf8(tokenizer.token_bytes(token)) {
        Ok(text) => text,
        Err(error) => {
            let hex: Vec<String> = error
                .as_bytes()
                .iter()
                .map(|byte| format!("\\x{byte:02x}"))
                .collect();
            format!("bytes:{}", hex.concat())
        }
    }
}

/// One choice of `/v1/completions`, whole or a piece of it.
#[derive(Debug, Serialize)]
pub(super) struct CompletionChoice {
    pub(super) index: usize,
    pub(super) text: String,
    pub(super) logprobs: Option<Logprobs>,
    pub(super) finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_token_ids: Option<Vec<u32>>,
}

/// The ids of tokens told.
pub(super) fn ids(tokens: &[Told]) -> Vec<u32> {
    tokens.iter().map(|told| told.event.token).collect()
}

/// What every answer and every piece of one begins with.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) object: &'static str,
    pub(super) created: u64,
    pub(super) model: String,
}

/// An answer or a piece of one.
#[derive(Debug, Serialize)]
pub(super) struct Body<'a, C> {
    #[serde(flatten)]
    pub(super) head: &'a Head,
    pub(super) choices: Vec<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_token_ids: Option<&'a [u32]>,
}

impl<C: Serialize> Body<'_, C> {
    pub(super) fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Writes the pieces of a streamed answer.
pub(super) trait Writer: Send + 'static {
    /// The events for what is new about a choice; empty when nothing can be said yet.
    fn delta(&mut self, index: usize, delta: Delta) -> Vec<u8>;

    /// The events after all choices ended, without the last, `[DONE]`.
    fn end(&mut self) -> Vec<u8>;
}

/// Streams what `writer` makes of `deltas`. Waits for the first of them, so that a request that the engine refuses gets a
/// proper status.
pub(super) async fn streamed(
    place: Ticket,
    mut deltas: BoxStream<'static, Result<(usize, Delta), Fault>>,
    writer: impl Writer,
) -> Result<Answer, Fault> {
    let first = deltas.next().await.transpose()?;
    let deltas = stream::iter(first.map(Ok)).chain(deltas).boxed();
    let state = (place, deltas, Some(writer));
    let events = stream::unfold(state, |(place, mut deltas, mut writer)| async move {
        loop {
            let bytes = match deltas.next().await {
                Some(Ok((index, delta))) => writer.as_mut()?.delta(index, delta),
                Some(Err(fault)) => return Some((Err(fault), (place, deltas, None))),
                None => {
                    let mut bytes = writer.take()?.end();
                    bytes.extend_from_slice(&event(b"[DONE]"));
                    bytes
                }
            };
            if !bytes.is_empty() {
                return Some((Ok(Bytes::from(bytes)), (place, deltas, writer)));
            }
        }
    });
    Ok(Answer::Stream(events.boxed()))
}

/// The text of a prompt's tokens and, of each, the characters before it.
pub(super) fn offsets(tokenizer: &HfTokenizer, tokens: &[u32]) -> (String, Vec<usize>) {
    let mut detokenizer = super::text::Detokenizer::default();
    let (mut text, mut before) = (String::new(), 0);
    let mut offsets = Vec::with_capacity(tokens.len());
    for &token in tokens {
        offsets.push(before);
        let piece = detokenizer.push(tokenizer as &dyn Tokenizer, token);
        before += piece.chars().count();
        text.push_str(&piece);
    }
    text.push_str(&detokenizer.finish(tokenizer));
    (text, offsets)
}

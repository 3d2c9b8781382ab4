//! What requests ask for.

use std::fmt::{self, Formatter};

use forage_contracts::policy::Sampling;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::fault::Fault;
use super::fields::Fields;

/// Completions of one prompt at most.
const MAX_CHOICES: usize = 128;
/// Prompts that are read at most; servers take fewer.
const MAX_PROMPTS: usize = 100_000;
/// Log-probabilities of other tokens at each position at most.
pub(super) const MAX_TOP: usize = 20;
/// Stop strings at most.
const MAX_STOPS: usize = 16;
/// Tokens of a completion whose length the request leaves open, as in OpenAI's protocol.
const COMPLETION_TOKENS: usize = 16;

/// What completions and chats have in common.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "the protocol's own switches")]
pub(super) struct Common {
    pub(super) model: Option<String>,
    /// Choices per prompt.
    pub(super) n: usize,
    pub(super) sampling: Sampling,
    pub(super) stop: Vec<String>,
    pub(super) include_stop: bool,
    pub(super) seed: Option<u64>,
    pub(super) ignore_eos: bool,
    /// A token that ends completions beside the model's own.
    pub(super) end: Option<u32>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) token_ids: bool,
}

impl Common {
    pub(super) fn take(fields: &mut Fields, defaults: Sampling) -> Result<Self, Fault> {
        let n = fields.count("n", 1..=MAX_CHOICES)?.unwrap_or(1);
        let temperature = fields.number("temperature", "a number of at least 0", |number| {
            number >= 0.0
        })?;
        let top_p = fields.number("top_p", "a number above 0 and at most 1", |number| {
            number > 0.0 && number <= 1.0
        })?;
        // -1 asks for all, as 0 does.
        let top_k = fields
            .integer("top_k", -1..=i64::MAX)?
            .map(|number| usize::try_from(number).unwrap_or(0));
        let min_p = fields.number("min_p", "a number between 0 and 1", |number| {
            (0.0..=1.0).contains(&number)
        })?;
        let stream = fields.flag("stream")?;
        let include_usage = match fields.take("stream_options") {
            None => false,
            Some(_) if !stream => {
                return Err(Fault::invalid(
                    "stream_options",
                    "`stream_options` needs `stream`: true",
                ));
            }
            Some(value) => {
                let mut options = Fields::of(value, "stream_options")?;
                let include = options.flag("include_usage")?;
                // Padding against eavesdroppers of OpenAI's servers.
                options.flag("include_obfuscation")?;
                options.finish()?;
                include
            }
        };
        Ok(Self {
            model: fields.text("model")?,
            n,
            sampling: Sampling {
                temperature: temperature.unwrap_or(defaults.temperature),
                top_p: top_p.unwrap_or(defaults.top_p),
                top_k: top_k.unwrap_or(defaults.top_k),
                min_p: min_p.unwrap_or(defaults.min_p),
            },
            stop: fields.texts("stop", MAX_STOPS)?,
            // vLLM's name, and SGLang's.
            include_stop: fields.flag("include_stop_str_in_output")?
                | fields.flag("no_stop_trim")?,
            seed: fields
                .integer("seed", i64::MIN..=i64::MAX)?
                .map(i64::cast_unsigned),
            ignore_eos: fields.flag("ignore_eos")?,
            end: None,
            stream,
            include_usage,
            token_ids: fields.flag("return_token_ids")?,
        })
    }
}

/// What is to be continued.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

/// The body of `POST /v1/completions`.
#[derive(Debug, Clone)]
pub(super) struct CompletionRequest {
    pub(super) common: Common,
    /// Prompts in the order of the answer.
    pub(super) prompts: Vec<Prompt>,
    /// 0 only with `echo`.
    pub(super) max_tokens: usize,
    pub(super) echo: bool,
    /// Other tokens whose log-probabilities are told at each position; `None` for no log-probabilities at all.
    pub(super) logprobs: Option<usize>,
}

impl CompletionRequest {
    /// # Errors
    /// The first thing that is wrong with the body.
    pub(super) fn parse(body: &[u8], defaults: Sampling) -> Result<Self, Fault> {
        let mut fields = Fields::read(body)?;
        let common = Common::take(&mut fields, defaults)?;
        let echo = fields.flag("echo")?;
        let max_tokens = fields
            .count("max_tokens", 0..=usize::MAX)?
            .unwrap_or(COMPLETION_TOKENS);
        if max_tokens == 0 && !echo {
            return Err(Fault::invalid(
                "max_tokens",
                "`max_tokens` must be at least 1 unless `echo` is true",
            ));
        }
        let logprobs = fields.count("logprobs", 0..=MAX_TOP)?;
        if let Some(best_of) = fields.count("best_of", 1..=MAX_CHOICES)?
            && best_of != common.n
        {
            return Err(Fault::invalid(
                "best_of",
                "`best_of` other than `n` is not supported; leave it out",
            ));
        }
        let prompts = prompts(fields.take_prompt())?;
        fields.finish()?;
        Ok(Self {
            common,
            prompts,
            max_tokens,
            echo,
            logprobs,
        })
    }
}

fn prompts(value: Option<Box<RawValue>>) -> Result<Vec<Prompt>, Fault> {
    let must = "`prompt` must be a string, a list of strings, a list of token ids or a list of lists of token ids";
    let wrong = || Fault::invalid("prompt", must);
    let value = value.ok_or_else(wrong)?;
    let Prompts(prompts) = serde_json::from_str(value.get()).map_err(|_| wrong())?;
    let empty = |prompt: &Prompt| match prompt {
        Prompt::Text(text) => text.is_empty(),
        Prompt::Tokens(tokens) => tokens.is_empty(),
    };
    if prompts.is_empty() || prompts.iter().any(empty) {
        return Err(Fault::invalid(
            "prompt",
            "`prompt` is empty; there must be at least one token to continue",
        ));
    }
    Ok(prompts)
}

/// Everything that is to be continued.
struct Prompts(Vec<Prompt>);

/// What stands in the list of prompts, which may be one prompt itself.
enum Item {
    Token(u32),
    Prompt(Prompt),
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PromptsVisitor)
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

struct PromptsVisitor;

impl<'de> Visitor<'de> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("a prompt or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts(vec![Prompt::Text(text.to_owned())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompts, A::Error> {
        let mut prompts = Vec::new();
        match list.next_element()? {
            None => {}
            Some(Item::Token(first)) => prompts.push(Prompt::Tokens(tokens(Some(first), list)?)),
            Some(Item::Prompt(first)) => {
                prompts.push(first);
                while let Some(item) = list.next_element()? {
                    match item {
                        Item::Prompt(prompt) if prompts.len() < MAX_PROMPTS => prompts.push(prompt),
                        _ => return Err(de::Error::custom("no prompt, or too many")),
                    }
                }
            }
        }
        Ok(Prompts(prompts))
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string, a token id or a list of token ids")
    }

    fn visit_u64<E: de::Error>(self, id: u64) -> Result<Item, E> {
        let id = u32::try_from(id).map_err(de::Error::custom)?;
        Ok(Item::Token(id))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Item, E> {
        Ok(Item::Prompt(Prompt::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Item, A::Error> {
        Ok(Item::Prompt(Prompt::Tokens(tokens(None, list)?)))
    }
}

/// Token ids, the first of which may have been read already.
fn tokens<'de, A: SeqAccess<'de>>(first: Option<u32>, mut list: A) -> Result<Vec<u32>, A::Error> {
    let mut tokens = Vec::from_iter(first);
    while let Some(id) = list.next_element()? {
        tokens.push(id);
    }
    Ok(tokens)
}

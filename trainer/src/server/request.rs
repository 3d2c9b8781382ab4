//! What requests ask for.

use forage_env::policy::Sampling;
use serde_json::Value;

use super::fault::Fault;
use super::fields::Fields;

/// Completions of one prompt at most.
const MAX_CHOICES: usize = 128;
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
            include_stop: fields.flag("include_stop_str_in_output")?,
            seed: fields
                .integer("seed", i64::MIN..=i64::MAX)?
                .map(i64::cast_unsigned),
            ignore_eos: fields.flag("ignore_eos")?,
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
    /// In the order of the answer.
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
        let prompts = prompts(fields.take("prompt"))?;
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

fn prompts(value: Option<Value>) -> Result<Vec<Prompt>, Fault> {
    let must = "`prompt` must be a string, a list of strings, a list of token ids or a list of lists of token ids";
    let wrong = || Fault::invalid("prompt", must);
    let prompts: Vec<Prompt> = match value.ok_or_else(wrong)? {
        Value::String(text) => vec![Prompt::Text(text)],
        Value::Array(values) if values.first().is_some_and(Value::is_number) => {
            vec![tokens(&values).ok_or_else(wrong)?]
        }
        Value::Array(values) => {
            let prompt = |value| match value {
                Value::String(text) => Some(Prompt::Text(text)),
                Value::Array(values) => tokens(&values),
                _ => None,
            };
            values
                .into_iter()
                .map(prompt)
                .collect::<Option<_>>()
                .ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
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

fn tokens(values: &[Value]) -> Option<Prompt> {
    let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
    values
        .iter()
        .map(id)
        .collect::<Option<_>>()
        .map(Prompt::Tokens)
}

//! The values of a request's body, taken out one by one; what is left over is refused by name.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use forage_net::count_values;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::fault::Fault;

/// What clients send for the records of OpenAI's own servers; it has no bearing on the answer.
const HARMLESS: [&str; 7] = [
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
];

/// Most bytes of a stop string: as much text is looked through again with every token.
const LONGEST_TEXT: usize = 1024;

/// JSON values of a body beside its prompt at most, with their keys: messages and tools are trees of them.
const MAX_VALUES: usize = 100_000;

/// Known elsewhere but not here: taken only where they ask for nothing.
const UNSUPPORTED: [&str; 28] = [
    "add_special_tokens",
    "audio",
    "bad_words",
    "best_of",
    "chat_template",
    "early_stopping",
    "frequency_penalty",
    "function_call",
    "functions",
    "length_penalty",
    "logit_bias",
    "min_tokens",
    "modalities",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_logprobs",
    "reasoning_effort",
    "repetition_penalty",
    "response_format",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop_token_ids",
    "suffix",
    "truncate_prompt_tokens",
    "use_beam_search",
    "verbosity",
    "web_search_options",
];

/// Whether a value of an unsupported field asks for what happens anyway.
fn neutral(key: &str, value: &Value) -> bool {
    match key {
        "presence_penalty" | "frequency_penalty" | "min_tokens" => value.as_f64() == Some(0.0),
        "repetition_penalty" | "length_penalty" => value.as_f64() == Some(1.0),
        "suffix" => value == "",
        "logit_bias" => value.as_object().is_some_and(Map::is_empty),
        "stop_token_ids" | "bad_words" | "functions" => value.as_array().is_some_and(Vec::is_empty),
        "use_beam_search" | "early_stopping" | "skip_special_tokens" | "add_special_tokens" => {
            value == false
        }
        "parallel_tool_calls" => value == true,
        "spaces_between_special_tokens" => value.is_boolean(),
        "modalities" => value == &serde_json::json!(["text"]),
        "response_format" => value == &serde_json::json!({"type": "text"}),
        _ => false,
    }
}

/// The number of values in a body's prompt, where that is many.
fn prompt_values(body: &[u8]) -> usize {
    #[derive(Deserialize)]
    struct Outer<'a> {
        #[serde(borrow)]
        prompt: Option<&'a RawValue>,
    }
    if count_values(body) <= MAX_VALUES {
        return 0;
    }
    let prompt = serde_json::from_slice::<Outer<'_>>(body).ok();
    prompt
        .and_then(|outer| outer.prompt)
        .map_or(0, |raw| count_values(raw.get().as_bytes()))
}

#[derive(Debug)]
pub(super) struct Fields {
    object: Map<String, Value>,
    /// Where the object stands in the body, with a dot behind it; empty for the body itself.
    place: String,
    /// The body's prompts, as text: millions of token ids are not a tree of values.
    prompt: Option<Box<RawValue>>,
}

impl Fields {
    pub(super) fn read(body: &[u8]) -> Result<Self, Fault> {
        let broken = |message: String| Fault::Invalid {
            message,
            param: None,
            code: None,
        };
        let values = count_values(body).saturating_sub(prompt_values(body));
        if values > MAX_VALUES {
            return Err(broken(format!(
                "the body has about {values} JSON values beside its prompt, at most {MAX_VALUES} are read; send less"
            )));
        }
        let not_json = |error: serde_json::Error| {
            broken(if error.is_data() {
                "the body must be a JSON object".to_owned()
            } else {
                format!("the body is not JSON: {error}")
            })
        };
        let mut raw: BTreeMap<String, &RawValue> =
            serde_json::from_slice(body).map_err(not_json)?;
        let prompt = raw.remove("prompt").filter(|raw| raw.get() != "null");
        let values = raw
            .into_iter()
            .map(|(key, raw)| Ok((key, serde_json::from_str(raw.get())?)));
        Ok(Self {
            object: values.collect::<Result<_, _>>().map_err(not_json)?,
            place: String::new(),
            prompt: prompt.map(ToOwned::to_owned),
        })
    }

    /// Takes out what is to be continued, as JSON.
    pub(super) fn take_prompt(&mut self) -> Option<Box<RawValue>> {
        self.prompt.take()
    }

    /// The fields of an object inside the body.
    pub(super) fn of(value: Value, place: &str) -> Result<Self, Fault> {
        match value {
            Value::Object(object) => Ok(Self {
                object,
                place: format!("{place}."),
                prompt: None,
            }),
            _ => Err(Fault::invalid(
                place,
                format!("`{place}` must be an object"),
            )),
        }
    }

    fn wrong(&self, key: &str, must: &str) -> Fault {
        let name = format!("{}{key}", self.place);
        Fault::invalid(&name, format!("`{name}` must be {must}"))
    }

    /// Takes a value out; null is as good as absent.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.object
            .swap_remove(key)
            .filter(|value| !value.is_null())
    }

    pub(super) fn integer(
        &mut self,
        key: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, Fault> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let number = value.as_i64().filter(|number| range.contains(number));
        let must = || match *range.end() {
            i64::MAX => format!("a whole number of at least {}", range.start()),
            end => format!("a whole number between {} and {end}", range.start()),
        };
        number.map(Some).ok_or_else(|| self.wrong(key, &must()))
    }

    pub(super) fn count(
        &mut self,
        key: &str,
        range: RangeInclusive<usize>,
    ) -> Result<Option<usize>, Fault> {
        let bound = |end: usize| i64::try_from(end).unwrap_or(i64::MAX);
        let number = self.integer(key, bound(*range.start())..=bound(*range.end()))?;
        Ok(number.map(|number| number as usize))
    }

    /// A finite number for which `holds`.
    pub(super) fn number(
        &mut self,
        key: &str,
        must: &str,
        holds: impl Fn(f32) -> bool,
    ) -> Result<Option<f32>, Fault> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let number = value
            .as_f64()
            .map(|number| number as f32)
            .filter(|&number| number.is_finite() && holds(number));
        number.map(Some).ok_or_else(|| self.wrong(key, must))
    }

    /// A boolean, false where it is absent.
    pub(super) fn flag(&mut self, key: &str) -> Result<bool, Fault> {
        Ok(self.choice(key)?.unwrap_or(false))
    }

    /// A boolean.
    pub(super) fn choice(&mut self, key: &str) -> Result<Option<bool>, Fault> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        value
            .as_bool()
            .map(Some)
            .ok_or_else(|| self.wrong(key, "true or false"))
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, Fault> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(key, "a string")),
        }
    }

    /// A string or a list of at most `most`; none may be empty, nor longer than [`LONGEST_TEXT`].
    pub(super) fn texts(&mut self, key: &str, most: usize) -> Result<Vec<String>, Fault> {
        let values = match self.take(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(values)) => values,
            Some(value) => vec![value],
        };
        let must =
            format!("a string or a list of at most {most} strings of 1 to {LONGEST_TEXT} bytes");
        let text = |value| match value {
            Value::String(text) if (1..=LONGEST_TEXT).contains(&text.len()) => Some(text),
            _ => None,
        };
        let count = values.len();
        let texts: Option<Vec<String>> = values.into_iter().map(text).collect();
        texts
            .filter(|_| count <= most)
            .ok_or_else(|| self.wrong(key, &must))
    }

    /// Refuses what nobody took out, unless it has no bearing on the answer.
    pub(super) fn finish(mut self) -> Result<(), Fault> {
        if self.prompt.is_some() {
            self.object.insert("prompt".to_owned(), Value::Bool(true));
        }
        for (key, value) in &self.object {
            let name = format!("{}{key}", self.place);
            if value.is_null()
                || (self.place.is_empty() && HARMLESS.contains(&key.as_str()))
                || neutral(key, value)
            {
                continue;
            }
            let message = if UNSUPPORTED.contains(&key.as_str()) {
                format!("`{name}` is not supported with this value; leave it out")
            } else {
                format!("unknown field `{name}`; leave it out or fix its name")
            };
            return Err(Fault::Invalid {
                message,
                param: Some(name),
                code: Some("unsupported_parameter"),
            });
        }
        Ok(())
    }
}

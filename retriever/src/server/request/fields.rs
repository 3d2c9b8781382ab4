//! The values of a body, taken out one by one while faults are collected.

use std::collections::BTreeMap;

use forage_contracts::retriever::Filter;
use forage_net::count_values;
use serde_json::{Map, Value};

use super::{Limits, Place, Problem};
use crate::mode::Mode;
use crate::statistics::Statistics;

/// Faults listed at most: a list of a thousand numbers for queries need not come back a thousandfold.
const MAX_PROBLEMS: usize = 20;

/// JSON values of a body at most, with their keys: as many as documents to rerank may need.
const MAX_VALUES: usize = 500_000;

pub(super) struct Fields {
    object: Map<String, Value>,
    problems: Vec<Problem>,
}

impl Fields {
    pub(super) fn read(body: &[u8]) -> Result<Self, Vec<Problem>> {
        if body.is_empty() {
            return Err(vec![Problem::new("missing", vec![], "Field required")]);
        }
        let values = count_values(body);
        if values > MAX_VALUES {
            let msg = format!(
                "about {values} JSON values, at most {MAX_VALUES} are read; split the batch"
            );
            return Err(vec![Problem::new("too_long", vec![], msg)]);
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(object)) => Ok(Self {
                object,
                problems: Vec::new(),
            }),
            Ok(_) => {
                let msg = "Input should be a valid dictionary or object to extract fields from";
                Err(vec![Problem::new("model_attributes_type", vec![], msg)])
            }
            Err(error) => {
                let offset = offset(body, error.line(), error.column());
                Err(vec![Problem::new(
                    "json_invalid",
                    vec![offset.into()],
                    format!("JSON decode error: {error}"),
                )])
            }
        }
    }

    /// Gives the faults, if there are any.
    pub(super) fn finish(self) -> Result<(), Vec<Problem>> {
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(self.problems)
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.object.contains_key(key)
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.object.get(key)
    }

    /// Takes a value out; order of the rest does not matter.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.object.swap_remove(key)
    }

    /// Takes an optional value out: null is as good as absent.
    fn optional(&mut self, key: &str) -> Option<Value> {
        self.take(key).filter(|value| !value.is_null())
    }

    fn wrong(&mut self, kind: &'static str, path: Vec<Place>, msg: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem::new(kind, path, msg));
        }
    }

    /// A text; `path` is asked for where it is none.
    fn string(
        &mut self,
        value: Value,
        path: impl FnOnce() -> Vec<Place>,
        max_bytes: usize,
    ) -> Option<String> {
        let Value::String(text) = value else {
            self.wrong("string_type", path(), "Input should be a valid string");
            return None;
        };
        if text.len() > max_bytes {
            let msg = format!(
                "query of {} bytes, at most {max_bytes} are searched; shorten it",
                text.len()
            );
            self.wrong("string_too_long", path(), msg);
            return None;
        }
        Some(text)
    }

    /// A text that must be there.
    pub(super) fn text(&mut self, key: &str, max_bytes: usize) -> Option<String> {
        let Some(value) = self.take(key) else {
            self.wrong("missing", vec![key.into()], "Field required");
            return None;
        };
        self.string(value, || vec![key.into()], max_bytes)
    }

    /// A list of texts that must be there.
    pub(super) fn texts(&mut self, key: &str, limits: &Limits) -> Vec<String> {
        let Some(value) = self.take(key) else {
            self.wrong("missing", vec![key.into()], "Field required");
            return Vec::new();
        };
        let Value::Array(values) = value else {
            self.wrong(
                "list_type",
                vec![key.into()],
                "Input should be a valid list",
            );
            return Vec::new();
        };
        if values.len() > limits.max_queries {
            let msg = format!(
                "{} queries, at most {} go into one request; split the batch",
                values.len(),
                limits.max_queries
            );
            self.wrong("too_long", vec![key.into()], msg);
            return Vec::new();
        }
        let numbered = values.into_iter().enumerate();
        numbered
            .filter_map(|(index, value)| {
                let path = || vec![key.into(), index.into()];
                self.string(value, path, limits.max_query_bytes)
            })
            .collect()
    }

    /// A number of passages; absent, null and 0 all ask for the default.
    pub(super) fn count(&mut self, key: &str, most: usize) -> Option<usize> {
        let value = self.optional(key)?;
        let path = vec![key.into()];
        let number = match &value {
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => whole,
                (None, Some(float)) if float.fract() == 0.0 && float.abs() < 1e15 => float as i64,
                (None, Some(float)) if float.fract() == 0.0 => {
                    if float > 0.0 {
                        i64::MAX
                    } else {
                        i64::MIN
                    }
                }
                _ => {
                    let msg =
                        "Input should be a valid integer, got a number with a fractional part";
                    self.wrong("int_from_float", path, msg);
                    return None;
                }
            },
            Value::String(text) => {
                let Ok(whole) = text.trim().parse() else {
                    let msg =
                        "Input should be a valid integer, unable to parse string as an integer";
                    self.wrong("int_parsing", path, msg);
                    return None;
                };
                whole
            }
            _ => {
                self.wrong("int_type", path, "Input should be a valid integer");
                return None;
            }
        };
        match usize::try_from(number) {
            Ok(0) => None,
            Ok(count) if count <= most => Some(count),
            Ok(_) => {
                self.wrong(
                    "less_than_equal",
                    path,
                    format!("Input should be less than or equal to {most}"),
                );
                None
            }
            Err(_) => {
                self.wrong(
                    "greater_than_equal",
                    path,
                    "Input should be greater than or equal to 0",
                );
                None
            }
        }
    }

    /// A boolean; `None` when absent.
    pub(super) fn flag(&mut self, key: &str) -> Option<bool> {
        let value = self.take(key)?;
        let read = match &value {
            Value::Bool(flag) => Some(*flag),
            Value::Number(number) if number.as_f64() == Some(0.0) => Some(false),
            Value::Number(number) if number.as_f64() == Some(1.0) => Some(true),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Some(true),
                "false" | "0" | "no" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        };
        if read.is_none() {
            self.wrong(
                "bool_type",
                vec![key.into()],
                "Input should be a valid boolean",
            );
        }
        read
    }

    pub(super) fn mode(&mut self, key: &str) -> Option<Mode> {
        let value = self.optional(key)?;
        let mode = serde_json::from_value(value).ok();
        if mode.is_none() {
            let names: Vec<String> = Mode::all().map(|mode| format!("'{mode}'")).collect();
            let message = match names.split_last() {
                Some((last, others)) if !others.is_empty() => {
                    format!("Input should be {} or {last}", others.join(", "))
                }
                _ => format!("Input should be {}", names.join("")),
            };
            self.wrong("enum", vec![key.into()], &message);
        }
        mode
    }

    /// `{"field": "value"}` or `{"field": ["value", "value"]}`.
    pub(super) fn filter(&mut self, key: &str) -> Option<Filter> {
        let Value::Object(object) = self.optional(key)? else {
            self.wrong(
                "dict_type",
                vec![key.into()],
                "Input should be a valid dictionary",
            );
            return None;
        };
        let mut fields = BTreeMap::new();
        for (name, value) in object {
            let values = match value {
                Value::Array(values) => values,
                one => vec![one],
            };
            let numbered = values.into_iter().enumerate();
            let texts = numbered
                .filter_map(|(index, value)| {
                    let path = || vec![key.into(), name.as_str().into(), index.into()];
                    self.string(value, path, usize::MAX)
                })
                .collect();
            fields.insert(name, texts);
        }
        Some(Filter(fields))
    }

    pub(super) fn statistics(&mut self, key: &str) -> Option<Statistics> {
        let value = self.optional(key)?;
        match serde_json::from_value(value) {
            Ok(statistics) => Some(statistics),
            Err(error) => {
                self.wrong("statistics", vec![key.into()], error.to_string());
                None
            }
        }
    }

    /// One list of documents per query, as the texts a reranker reads.
    pub(super) fn documents(&mut self, key: &str, queries: usize, most: usize) -> Vec<Vec<String>> {
        let Some(value) = self.take(key) else {
            self.wrong("missing", vec![key.into()], "Field required");
            return Vec::new();
        };
        let Value::Array(lists) = value else {
            self.wrong(
                "list_type",
                vec![key.into()],
                "Input should be a valid list",
            );
            return Vec::new();
        };
        if lists.len() != queries && self.problems.is_empty() {
            let msg = format!(
                "{} lists of documents for {queries} queries; give one list per query",
                lists.len()
            );
            self.wrong("length_mismatch", vec![key.into()], msg);
        }
        let mut texts = Vec::with_capacity(lists.len());
        for (outer, list) in lists.into_iter().enumerate() {
            let Value::Array(documents) = list else {
                self.wrong(
                    "list_type",
                    vec![key.into(), outer.into()],
                    "Input should be a valid list",
                );
                continue;
            };
            if documents.len() > most {
                let msg = format!(
                    "{} documents for one query, at most {most} are scored",
                    documents.len()
                );
                self.wrong("too_long", vec![key.into(), outer.into()], msg);
                continue;
            }
            let numbered = documents.into_iter().enumerate();
            let path = |inner: usize| vec![key.into(), outer.into(), inner.into()];
            texts.push(
                numbered
                    .filter_map(|(inner, value)| self.document(value, path(inner)))
                    .collect(),
            );
        }
        texts
    }

    fn document(&mut self, mut value: Value, mut path: Vec<Place>) -> Option<String> {
        if let Some(inner) = value.get_mut("document") {
            value = inner.take();
            path.push("document".into());
        }
        match value {
            Value::String(text) => Some(text),
            Value::Object(mut object) => match object.swap_remove("contents") {
                Some(Value::String(contents)) => Some(model_text(&contents)),
                Some(_) => {
                    path.push("contents".into());
                    self.wrong("string_type", path, "Input should be a valid string");
                    None
                }
                None => {
                    path.push("contents".into());
                    self.wrong("missing", path, "Field required");
                    None
                }
            },
            _ => {
                self.wrong("dict_type", path, "Input should be a valid dictionary");
                None
            }
        }
    }

    pub(super) fn limit_passages(&mut self, lists: usize, k: usize, most: usize) {
        let asked = lists.saturating_mul(k);
        if asked > most {
            let msg = format!(
                "{asked} passages asked for, at most {most} go into one answer; split the batch"
            );
            self.wrong("too_long", vec![], msg);
        }
    }
}

/// Contents as Search-R1 hands them to its reranker: the first line is the title, quotes and all.
fn model_text(contents: &str) -> String {
    let (title, text) = contents.split_once('\n').unwrap_or((contents, ""));
    format!("(Title: {title}) {text}")
}

/// Byte offset of a 1-based line and column.
fn offset(body: &[u8], line: usize, column: usize) -> usize {
    let before: usize = body
        .split(|byte| *byte == b'\n')
        .take(line.saturating_sub(1))
        .map(|line| line.len() + 1)
        .sum();
    (before + column.saturating_sub(1)).min(body.len())
}

//! Conversion of servers' records into hits.

use std::collections::HashSet;

use forage_contracts::retriever::{Filter, Fingerprint, Hit};
use forage_net::Fault;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::corpus::{content_hash, split_contents};

/// The fields of a stored object that hold the parts of a passage; a field of an object inside it by its path, `page.title`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FieldNames {
    /// Field with the passage's id. None: the engine's own id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// Field with the title; a passage without it has an empty title.
    pub(super) title: String,
    /// Field with the text.
    pub(super) text: String,
    /// Field with title and text in Search-R1's form, read where there is no text.
    pub(super) contents: String,
}

impl Default for FieldNames {
    fn default() -> Self {
        Self {
            id: None,
            title: "title".to_owned(),
            text: "text".to_owned(),
            contents: "contents".to_owned(),
        }
    }
}

impl FieldNames {
    /// The names to ask a server for.
    pub(super) fn wanted(&self) -> Vec<&str> {
        let mut names = vec![
            self.title.as_str(),
            self.text.as_str(),
            self.contents.as_str(),
        ];
        names.extend(self.id.as_deref());
        names
    }

    /// The stored name of a field of passages; none for the engine's own id.
    pub(super) fn stored<'a>(&'a self, field: &'a str) -> Option<&'a str> {
        match field {
            "id" => self.id.as_deref(),
            "title" => Some(&self.title),
            other => Some(other),
        }
    }

    /// Everything that decides the mapping, for fingerprints.
    pub(super) fn identity(&self) -> String {
        let id = self.id.as_deref().unwrap_or("");
        format!(
            "id={id} title={} text={} contents={}",
            self.title, self.text, self.contents
        )
    }

    /// The passage in a stored object. `engine_id` is the id outside the object, empty when there is none.
    pub(super) fn hit(
        &self,
        mut object: Map<String, Value>,
        engine_id: String,
        score: f32,
    ) -> Result<Hit, Fault> {
        let id = match &self.id {
            None if engine_id.is_empty() => {
                let what = "a hit has no id; name the field that holds it in `fields.id`";
                return Err(what.to_owned().into());
            }
            None => engine_id,
            Some(field) => taken(&mut object, field)
                .and_then(id_of)
                .ok_or_else(|| format!("a hit has no id in field `{field}`; see `fields.id`"))?,
        };
        let mut take = |field: &str| match taken(&mut object, field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(Fault::Protocol(format!(
                "field `{field}` of `{id}` is neither a string nor a number; see `fields`"
            ))),
        };
        let title = take(&self.title)?;
        if let Some(text) = take(&self.text)? {
            return Ok(Hit {
                id,
                score,
                title: title.unwrap_or_default(),
                text,
            });
        }
        let Some(contents) = take(&self.contents)? else {
            return Err(Fault::Protocol(format!(
                "`{id}` has neither `{}` nor `{}`; see `fields`",
                self.text, self.contents
            )));
        };
        let (first, text) = split_contents("", contents.into());
        Ok(Hit {
            id,
            score,
            title: title.unwrap_or(first),
            text,
        })
    }
}

/// The value of a field, by its name or by its path through objects, `page.title`. A list of one value is that value, since to search
/// engines a field has any number of them.
fn taken(object: &mut Map<String, Value>, field: &str) -> Option<Value> {
    match object.remove(field) {
        Some(Value::Array(mut values)) if values.len() == 1 => values.pop(),
        None => field.match_indices('.').find_map(|(dot, _)| {
            let inner = object.get_mut(&field[..dot])?.as_object_mut()?;
            taken(inner, &field[dot + 1..])
        }),
        value => value,
    }
}

/// An id: a string that is not empty, or an integer written out.
pub(super) fn id_of(value: Value) -> Option<String> {
    match value {
        Value::String(id) if !id.is_empty() => Some(id),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    }
}

/// The id of a passage that came without one: the same for the same title and text.
pub(super) fn id_of_contents(title: &str, text: &str) -> String {
    let hash = u128::from_be_bytes(content_hash(title, text));
    format!("contents:{hash:032x}")
}

/// A score that can be compared.
pub(super) fn finite(score: f64) -> Result<f32, Fault> {
    let narrow = score as f32;
    if narrow.is_finite() {
        Ok(narrow)
    } else {
        Err(format!("score {score} is not a finite number").into())
    }
}

/// Puts one list into the order of the contract, keeps the better of hits with one id, and cuts to `k`.
pub(super) fn arrange(hits: &mut Vec<Hit>, k: usize) {
    hits.sort_by(Hit::rank);
    let mut seen = HashSet::with_capacity(hits.len());
    hits.retain(|hit| seen.insert(hit.id.clone()));
    hits.truncate(k);
}

/// Tells whether nothing can pass: some field must have one of no values. Servers differ in what they make of an empty list.
pub(super) fn keeps_nothing(filter: &Filter) -> bool {
    filter.0.values().any(Vec::is_empty)
}

/// Names a server and how it is asked.
pub(super) fn fingerprint(kind: &str, parts: &[&str]) -> Fingerprint {
    let named = format!("remote {kind}\n{}\n", parts.join("\n"));
    Fingerprint::of(&named)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_sorted_by_score_then_id_without_repeats() {
        let hit = |id: &str, score| Hit {
            id: id.to_owned(),
            score,
            title: String::new(),
            text: String::new(),
        };
        let mut hits = vec![
            hit("b", 1.0),
            hit("c", 2.0),
            hit("a", 1.0),
            hit("c", 3.0),
            hit("d", 0.5),
        ];
        arrange(&mut hits, 3);
        let kept: Vec<_> = hits
            .iter()
            .map(|hit| (hit.id.as_str(), hit.score))
            .collect();
        assert_eq!(kept, [("c", 3.0), ("a", 1.0), ("b", 1.0)]);
    }

    #[test]
    fn parts_of_a_passage_are_found_as_search_engines_store_them() {
        let names = FieldNames {
            id: Some("page.id".to_owned()),
            title: "page.title".to_owned(),
            text: "body".to_owned(),
            contents: "contents".to_owned(),
        };
        let read = |stored: Value| {
            let Value::Object(stored) = stored else {
                panic!("an object")
            };
            let hit = names.hit(stored, String::new(), 1.0);
            hit.map(|hit| [hit.id, hit.title, hit.text])
        };
        let expected = ["7", "1984", "A novel."].map(str::to_owned);
        for stored in [
            json!({"page": {"id": 7, "title": 1984}, "body": "A novel."}),
            json!({"page": {"id": ["7"], "title": ["1984"]}, "body": ["A novel."]}),
            json!({"page.id": "7", "page.title": "1984", "body": "A novel."}),
        ] {
            assert_eq!(read(stored).unwrap(), expected);
        }
        for body in [json!(["one", "two"]), json!(true), json!({"text": "one"})] {
            let fault = read(json!({"page": {"id": "7"}, "body": body})).unwrap_err();
            assert!(fault.to_string().contains("neither a string"), "{fault}");
        }
        let nowhere = read(json!({"page": "7", "body": "A novel."})).unwrap_err();
        assert!(nowhere.to_string().contains("no id"), "{nowhere}");
    }

    #[test]
    fn ids_of_contents_tell_title_from_text() {
        assert_eq!(id_of_contents("a", "b"), id_of_contents("a", "b"));
        assert_ne!(id_of_contents("a", "bc"), id_of_contents("ab", "c"));
    }

    #[test]
    fn scores_must_fit() {
        assert_eq!(finite(0.25).unwrap().to_bits(), 0.25_f32.to_bits());
        assert!(finite(f64::NAN).is_err() && finite(1e300).is_err());
    }
}

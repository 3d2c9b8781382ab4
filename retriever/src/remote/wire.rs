//! The Search-R1 protocol as a client sees it: `POST /retrieve`, and what this crate's server adds to it.

use forage_contracts::retriever::{Filter, Hit, Query};
use forage_net::Fault;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::hits::{arrange, finite, id_of, id_of_contents};
use crate::corpus::split_contents;
use crate::mode::Mode;
use crate::statistics::Statistics;

/// A request. Foreign servers know the first three fields; the others are left out for them.
#[derive(Serialize)]
pub(super) struct RetrieveRequest<'a> {
    pub(super) queries: Vec<&'a str>,
    pub(super) topk: usize,
    pub(super) return_scores: bool,
    #[serde(skip_serializing_if = "Filter::is_empty")]
    pub(super) filter: &'a Filter,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) statistics: Option<&'a Statistics>,
}

impl<'a> RetrieveRequest<'a> {
    /// Asks for `k` passages for each of these queries, which have one filter.
    pub(super) fn new(queries: &'a [Query], k: usize, mode: Option<Mode>) -> Self {
        let filter = &*queries[0].filter;
        let queries = queries.iter().map(|query| query.text.as_str()).collect();
        Self {
            queries,
            topk: k,
            return_scores: true,
            filter,
            mode,
            statistics: None,
        }
    }
}

/// The answer.
#[derive(Deserialize)]
pub(super) struct RetrieveAnswer {
    result: Vec<Vec<Item>>,
}

/// A document, wrapped with its score or bare.
#[derive(Deserialize)]
struct Item {
    document: Option<Document>,
    /// A null is kept apart from an absent score: it is how some writers put NaN.
    #[serde(default, deserialize_with = "present")]
    score: Option<Value>,
    id: Option<Value>,
    title: Option<String>,
    text: Option<String>,
    contents: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    id: Option<Value>,
    title: Option<String>,
    text: Option<String>,
    contents: Option<String>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl RetrieveAnswer {
    /// One list per query, each in the order of the contract.
    ///
    /// # Errors
    /// The mismatch, in words.
    pub(super) fn into_hits(self, queries: usize, k: usize) -> Result<Vec<Vec<Hit>>, Fault> {
        if self.result.len() != queries {
            return Err(format!("{} lists for {queries} queries", self.result.len()).into());
        }
        let mut lists = Vec::with_capacity(queries);
        for items in self.result {
            let mut hits = Vec::with_capacity(items.len());
            let scored = items.iter().filter(|item| item.score.is_some()).count();
            if scored != 0 && scored != items.len() {
                return Err(format!(
                    "{scored} of {} passages of a list have a score",
                    items.len()
                )
                .into());
            }
            for (rank, item) in items.into_iter().enumerate() {
                hits.push(item.into_hit(rank)?);
            }
            arrange(&mut hits, k);
            lists.push(hits);
        }
        Ok(lists)
    }
}

impl Item {
    /// `rank` from 0.
    fn into_hit(self, rank: usize) -> Result<Hit, Fault> {
        let score = match self.score {
            // Nothing is known but the order, so the order becomes the score.
            None => 1.0 / (rank + 1) as f32,
            Some(Value::Number(number)) => finite(number.as_f64().unwrap_or(f64::NAN))?,
            Some(other) => return Err(format!("score {other} is not a number").into()),
        };
        let Document {
            id,
            title,
            text,
            contents,
        } = self.document.unwrap_or(Document {
            id: self.id,
            title: self.title,
            text: self.text,
            contents: self.contents,
        });
        let (title, text) = match (text, contents) {
            (Some(text), _) => (title.unwrap_or_default(), text),
            (None, Some(contents)) => split_contents("", contents.into()),
            (None, None) => {
                let what = "a document has neither `text` nor `contents`";
                return Err(what.to_owned().into());
            }
        };
        let id = match id {
            None | Some(Value::Null) => id_of_contents(&title, &text),
            Some(id) => {
                id_of(id).ok_or_else(|| "an id is neither a string nor an integer".to_owned())?
            }
        };
        Ok(Hit {
            id,
            score,
            title,
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(result: &Value, queries: usize, k: usize) -> Result<Vec<Vec<Hit>>, Fault> {
        let answer: RetrieveAnswer =
            serde_json::from_value(json!({"result": result})).map_err(|cause| cause.to_string())?;
        answer.into_hits(queries, k)
    }

    #[test]
    fn every_shape_of_document_is_read() {
        let dense =
            json!([[{"document": {"id": "7", "contents": "\"Tides\"\nThe moon."}, "score": 0.5}]]);
        let hit = Hit {
            id: "7".into(),
            score: 0.5,
            title: "Tides".into(),
            text: "The moon.".into(),
        };
        assert_eq!(read(&dense, 1, 3).unwrap(), [[hit.clone()]]);
        let bare = json!([[{"id": 7, "contents": "\"Tides\"\nThe moon."}]]);
        assert_eq!(
            read(&bare, 1, 3).unwrap(),
            [[Hit {
                score: 1.0,
                ..hit.clone()
            }]]
        );
        let bm25 = json!([[{"document": {"title": "Tides", "text": "The moon.", "contents": "x"}, "score": 0.5}]]);
        let id = id_of_contents("Tides", "The moon.");
        assert_eq!(
            read(&bm25, 1, 3).unwrap(),
            [[Hit {
                id: id.clone(),
                ..hit.clone()
            }]]
        );
        let web = json!([[{"document": {"contents": "\"Tides\"\nThe moon."}}]]);
        assert_eq!(
            read(&web, 1, 3).unwrap(),
            [[Hit {
                id,
                score: 1.0,
                ..hit
            }]]
        );
    }

    #[test]
    fn ranks_stand_in_for_scores_and_the_list_is_cut() {
        let web = json!([[{"document": {"contents": "b"}}, {"document": {"contents": "a"}}, {"document": {"contents": "c"}}]]);
        let texts: Vec<_> = read(&web, 1, 2)
            .unwrap()
            .remove(0)
            .into_iter()
            .map(|hit| (hit.text, hit.score))
            .collect();
        assert_eq!(texts, [("b".to_owned(), 1.0), ("a".to_owned(), 0.5)]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let fine = json!({"document": {"id": "1", "contents": "a"}, "score": 1});
        let unscored = json!({"document": {"id": "2", "contents": "a"}});
        for (result, queries, part) in [
            (json!([[], []]), 1, "2 lists for 1 queries"),
            (json!([[]]), 2, "1 lists for 2 queries"),
            (json!([[fine, unscored]]), 1, "1 of 2 passages"),
            (
                json!([[{"document": {"id": "1", "contents": "a"}, "score": null}]]),
                1,
                "not a number",
            ),
            (
                json!([[{"document": {"id": "1", "contents": "a"}, "score": 1e300}]]),
                1,
                "not a finite number",
            ),
            (
                json!([[{"document": {"id": "1"}, "score": 1}]]),
                1,
                "neither",
            ),
            (
                json!([[{"document": {"id": "", "contents": "a"}, "score": 1}]]),
                1,
                "an id is neither",
            ),
            (
                json!([[{"document": "id", "score": "id"}]]),
                1,
                "expected struct",
            ),
        ] {
            let Fault::Protocol(message) = read(&result, queries, 3).unwrap_err() else {
                panic!("no refusal in it")
            };
            assert!(message.contains(part), "{message}");
        }
    }

    proptest::proptest! {
        /// Scores that a server of this crate writes are read back to the last bit.
        #[test]
        fn scores_survive_the_way(score in 1e-3_f32..1e4) {
            let written = serde_json::to_string(&json!({"id": "1", "text": "a"})).unwrap();
            let written = format!("{{\"document\": {written}, \"score\": {}}}", serde_json::to_string(&score).unwrap());
            let item: Item = serde_json::from_str(&written).unwrap();
            proptest::prop_assert_eq!(item.into_hit(0).unwrap().score.to_bits(), score.to_bits());
        }
    }
}

//! Question formats, and the values in a row that they ask for.

use serde_json::{Map, Number, Value};

use crate::registry::Entry;
use crate::row::RowFault;
use crate::task::{Split, Task};

/// A question format: the fields of a row and the task they make. Rows may be JSON lines, one JSON list or parquet.
#[derive(Clone, Copy, Debug)]
pub struct QuestionEntry {
    /// The name used in messages.
    pub name: &'static str,
    /// The fields, in a few words.
    pub about: &'static str,
    /// Tells whether a data set has this format by its first row. Formats are asked in the order of the list, those of
    /// plug-ins after the built-in ones.
    pub detect: fn(&Map<String, Value>) -> bool,
    /// The task of a row.
    pub read: fn(&QuestionRow<'_>) -> Result<Task, RowFault>,
}

impl Entry for QuestionEntry {
    const KIND: &'static str = "question format";

    fn label(&self) -> (&'static str, &'static str) {
        (self.name, self.about)
    }
}

/// A row and its surroundings.
#[derive(Clone, Debug)]
pub struct QuestionRow<'a> {
    /// The fields, nested ones as they are.
    pub fields: Map<String, Value>,
    /// 1-based line or row, counted on from file to file of a folder.
    pub line: usize,
    /// The data set's name, for rows that do not say.
    pub source: &'a str,
    /// The split that is read.
    pub split: Split,
}

impl QuestionRow<'_> {
    /// The value of a field.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field)
    }

    /// Tells whether a field has a value. Null is none: tables have it where a row lacks what others have.
    pub fn has(&self, field: &str) -> bool {
        self.get(field).is_some_and(|value| !value.is_null())
    }

    /// A required string, or a number in its written form.
    ///
    /// # Errors
    /// A fault that names the field; as for the other fields.
    pub fn text(&self, field: &str) -> Result<String, RowFault> {
        let fix = format!("write `{field}` as a string");
        let Some(value) = self.get(field) else {
            return Err(RowFault::new(format!("`{field}` is missing"), fix));
        };
        Self::scalar(value).ok_or_else(|| RowFault::new(format!("`{field}` is {value}"), fix))
    }

    /// A required id.
    ///
    /// # Errors
    /// As [`QuestionRow::text`].
    pub fn id(&self, field: &str) -> Result<String, RowFault> {
        let found = self.text(field)?;
        if found.is_empty() {
            let what = format!("`{field}` is empty");
            return Err(RowFault::new(what, "write a unique id"));
        }
        Ok(found)
    }

    /// The field `id`, or the line where there is none.
    ///
    /// # Errors
    /// As [`QuestionRow::text`].
    pub fn id_or_line(&self) -> Result<String, RowFault> {
        match self.get("id") {
            None | Some(Value::Null) => Ok(format!("line-{}", self.line)),
            Some(_) => self.id("id"),
        }
    }

    /// A required list of strings or numbers.
    ///
    /// # Errors
    /// As [`QuestionRow::text`].
    pub fn list(&self, field: &str) -> Result<Vec<String>, RowFault> {
        Self::list_of(self.get(field), field)
    }

    /// The accepted answers in `answer` or `answers`: a string, a number, or a list of them.
    ///
    /// # Errors
    /// As [`QuestionRow::text`], and when there is no answer or an empty one.
    pub fn answers(&self) -> Result<Vec<String>, RowFault> {
        self.answers_in(self.either(["answer", "answers"])?)
    }

    /// The one of two fields that has a value, the first where both have one; else the one that is there.
    fn either(&self, fields: [&'static str; 2]) -> Result<&'static str, RowFault> {
        let there = |field: &&str| self.fields.contains_key(*field);
        let found = fields.into_iter().find(|field| self.has(field));
        found
            .or_else(|| fields.into_iter().find(there))
            .ok_or_else(|| {
                let [one, other] = fields;
                let what = format!("neither `{one}` nor `{other}` is there");
                RowFault::new(what, "write the one of them that other rows have")
            })
    }

    /// The accepted answers in a field.
    ///
    /// # Errors
    /// As [`QuestionRow::answers`].
    pub fn answers_in(&self, field: &str) -> Result<Vec<String>, RowFault> {
        let found = match self.get(field) {
            Some(Value::Array(_)) => self.list(field)?,
            _ => vec![self.text(field)?],
        };
        Self::not_empty(found).ok_or_else(|| Self::no_answer(field))
    }

    /// The fault of a row without an answer.
    pub fn no_answer(field: &str) -> RowFault {
        let what = format!("`{field}` has no answer or an empty one");
        RowFault::new(what, "write at least one answer, none of them empty")
    }

    /// The task of a question in `question` or `text`.
    ///
    /// # Errors
    /// As [`QuestionRow::text`], and when the question is empty.
    pub fn task(&self, id: String, golds: Vec<String>) -> Result<Task, RowFault> {
        let field = self.either(["question", "text"])?;
        self.asked((field, self.text(field)?), id, golds)
    }

    /// The task of a question that was found in `field`, with `data_source` where the row has one.
    ///
    /// # Errors
    /// When the question is empty or `data_source` is not a string.
    pub fn asked(
        &self,
        (field, question): (&str, String),
        id: String,
        golds: Vec<String>,
    ) -> Result<Task, RowFault> {
        if question.trim().is_empty() {
            let what = format!("`{field}` is empty");
            return Err(RowFault::new(what, "write the question's text"));
        }
        let data_source = match self.get("data_source") {
            None | Some(Value::Null) => self.source.to_owned(),
            // verl's preparation puts the name of the recipe before the data set's.
            Some(_) => self
                .text("data_source")?
                .trim_start_matches("searchR1_")
                .to_owned(),
        };
        Ok(Task {
            golds: Self::distinct(golds),
            data_source,
            split: self.split,
            ..Task::new(id, question)
        })
    }
}

impl QuestionRow<'_> {
    /// A list of strings or numbers that was found in `field`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn list_of(value: Option<&Value>, field: &str) -> Result<Vec<String>, RowFault> {
        let fix = "write a list of strings";
        let Some(Value::Array(items)) = value else {
            return Err(RowFault::new(format!("`{field}` is not a list"), fix));
        };
        let text = |item: &Value| {
            Self::scalar(item).ok_or_else(|| RowFault::new(format!("`{field}` holds {item}"), fix))
        };
        items.iter().map(text).collect()
    }

    /// A string, or a number in its written form.
    pub fn scalar(value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) if keeps_digits(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// The texts, if there are any and none is empty.
    pub fn not_empty(texts: Vec<String>) -> Option<Vec<String>> {
        let is_full = !texts.is_empty() && texts.iter().all(|text| !text.trim().is_empty());
        is_full.then_some(texts)
    }

    /// Each item once, in the order of the first.
    pub fn distinct(items: Vec<String>) -> Vec<String> {
        let mut kept: Vec<String> = Vec::with_capacity(items.len());
        for item in items {
            if !kept.contains(&item) {
                kept.push(item);
            }
        }
        kept
    }
}

/// Tells whether a number has the digits that were written: an integer beyond 64 bits is read as a fraction, which has the first 16.
fn keeps_digits(number: &Number) -> bool {
    let integers_end = i64::MAX as f64;
    !number.is_f64()
        || number
            .as_f64()
            .is_some_and(|value| value.abs() < integers_end)
}

//! One record of a file of rows, whatever the file is written in, and the values in it that the readers ask for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Longest value that becomes a field of a passage, bytes: fields are what filters compare, not text to read.
const MAX_FIELD_BYTES: usize = 512;
/// The nested object whose scalars count as the row's own; BEIR puts everything but the text there.
const NESTED: &str = "metadata";

/// What is wrong with a record and what to do about it; the file and the line are known one level up.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) what: String,
    pub(crate) fix: &'static str,
}

/// A value as far as the readers tell values apart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell<'a> {
    Null,
    Bool(bool),
    Integer(i128),
    Float,
    Text(Cow<'a, str>),
    List,
    Group(Record<'a>),
}

impl Cell<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Float => "a number",
            Self::Text(text) if text.is_empty() => "an empty string",
            Self::Text(_) => "a string",
            Self::List => "an array",
            Self::Group(_) => "an object",
        }
    }
}

/// The named values of one row. A name given twice means its last value.
///
/// Reading into this instead of `serde_json::Map` borrows keys and unescaped strings from the line and keeps no numbers,
/// lists or hash table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Record<'a> {
    cells: Vec<(Cow<'a, str>, Cell<'a>)>,
}

impl<'a> Record<'a> {
    pub(crate) fn push(&mut self, name: impl Into<Cow<'a, str>>, cell: Cell<'a>) {
        self.cells.push((name.into(), cell));
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.cells.iter().any(|(known, _)| known == name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().map(|(name, _)| name.as_ref())
    }

    /// A required id: a non-empty string, or an integer written out.
    pub(crate) fn id(&mut self, name: &str, fix: &'static str) -> Result<String, Fault> {
        match self.take(name) {
            Some(Cell::Text(id)) if !id.is_empty() => Ok(id.into_owned()),
            Some(Cell::Integer(number)) => Ok(number.to_string()),
            Some(other) => Err(misfit(name, "a non-empty string", &other, fix)),
            None => Err(absent(name, fix)),
        }
    }

    /// A required text, possibly empty.
    pub(crate) fn text(&mut self, name: &str, fix: &'static str) -> Result<Cow<'a, str>, Fault> {
        match self.take(name) {
            Some(Cell::Text(text)) => Ok(text),
            Some(other) => Err(misfit(name, "a string", &other, fix)),
            None => Err(absent(name, fix)),
        }
    }

    /// A text that may be absent or null, which both read as empty.
    pub(crate) fn optional_text(&mut self, name: &str, fix: &'static str) -> Result<Cow<'a, str>, Fault> {
        match self.take(name) {
            None | Some(Cell::Null) => Ok(Cow::Borrowed("")),
            Some(Cell::Text(text)) => Ok(text),
            Some(other) => Err(misfit(name, "a string", &other, fix)),
        }
    }

    /// What was not taken, as fields of a passage.
    ///
    /// Strings as they are, integers and booleans written out; the scalars of a nested `metadata` object count as the
    /// row's own unless the row has one of that name. Nulls, empty strings, numbers with a fraction (they have no one
    /// spelling to compare), lists, other objects and values over 512 bytes are left out.
    pub(crate) fn into_fields(self) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        for (name, cell) in &self.cells {
            if name == NESTED
                && let Cell::Group(nested) = cell
            {
                fields.extend(nested.cells.iter().filter_map(field));
            }
        }
        fields.extend(self.cells.iter().filter_map(field));
        fields
    }

    fn take(&mut self, name: &str) -> Option<Cell<'a>> {
        let mut found = None;
        while let Some(at) = self.cells.iter().position(|(known, _)| known == name) {
            found = Some(self.cells.remove(at).1);
        }
        found
    }
}

fn field((name, cell): &(Cow<'_, str>, Cell<'_>)) -> Option<(String, String)> {
    let value = match cell {
        Cell::Text(text) if !text.is_empty() && text.len() <= MAX_FIELD_BYTES => text.to_string(),
        Cell::Integer(number) => number.to_string(),
        Cell::Bool(flag) => flag.to_string(),
        _ => return None,
    };
    Some((name.to_string(), value))
}

fn absent(name: &str, fix: &'static str) -> Fault {
    Fault { what: format!("field `{name}` is missing"), fix }
}

fn misfit(name: &str, wanted: &str, found: &Cell<'_>, fix: &'static str) -> Fault {
    Fault { what: format!("field `{name}` is {}, not {wanted}", found.kind()), fix }
}

/// Reads one JSON object.
pub(crate) fn parse_json(text: &str) -> Result<Record<'_>, Fault> {
    serde_json::from_str(text).map_err(|cause| Fault {
        what: format!("not a JSON object ({cause})"),
        fix: "write one JSON object per line, in UTF-8",
    })
}

impl<'de: 'a, 'a> Deserialize<'de> for Record<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RecordVisitor)
    }
}

struct RecordVisitor;

impl<'de> Visitor<'de> for RecordVisitor {
    type Value = Record<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut record = Record { cells: Vec::with_capacity(4) };
        while let Some(Name(name)) = map.next_key()? {
            let cell = map.next_value()?;
            record.cells.push((name, cell));
        }
        Ok(record)
    }
}

struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_str(CellVisitor)? {
            Cell::Text(name) => Ok(Self(name)),
            _ => Err(serde::de::Error::custom("a key is not a string")),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Cell<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CellVisitor)
    }
}

struct CellVisitor;

impl<'de> Visitor<'de> for CellVisitor {
    type Value = Cell<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Cell::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Cell::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Cell::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Cell::Integer(value.into()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Cell::Float)
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Cell::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Cell::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Cell::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        RecordVisitor.visit_map(map).map(Cell::Group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_become_fields() {
        let long = "x".repeat(MAX_FIELD_BYTES + 1);
        let line = format!(
            r#"{{"year":1999,"live":true,"lang":"en","score":0.5,"none":null,"empty":"","long":"{long}","list":[1,{{}}],
               "other":{{"a":"b"}},"metadata":{{"url":"u","lang":"de","deep":{{"c":1}}}}}}"#
        );
        let fields = parse_json(&line).unwrap().into_fields();
        let expected = [("lang", "en"), ("live", "true"), ("url", "u"), ("year", "1999")];
        let expected: BTreeMap<_, _> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(fields, expected);
    }

    #[test]
    fn the_last_of_equal_names_counts_and_none_is_left_behind() {
        let mut record = parse_json(r#"{"id":"a","id":"b","i\u0064":"c"}"#).unwrap();
        assert_eq!(record.id("id", "").unwrap(), "c");
        assert!(record.into_fields().is_empty());
    }

    #[test]
    fn only_whole_objects_parse() {
        for text in ["[1]", "1", "{\"a\":1} x", "{\"a\"", "{1:2}", "\"a\"", &"{\"a\":".repeat(200)] {
            assert!(parse_json(text).unwrap_err().what.starts_with("not a JSON object ("), "{text}");
        }
    }
}

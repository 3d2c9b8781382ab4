//! One row of a data file, whatever the file is written in, and the values in it that formats ask for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Longest value that becomes a field of a passage, bytes: fields are what filters compare, not text to read.
const MAX_FIELD_BYTES: usize = 512;
/// The nested object whose scalars count as the row's own; BEIR puts everything but the text there.
const NESTED: &str = "metadata";

/// A row that does not fit its format. The reader adds the file and the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFault {
    /// The fault: "field `id` is missing".
    pub what: String,
    /// The way to remove it.
    pub fix: Cow<'static, str>,
}

impl RowFault {
    /// Makes a fault of two clauses; a message reads `FILE line 3: WHAT; FIX`.
    pub fn new(what: impl Into<String>, fix: impl Into<Cow<'static, str>>) -> Self {
        Self {
            what: what.into(),
            fix: fix.into(),
        }
    }
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number or a fraction.
    Number(Number),
    /// A string.
    Text(Cow<'a, str>),
    /// A list of values.
    List(Vec<Cell<'a>>),
    /// Nested named values.
    Group(Row<'a>),
    /// A parquet value that JSON does not have, as text: a date, a time, a decimal, bytes.
    Other(String),
}

impl Cell<'_> {
    /// A number with a fraction; not a number is not a value.
    pub fn fraction(value: f64) -> Self {
        Number::from_f64(value).map_or(Self::Null, Self::Number)
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(text) if text.is_empty() => "an empty string",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Group(_) => "an object",
            Self::Other(_) => "neither text nor a number",
        }
    }

    fn into_json(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => flag.into(),
            Self::Number(number) => number.into(),
            Self::Text(text) => text.into(),
            Self::List(cells) => cells.into_iter().map(Self::into_json).collect(),
            Self::Group(row) => row.into_json().into(),
            Self::Other(text) => text.into(),
        }
    }
}

/// The named values of one row. A name given twice means its last value.
///
/// Unlike a `serde_json::Map` it borrows keys and unescaped strings from the line, and it has no hash table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row<'a> {
    cells: Vec<(Cow<'a, str>, Cell<'a>)>,
}

impl<'a> Row<'a> {
    /// Reads one JSON object.
    ///
    /// # Errors
    /// When the text is anything else.
    pub fn parse_json(text: &'a str) -> Result<Self, RowFault> {
        serde_json::from_str(text).map_err(|cause: serde_json::Error| {
            // The reader says which line of the file this is.
            let cause = cause.to_string();
            let cause = cause.replace(" at line 1 column ", " at column ");
            let what = format!("not a JSON object ({cause})");
            RowFault::new(what, "write one JSON object per line, in UTF-8")
        })
    }

    /// Adds a field after the others.
    pub fn push(&mut self, name: impl Into<Cow<'a, str>>, cell: Cell<'a>) {
        self.cells.push((name.into(), cell));
    }

    /// Tells whether the row has a field of this name, even a null one.
    pub fn has(&self, name: &str) -> bool {
        self.cells.iter().any(|(known, _)| known == name)
    }

    /// The names of the fields, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().map(|(name, _)| name.as_ref())
    }

    /// Takes a required id: a non-empty string, or an integer written out.
    ///
    /// # Errors
    /// A fault with this fix when the field is missing or holds something else; as for the other fields.
    pub fn id(&mut self, name: &str, fix: &'static str) -> Result<String, RowFault> {
        match self.take(name) {
            Some(Cell::Text(id)) if !id.is_empty() => Ok(id.into_owned()),
            Some(Cell::Number(number)) if !number.is_f64() => Ok(number.to_string()),
            Some(other) => Err(misfit(name, "a non-empty string", &other, fix)),
            None => Err(absent(name, fix)),
        }
    }

    /// Takes a required text, possibly empty.
    ///
    /// # Errors
    /// As [`Row::id`].
    pub fn text(&mut self, name: &str, fix: &'static str) -> Result<Cow<'a, str>, RowFault> {
        match self.take(name) {
            Some(Cell::Text(text)) => Ok(text),
            Some(other) => Err(misfit(name, "a string", &other, fix)),
            None => Err(absent(name, fix)),
        }
    }

    /// Takes a text that may be absent or null, which both read as empty.
    ///
    /// # Errors
    /// As [`Row::id`].
    pub fn optional_text(
        &mut self,
        name: &str,
        fix: &'static str,
    ) -> Result<Cow<'a, str>, RowFault> {
        match self.take(name) {
            None | Some(Cell::Null) => Ok(Cow::Borrowed("")),
            Some(Cell::Text(text)) => Ok(text),
            Some(other) => Err(misfit(name, "a string", &other, fix)),
        }
    }

    /// The fields that were not taken, as fields of a passage.
    ///
    /// Strings as they are, integers and booleans written out; the scalars of a nested `metadata` object count as the
    /// row's own unless the row has one of that name. Nulls, empty strings, numbers with a fraction (they have no one
    /// spelling to compare), lists, other objects and values over 512 bytes are left out.
    pub fn into_fields(self) -> BTreeMap<String, String> {
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

    /// The row as a JSON object, nested values included.
    pub fn into_json(self) -> Map<String, Value> {
        self.cells
            .into_iter()
            .map(|(name, cell)| (name.into_owned(), cell.into_json()))
            .collect()
    }

    /// Takes a field out of the row.
    pub fn take(&mut self, name: &str) -> Option<Cell<'a>> {
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
        Cell::Number(number) if !number.is_f64() => number.to_string(),
        Cell::Bool(flag) => flag.to_string(),
        _ => return None,
    };
    Some((name.to_string(), value))
}

fn absent(name: &str, fix: &'static str) -> RowFault {
    RowFault::new(format!("field `{name}` is missing"), fix)
}

fn misfit(name: &str, wanted: &str, found: &Cell<'_>, fix: &'static str) -> RowFault {
    let what = format!("field `{name}` is {}, not {wanted}", found.kind());
    RowFault::new(what, fix)
}

impl<'de: 'a, 'a> Deserialize<'de> for Row<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = Row<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut row = Row {
            cells: Vec::with_capacity(4),
        };
        while let Some(Name(name)) = map.next_key()? {
            let cell = map.next_value()?;
            row.cells.push((name, cell));
        }
        Ok(row)
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
        Ok(Cell::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Cell::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Cell::fraction(value))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Cell::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Cell::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut cells = Vec::new();
        while let Some(cell) = items.next_element()? {
            cells.push(cell);
        }
        Ok(Cell::List(cells))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        RowVisitor.visit_map(map).map(Cell::Group)
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
        let fields = Row::parse_json(&line).unwrap().into_fields();
        let expected = [
            ("lang", "en"),
            ("live", "true"),
            ("url", "u"),
            ("year", "1999"),
        ];
        let expected: BTreeMap<_, _> = expected
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        assert_eq!(fields, expected);
    }

    #[test]
    fn the_last_of_equal_names_counts_and_none_is_left_behind() {
        let mut row = Row::parse_json(r#"{"id":"a","id":"b","i\u0064":"c"}"#).unwrap();
        assert_eq!(row.id("id", "").unwrap(), "c");
        assert!(row.into_fields().is_empty());
    }

    #[test]
    fn only_whole_objects_parse() {
        for text in [
            "[1]",
            "1",
            "{\"a\":1} x",
            "{\"a\"",
            "{1:2}",
            "\"a\"",
            &"{\"a\":".repeat(200),
        ] {
            assert!(
                Row::parse_json(text)
                    .unwrap_err()
                    .what
                    .starts_with("not a JSON object ("),
                "{text}"
            );
        }
    }
}

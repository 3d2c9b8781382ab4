//! Entries of lists that read settings, and the choice of one in a configuration.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use forage_contracts::objective::{Setting, SettingValue, Settings};
use forage_contracts::{Registry, SettingError};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An entry with settings: a loss, an advantage, an algorithm or a curriculum.
pub trait Entry: forage_contracts::Entry + Copy {
    /// The settings that it reads.
    fn settings(&self) -> &'static [Setting];

    /// The list of such entries.
    fn registry() -> &'static Registry<Self>;
}

/// An entry of a list with values for its settings. In a configuration it is the entry's name, or a table of that name with the
/// settings in it.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "Written", bound = "E: Entry")]
pub struct Choice<E: 'static> {
    pub(crate) entry: &'static E,
    pub(crate) settings: Settings,
}

/// A choice as it is written.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a name, or a table of that name with numbers and flags in it"
)]
enum Written {
    Name(String),
    Table(BTreeMap<String, BTreeMap<String, Option<SettingValue>>>),
}

fn find<E: Entry>(name: &str) -> Result<&'static E, SettingError> {
    let mut all = E::registry().iter();
    let found = all.find(|entry| entry.label().0 == name);
    let known = || E::registry().iter().map(|entry| entry.label().0);
    found.ok_or_else(|| SettingError::unknown(E::KIND, name, known()))
}

impl<E: Entry> Choice<E> {
    /// The entry `name` with its first settings in the order of their declaration.
    ///
    /// # Panics
    /// When there is no such entry, or it declares fewer settings.
    pub(crate) fn of(name: &str, given: &[f64]) -> Self {
        let entry = find::<E>(name).unwrap_or_else(|error| panic!("{error}"));
        let settings = Settings::of(entry.settings(), given);
        Self { entry, settings }
    }

    /// The name of the entry.
    pub fn name(&self) -> &'static str {
        self.entry.label().0
    }

    /// Checks the ranges.
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        self.settings
            .check()
            .map_err(|error| error.in_table(&table::<E>(self.name())))
    }
}

impl<E: Entry> TryFrom<Written> for Choice<E> {
    type Error = SettingError;

    fn try_from(written: Written) -> Result<Self, SettingError> {
        let (name, values) = match written {
            Written::Name(name) => (name, BTreeMap::new()),
            Written::Table(mut tables) => match (tables.pop_first(), tables.is_empty()) {
                (Some(one), true) => one,
                _ => return Err(SettingError::new(E::KIND, "must be one table")),
            },
        };
        let entry = find::<E>(&name)?;
        let settings = Settings::read(entry.settings(), values)
            .map_err(|error| error.in_table(&table::<E>(&name)))?;
        Ok(Self { entry, settings })
    }
}

/// The table of an entry in a configuration.
fn table<E: Entry>(name: &str) -> String {
    format!("{}.{name}", E::KIND)
}

impl<E: Entry> JsonSchema for Choice<E> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        E::KIND.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let forms: Vec<Value> = E::registry().iter().flat_map(forms).collect();
        json_schema!({ "oneOf": forms })
    }
}

/// The schemas of the ways to write an entry: its name, where no setting has to be given, and a table, where it has settings.
fn forms<E: Entry>(entry: &E) -> Vec<Value> {
    let (name, about) = entry.label();
    let settings = entry.settings();
    let table = Settings::schema(settings);
    let mut forms = Vec::new();
    if table["required"].as_array().is_none_or(Vec::is_empty) {
        forms.push(json!({"type": "string", "const": name, "description": about}));
    }
    if !settings.is_empty() {
        forms.push(json!({
            "type": "object",
            "description": about,
            "properties": { name: table },
            "required": [name],
            "additionalProperties": false,
        }));
    }
    forms
}

impl<E: Entry> PartialEq for Choice<E> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.settings == other.settings
    }
}

impl<E: Entry> fmt::Debug for Choice<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name(), self.settings)
    }
}

impl<E: Entry> Serialize for Choice<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.settings.is_empty() {
            serializer.serialize_str(self.name())
        } else {
            serializer.collect_map([(self.name(), self.settings)])
        }
    }
}

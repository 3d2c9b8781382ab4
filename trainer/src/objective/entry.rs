//! Entries of the lists of losses and advantages, and the choice of one in a configuration.

use std::collections::BTreeMap;
use std::fmt;

use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::setting::SettingError;

/// Most settings of an entry.
pub(super) const MOST_SETTINGS: usize = 4;

/// A number or a flag that a loss or an advantage reads from its table in a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    name: &'static str,
    kind: Kind,
    must: &'static str,
    holds: fn(&Settings, f64) -> bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Optional,
    Flag,
}

impl Setting {
    /// A number that has to be given. `must` says what it must be ("above 0"), `holds` decides.
    pub const fn number(
        name: &'static str,
        must: &'static str,
        holds: fn(&Settings, f64) -> bool,
    ) -> Self {
        Self {
            name,
            kind: Kind::Number,
            must,
            holds,
        }
    }

    /// A number that may be left out.
    pub const fn optional(
        name: &'static str,
        must: &'static str,
        holds: fn(&Settings, f64) -> bool,
    ) -> Self {
        Self {
            kind: Kind::Optional,
            ..Self::number(name, must, holds)
        }
    }

    /// `true` or `false`, to be given.
    pub const fn flag(name: &'static str) -> Self {
        Self {
            kind: Kind::Flag,
            ..Self::number(name, "true or false", |_, _| true)
        }
    }
}

/// The values of an entry's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    declared: &'static [Setting],
    values: [Option<f64>; MOST_SETTINGS],
}

impl Settings {
    /// The value of a number that has to be given.
    ///
    /// # Panics
    /// When the entry declares no such number.
    pub fn number(&self, name: &str) -> f64 {
        self.optional(name)
            .unwrap_or_else(|| panic!("`{name}` is not a number that has to be given"))
    }

    /// The value of a number that may be left out.
    ///
    /// # Panics
    /// When the entry declares no such number.
    pub fn optional(&self, name: &str) -> Option<f64> {
        let place = self
            .declared
            .iter()
            .position(|setting| setting.name == name);
        self.values[place.unwrap_or_else(|| panic!("`{name}` is not a declared setting"))]
    }

    /// The value of a flag.
    ///
    /// # Panics
    /// When the entry declares no such flag.
    pub fn flag(&self, name: &str) -> bool {
        self.number(name) > 0.0
    }

    fn pairs(&self) -> impl Iterator<Item = (&'static Setting, Option<f64>)> {
        self.declared.iter().zip(self.values)
    }
}

/// An entry of a list: a loss or an advantage.
pub trait Entry: Copy + Send + Sync + 'static {
    /// `loss` or `advantage`.
    const KIND: &'static str;

    /// The name in configurations.
    fn name(&self) -> &'static str;

    /// The settings that it reads.
    fn settings(&self) -> &'static [Setting];

    /// The registered entries, the built-in ones first.
    fn all() -> Vec<&'static Self>;
}

/// An entry of a list with values for its settings. In a configuration it is the entry's name, or a table of that name with the
/// settings in it.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "Written", bound = "E: Entry")]
pub struct Choice<E: 'static> {
    pub(super) entry: &'static E,
    pub(super) settings: Settings,
}

/// A choice as it is written.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a name, or a table of that name with numbers and flags in it"
)]
enum Written {
    Name(String),
    Table(BTreeMap<String, BTreeMap<String, Option<Value>>>),
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(untagged)]
enum Value {
    Flag(bool),
    Number(f64),
}

fn find<E: Entry>(name: &str) -> Result<&'static E, SettingError> {
    let all = E::all();
    let found = all.iter().find(|entry| entry.name() == name).copied();
    found.ok_or_else(|| SettingError::unknown(E::KIND, name, all.iter().map(|entry| entry.name())))
}

impl<E: Entry> Choice<E> {
    /// The entry `name` with its first settings in the order of their declaration.
    ///
    /// # Panics
    /// When there is no such entry, or it declares fewer settings.
    pub(crate) fn of(name: &str, given: &[f64]) -> Self {
        let entry = find::<E>(name).unwrap_or_else(|error| panic!("{error}"));
        let declared = entry.settings();
        assert!(given.len() <= declared.len(), "settings of {name}");
        let mut values = [None; MOST_SETTINGS];
        for (value, &given) in values.iter_mut().zip(given) {
            *value = Some(given);
        }
        Self {
            entry,
            settings: Settings { declared, values },
        }
    }

    /// The name of the entry.
    pub fn name(&self) -> &'static str {
        self.entry.name()
    }

    /// Checks the ranges.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        for (setting, value) in self.settings.pairs() {
            if let Some(value) = value
                && !(setting.holds)(&self.settings, value)
            {
                let key = format!("{}.{}.{}", E::KIND, self.name(), setting.name);
                return Err(SettingError::range(key, value, setting.must));
            }
        }
        Ok(())
    }
}

impl<E: Entry> TryFrom<Written> for Choice<E> {
    type Error = SettingError;

    fn try_from(written: Written) -> Result<Self, SettingError> {
        let (name, mut table) = match written {
            Written::Name(name) => (name, BTreeMap::new()),
            Written::Table(mut tables) => match (tables.pop_first(), tables.is_empty()) {
                (Some(one), true) => one,
                _ => return Err(SettingError::new(E::KIND, "must be one table")),
            },
        };
        let entry = find::<E>(&name)?;
        let key = |setting: &str| format!("{}.{name}.{setting}", E::KIND);
        let declared = entry.settings();
        let names: Vec<&str> = declared.iter().map(|setting| setting.name).collect();
        if let Some(other) = table.keys().find(|key| !names.contains(&key.as_str())) {
            let fault = format!("is an unknown setting; there are {}", names.join(", "));
            return Err(SettingError::new(key(other), fault));
        }
        let mut values = [None; MOST_SETTINGS];
        for (setting, value) in declared.iter().zip(&mut values) {
            *value = match (setting.kind, table.remove(setting.name).flatten()) {
                (Kind::Flag, Some(Value::Flag(flag))) => Some(f64::from(u8::from(flag))),
                (Kind::Number | Kind::Optional, Some(Value::Number(number))) => Some(number),
                (Kind::Optional, None) => None,
                _ => {
                    let fault = format!("has to be given: {}", setting.must);
                    return Err(SettingError::new(key(setting.name), fault));
                }
            };
        }
        let settings = Settings { declared, values };
        Ok(Self { entry, settings })
    }
}

impl<E: Entry> PartialEq for Choice<E> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.settings.values == other.settings.values
    }
}

impl<E: Entry> fmt::Debug for Choice<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name(), self.settings.values)
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.pairs().filter_map(|(setting, value)| {
            let written = match setting.kind {
                Kind::Flag => Value::Flag(value? > 0.0),
                Kind::Number | Kind::Optional => Value::Number(value?),
            };
            Some((setting.name, written))
        }))
    }
}

impl<E: Entry> Serialize for Choice<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.settings.declared.is_empty() {
            serializer.serialize_str(self.name())
        } else {
            serializer.collect_map([(self.name(), self.settings)])
        }
    }
}

//! Lists of what there is under a name: entries that are built in, and those that a program adds when it starts.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::str::FromStr;
use std::sync::OnceLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Something that configs and command lines name.
pub trait Entry: Sized + Send + Sync + 'static {
    /// The word for such an entry in messages: `corpus format`.
    const KIND: &'static str;

    /// The name, and a few words about the entry.
    fn label(&self) -> (&'static str, &'static str);

    /// The list that such entries are in.
    fn registry() -> &'static Registry<Self>;
}

/// The entries of one kind, the built-in ones first.
pub struct Registry<E: 'static> {
    built_in: &'static [E],
    /// Set once, before the first lookup.
    added: OnceLock<Vec<E>>,
}

/// Entries that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// Two entries have one name.
    #[error("{kind} `{name}` is registered twice; give one of them another name")]
    Taken {
        /// The kind of entry.
        kind: &'static str,
        /// The name.
        name: &'static str,
    },
    /// Entries of this kind were added before.
    #[error("plug-ins are installed already; install all of them at once, when the program starts")]
    Again,
}

/// A name that no entry has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{found}`; use one of: {known}")]
pub struct UnknownName {
    kind: &'static str,
    found: String,
    known: String,
}

impl<E: Entry> Registry<E> {
    /// A list of built-in entries.
    pub const fn new(built_in: &'static [E]) -> Self {
        Self {
            built_in,
            added: OnceLock::new(),
        }
    }

    /// Every entry, the built-in ones first, in the order in which they are tried.
    pub fn iter(&'static self) -> impl Iterator<Item = &'static E> {
        self.built_in
            .iter()
            .chain(self.added.get().into_iter().flatten())
    }

    /// The names, joined by commas.
    pub fn names(&'static self) -> String {
        let names: Vec<&str> = self.iter().map(|entry| entry.label().0).collect();
        names.join(", ")
    }

    /// The entry of this name.
    ///
    /// # Errors
    /// When there is none; the message lists those there are.
    pub fn find(&'static self, name: &str) -> Result<&'static E, UnknownName> {
        let found = self.iter().find(|entry| entry.label().0 == name);
        found.ok_or_else(|| UnknownName {
            kind: E::KIND,
            found: name.to_owned(),
            known: self.names(),
        })
    }

    /// Checks the names of entries to be added.
    ///
    /// # Errors
    /// When one is taken.
    pub fn check(&self, added: &[E]) -> Result<(), PluginError> {
        for (place, entry) in added.iter().enumerate() {
            let (name, _) = entry.label();
            let mut others = self.built_in.iter().chain(&added[..place]);
            if others.any(|other| other.label().0 == name) {
                let kind = E::KIND;
                return Err(PluginError::Taken { kind, name });
            }
        }
        Ok(())
    }

    /// Puts entries after the built-in ones, for the life of the process.
    ///
    /// # Errors
    /// As [`Registry::check`], and when entries were added before.
    pub fn install(&self, added: Vec<E>) -> Result<(), PluginError> {
        self.check(&added)?;
        self.added.set(added).map_err(|_| PluginError::Again)
    }
}

/// An entry that was chosen by its name: what a config or an argument holds. Two choices are equal when their names are.
pub struct Choice<E: 'static>(pub(crate) &'static E);

impl<E> Clone for Choice<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Choice<E> {}

impl<E: Entry> Choice<E> {
    /// Every registered entry.
    pub fn all() -> impl Iterator<Item = Self> {
        E::registry().iter().map(Self)
    }

    /// The list of the entries.
    pub fn registry() -> &'static Registry<E> {
        E::registry()
    }

    /// The name used in configs, requests and on the command line.
    pub fn name(self) -> &'static str {
        self.0.label().0
    }

    /// The entries for a help text: each name with a few words about it.
    pub fn help() -> String {
        let lines = E::registry().iter().map(|entry| {
            let (name, about) = entry.label();
            format!("{name} ({about})")
        });
        lines.collect::<Vec<_>>().join(", ")
    }
}

impl<E> Deref for Choice<E> {
    type Target = E;

    fn deref(&self) -> &E {
        self.0
    }
}

impl<E: Entry> PartialEq for Choice<E> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl<E: Entry> Eq for Choice<E> {}

impl<E: Entry> PartialOrd for Choice<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E: Entry> Ord for Choice<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl<E: Entry> Hash for Choice<E> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl<E: Entry> fmt::Debug for Choice<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl<E: Entry> fmt::Display for Choice<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl<E: Entry> FromStr for Choice<E> {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        E::registry().find(name).map(Self)
    }
}

impl<E: Entry> Serialize for Choice<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de, E: Entry> Deserialize<'de> for Choice<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Colour(&'static str);

    static COLOURS: Registry<Colour> = Registry::new(&[Colour("red"), Colour("blue")]);

    impl Entry for Colour {
        const KIND: &'static str = "colour";

        fn label(&self) -> (&'static str, &'static str) {
            (self.0, "a colour")
        }

        fn registry() -> &'static Registry<Self> {
            &COLOURS
        }
    }

    #[test]
    fn entries_are_added_once_under_names_of_their_own() {
        let taken = PluginError::Taken {
            kind: "colour",
            name: "blue",
        };
        assert_eq!(COLOURS.check(&[Colour("blue")]), Err(taken));
        assert!(COLOURS.check(&[Colour("green"), Colour("green")]).is_err());
        assert_eq!(COLOURS.install(vec![Colour("green")]), Ok(()));
        assert_eq!(COLOURS.install(Vec::new()), Err(PluginError::Again));
        assert_eq!(COLOURS.names(), "red, blue, green");
        let green: Choice<Colour> = serde_json::from_str("\"green\"").unwrap();
        assert_eq!(serde_json::to_string(&green).unwrap(), "\"green\"");
        let unknown = "grey".parse::<Choice<Colour>>().unwrap_err().to_string();
        assert_eq!(
            unknown,
            "unknown colour `grey`; use one of: red, blue, green"
        );
    }
}

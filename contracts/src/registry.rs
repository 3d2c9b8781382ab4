//! Lists of what there is under a name: entries that are built in, and those that a program adds when it starts.

use std::fmt;
use std::sync::OnceLock;

/// Something that configs and command lines name.
pub trait Entry: Sized + Send + Sync + 'static {
    /// The word for such an entry in messages: `corpus format`.
    const KIND: &'static str;

    /// The name, and a few words about the entry.
    fn label(&self) -> (&'static str, &'static str);
}

/// The entries of one kind, the built-in ones first.
pub struct Registry<E: 'static> {
    built_in: &'static [E],
    /// Set once, before the first lookup.
    added: OnceLock<Vec<E>>,
}

impl<E: Entry> fmt::Debug for Registry<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self
            .built_in
            .iter()
            .chain(self.added.get().into_iter().flatten());
        formatter
            .debug_list()
            .entries(names.map(|entry| entry.label().0))
            .finish()
    }
}

/// An entry that cannot be registered or is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
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
    /// An environment's id has another form.
    #[error("environment id `{id}` is not of the form NAMESPACE/NAME-vN, like lab/sql-v0")]
    Id {
        /// As given.
        id: &'static str,
    },
    /// An entry reads more settings than a table of a configuration holds.
    #[error("{kind} `{name}` has more than {most} settings")]
    Settings {
        /// The kind of entry.
        kind: &'static str,
        /// The name.
        name: &'static str,
        /// Most settings of an entry.
        most: usize,
    },
    /// No entry has this name.
    #[error("unknown {kind} `{found}`; use one of: {known}")]
    Unknown {
        /// The kind of entry.
        kind: &'static str,
        /// As written.
        found: String,
        /// The names there are.
        known: String,
    },
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
    pub fn find(&'static self, name: &str) -> Result<&'static E, EntryError> {
        let found = self.iter().find(|entry| entry.label().0 == name);
        found.ok_or_else(|| EntryError::Unknown {
            kind: E::KIND,
            found: name.to_owned(),
            known: self.names(),
        })
    }

    /// Checks the names of entries to be added.
    ///
    /// # Errors
    /// When one is taken.
    pub fn check(&self, added: &[E]) -> Result<(), EntryError> {
        for (place, entry) in added.iter().enumerate() {
            let (name, _) = entry.label();
            let mut others = self.built_in.iter().chain(&added[..place]);
            if others.any(|other| other.label().0 == name) {
                let kind = E::KIND;
                return Err(EntryError::Taken { kind, name });
            }
        }
        Ok(())
    }

    /// Puts entries after the built-in ones, for the life of the process.
    ///
    /// # Errors
    /// As [`Registry::check`], and when entries were added before.
    pub fn install(&self, added: Vec<E>) -> Result<(), EntryError> {
        self.check(&added)?;
        self.added.set(added).map_err(|_| EntryError::Again)
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
    }

    #[test]
    fn entries_are_added_once_under_names_of_their_own() {
        let taken = EntryError::Taken {
            kind: "colour",
            name: "blue",
        };
        assert_eq!(COLOURS.check(&[Colour("blue")]), Err(taken));
        assert!(COLOURS.check(&[Colour("green"), Colour("green")]).is_err());
        assert_eq!(COLOURS.install(vec![Colour("green")]), Ok(()));
        assert_eq!(COLOURS.install(Vec::new()), Err(EntryError::Again));
        assert_eq!(COLOURS.names(), "red, blue, green");
        let unknown = COLOURS.find("grey").err().unwrap().to_string();
        assert_eq!(
            unknown,
            "unknown colour `grey`; use one of: red, blue, green"
        );
    }
}

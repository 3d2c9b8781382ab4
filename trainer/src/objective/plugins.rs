//! Losses and advantages from outside, beside the built-in ones.

use std::sync::OnceLock;

use forage_contracts::objective::{AdvantageEntry, LossEntry, Settings};

use super::advantages::ADVANTAGES;
use super::entry::Entry;
use super::losses::LOSSES;
use crate::plugin_error::PluginError;

/// Set once by [`ObjectivePlugins::install`]; empty in a program that brings nothing.
static INSTALLED: OnceLock<ObjectivePlugins> = OnceLock::new();

/// Losses and advantages that a program adds to the built-in ones.
#[derive(Clone, Debug, Default)]
pub struct ObjectivePlugins {
    losses: Vec<LossEntry>,
    advantages: Vec<AdvantageEntry>,
}

impl ObjectivePlugins {
    /// Adds a loss.
    #[must_use]
    pub fn loss(mut self, entry: LossEntry) -> Self {
        self.losses.push(entry);
        self
    }

    /// Adds an advantage.
    #[must_use]
    pub fn advantage(mut self, entry: AdvantageEntry) -> Self {
        self.advantages.push(entry);
        self
    }

    /// Puts the entries beside the built-in ones, for the life of the process.
    ///
    /// # Errors
    /// When a name is taken, an entry has too many settings, or plug-ins are installed already.
    pub fn install(self) -> Result<(), PluginError> {
        check(LOSSES, &self.losses)?;
        check(ADVANTAGES, &self.advantages)?;
        INSTALLED.set(self).map_err(|_| PluginError::Again)
    }
}

fn check<E: Entry>(built_in: &[E], added: &[E]) -> Result<(), PluginError> {
    for (place, entry) in added.iter().enumerate() {
        let (kind, name) = (E::KIND, entry.name());
        let mut others = built_in.iter().chain(&added[..place]);
        if others.any(|other| other.name() == name) {
            return Err(PluginError::Taken { kind, name });
        }
        if entry.settings().len() > Settings::MOST {
            return Err(PluginError::Settings {
                kind,
                name,
                most: Settings::MOST,
            });
        }
    }
    Ok(())
}

/// The losses from outside.
pub(super) fn losses() -> impl Iterator<Item = &'static LossEntry> {
    INSTALLED
        .get()
        .into_iter()
        .flat_map(|plugins| &plugins.losses)
}

/// The advantages from outside.
pub(super) fn advantages() -> impl Iterator<Item = &'static AdvantageEntry> {
    INSTALLED
        .get()
        .into_iter()
        .flat_map(|plugins| &plugins.advantages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forage_contracts::objective::Setting;

    #[test]
    fn names_are_taken_once_and_settings_are_few() {
        const MANY: &[Setting] = &[Setting::flag("a"); 5];
        let own = |name| LossEntry { name, ..LOSSES[0] };
        let plugins = |entries: &[LossEntry]| check(LOSSES, entries);
        assert_eq!(plugins(&[own("mine"), own("other")]), Ok(()));
        for (entries, name) in [
            (vec![own("gspo")], "gspo"),
            (vec![own("mine"), own("mine")], "mine"),
        ] {
            let kind = "loss";
            assert_eq!(plugins(&entries), Err(PluginError::Taken { kind, name }));
        }
        let many = AdvantageEntry {
            name: "mine",
            settings: MANY,
            ..ADVANTAGES[0]
        };
        let error = check(ADVANTAGES, &[many]).unwrap_err().to_string();
        assert_eq!(error, "advantage `mine` has more than 4 settings");
    }
}

//! Losses, advantages, curricula and model families from outside, beside the built-in ones.

use forage_contracts::objective::{AdvantageEntry, LossEntry, Settings};
use forage_contracts::{CurriculumEntry, EntryError};

use crate::model::Family;
use crate::objective::Entry;

/// Losses, advantages, curricula and model families that a program adds to the built-in ones.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    /// Losses.
    pub losses: Vec<LossEntry>,
    /// Advantages.
    pub advantages: Vec<AdvantageEntry>,
    /// Curricula.
    pub curricula: Vec<CurriculumEntry>,
    /// Model families.
    pub families: Vec<Family>,
}

impl Plugins {
    /// Puts the entries beside the built-in ones, for the life of the process.
    ///
    /// # Errors
    /// When a name is taken, an entry has too many settings, or plug-ins are installed already.
    pub fn install(self) -> Result<(), EntryError> {
        check(&self.losses)?;
        check(&self.advantages)?;
        check(&self.curricula)?;
        Family::registry().check(&self.families)?;
        LossEntry::registry().install(self.losses)?;
        AdvantageEntry::registry().install(self.advantages)?;
        CurriculumEntry::registry().install(self.curricula)?;
        Family::registry().install(self.families)
    }
}

fn check<E: Entry>(added: &[E]) -> Result<(), EntryError> {
    let many = |entry: &&E| entry.settings().len() > Settings::MOST;
    if let Some(entry) = added.iter().find(many) {
        return Err(EntryError::Settings {
            kind: E::KIND,
            name: entry.label().0,
            most: Settings::MOST,
        });
    }
    E::registry().check(added)
}

#[cfg(test)]
mod tests {
    use forage_contracts::objective::Setting;

    use super::*;
    use crate::objective::{Advantage, PolicyLoss};

    #[test]
    fn names_are_taken_once_and_settings_are_few() {
        const MANY: &[Setting] = &[Setting::flag("a"); 5];
        let own = |name| LossEntry {
            name,
            ..*PolicyLoss::of("gspo", &[]).entry
        };
        assert_eq!(check(&[own("mine"), own("other")]), Ok(()));
        for (entries, name) in [
            (vec![own("gspo")], "gspo"),
            (vec![own("mine"), own("mine")], "mine"),
        ] {
            let kind = "loss";
            assert_eq!(check(&entries), Err(EntryError::Taken { kind, name }));
        }
        let many = AdvantageEntry {
            name: "mine",
            settings: MANY,
            ..*Advantage::of("max_rl", &[]).entry
        };
        let error = check(&[many]).unwrap_err().to_string();
        assert_eq!(error, "advantage `mine` has more than 4 settings");
        let family = Family::new("llama", "Own");
        let error = Family::registry().check(&[family]).unwrap_err().to_string();
        assert!(error.starts_with("model family `llama`"), "{error}");
    }
}

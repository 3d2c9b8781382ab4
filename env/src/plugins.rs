//! Environments and rewards from outside: each a file with an entry, registered in a line.
//!
//! The lists of what there is are constants ([`ENVIRONMENTS`],
//! [`REWARDS`]). A program that brings its own sets this table once, before anything is looked up;
//! from then on its entries are found wherever a built-in one is: configs, commands, `inverse` and `noisy`, suggestions.

use std::sync::OnceLock;

use crate::registry::{ENVIRONMENTS, EnvEntry};
use crate::reward::{REWARDS, RewardEntry};

/// Set once by [`Plugins::install`]; empty in a program that brings nothing.
static INSTALLED: OnceLock<Plugins> = OnceLock::new();

/// What a program adds to the registries.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    environments: Vec<EnvEntry>,
    rewards: Vec<RewardEntry>,
}

/// Entries that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// Two entries answer to one name.
    #[error("{what} `{name}` is registered twice; give one of them another name")]
    Taken {
        /// `environment` or `reward`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An id of another form.
    #[error("environment id `{id}` is not of the form NAMESPACE/NAME-vN, like lab/sql-v0")]
    Id {
        /// As given.
        id: &'static str,
    },
    /// The table was set before.
    #[error("plug-ins are installed already; install all of them at once, when the program starts")]
    Again,
}

impl Plugins {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an environment.
    #[must_use]
    pub fn environment(mut self, entry: EnvEntry) -> Self {
        self.environments.push(entry);
        self
    }

    /// Adds a reward.
    #[must_use]
    pub fn reward(mut self, entry: RewardEntry) -> Self {
        self.rewards.push(entry);
        self
    }

    /// Checks the entries against each other and the built-in ones.
    ///
    /// # Errors
    /// When a name is taken or an id has another form.
    pub fn check(&self) -> Result<(), PluginError> {
        for (place, entry) in self.environments.iter().enumerate() {
            if !well_formed(entry.id) {
                return Err(PluginError::Id { id: entry.id });
            }
            let others = ENVIRONMENTS.iter().chain(&self.environments[..place]);
            if let Some(name) = others.flat_map(EnvEntry::names).find(|name| entry.names().contains(name)) {
                return Err(PluginError::Taken { what: "environment", name: name.to_owned() });
            }
        }
        for (place, entry) in self.rewards.iter().enumerate() {
            if REWARDS.iter().chain(&self.rewards[..place]).any(|other| other.name == entry.name) {
                return Err(PluginError::Taken { what: "reward", name: entry.name.to_owned() });
            }
        }
        Ok(())
    }

    /// Puts the entries beside the built-in ones, for the life of the process.
    ///
    /// # Errors
    /// As [`Plugins::check`], and when plug-ins are installed already.
    pub fn install(self) -> Result<(), PluginError> {
        self.check()?;
        INSTALLED.set(self).map_err(|_| PluginError::Again)
    }
}

fn well_formed(id: &str) -> bool {
    let part = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c))
    };
    let Some((namespace, name)) = id.split_once('/') else { return false };
    let Some((name, version)) = name.rsplit_once("-v") else { return false };
    part(namespace) && part(name) && !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
}

/// Every registered environment, the built-in ones first.
pub fn environments() -> impl Iterator<Item = &'static EnvEntry> {
    ENVIRONMENTS.iter().chain(INSTALLED.get().into_iter().flat_map(|plugins| &plugins.environments))
}

/// Every registered reward, the built-in ones first.
pub fn rewards() -> impl Iterator<Item = &'static RewardEntry> {
    REWARDS.iter().chain(INSTALLED.get().into_iter().flat_map(|plugins| &plugins.rewards))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reward::em;
    use crate::search_r1;

    #[test]
    fn names_are_taken_once_and_ids_have_one_form() {
        let named = |id| EnvEntry { id, ..search_r1::ENTRY };
        assert_eq!(Plugins::new().environment(named("lab/other-v0")).check(), Ok(()));
        let taken = Plugins::new().environment(named("lab/search-r1-v1")).check();
        assert_eq!(taken, Err(PluginError::Taken { what: "environment", name: "search-r1".to_owned() }));
        let twice = Plugins::new().environment(named("a/x-v0")).environment(named("b/x-v1")).check();
        assert!(matches!(twice, Err(PluginError::Taken { .. })), "{twice:?}");
        for id in ["sql", "lab/sql", "lab/sql-v", "lab/sql-vx", "/sql-v0", "lab/-v0", "Lab/sql-v0"] {
            assert_eq!(Plugins::new().environment(named(id)).check(), Err(PluginError::Id { id }), "{id}");
        }
        let taken = Plugins::new().reward(em::ENTRY).check();
        assert_eq!(taken, Err(PluginError::Taken { what: "reward", name: "em".to_owned() }));
        let own = |name| RewardEntry { name, ..em::ENTRY };
        assert_eq!(Plugins::new().reward(own("mine")).reward(own("other")).check(), Ok(()));
        assert!(Plugins::new().reward(own("mine")).reward(own("mine")).check().is_err());
    }
}

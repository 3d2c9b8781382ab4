//! Entries from outside: environments, rewards, question and corpus formats, search modes and retrievers, each a file with
//! an entry, registered in a line.
//!
//! Every kind of entry has a list ([`forage_contracts::Registry`]) whose beginning is built in. A program that brings its own
//! entries adds them once, before anything is looked up; from then on they are found wherever a built-in one is: configs,
//! commands, `inverse` and `noisy`, suggestions, help texts.

use forage_contracts::question::QuestionEntry;
use forage_contracts::retriever::RetrieverEntry;
use forage_contracts::reward::RewardEntry;
use forage_contracts::{CorpusEntry, Entry, EnvEntry};
use forage_retriever::{Listed, ModeEntry};

use crate::dataset::QUESTION_FORMATS;
use crate::registry::{ENVIRONMENT_REGISTRY, ENVIRONMENTS, REWARD_REGISTRY};

/// The entries that a program adds.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    environments: Vec<EnvEntry>,
    rewards: Vec<RewardEntry>,
    question_formats: Vec<QuestionEntry>,
    corpus_formats: Vec<CorpusEntry>,
    modes: Vec<ModeEntry>,
    retrievers: Vec<RetrieverEntry>,
}

/// Entries that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// A name is taken, or plug-ins are installed already.
    #[error(transparent)]
    Entry(#[from] forage_contracts::PluginError),
    /// An id of another form.
    #[error("environment id `{id}` is not of the form NAMESPACE/NAME-vN, like lab/sql-v0")]
    Id {
        /// As given.
        id: &'static str,
    },
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

    /// Adds a form of questions.
    #[must_use]
    pub fn question_format(mut self, entry: QuestionEntry) -> Self {
        self.question_formats.push(entry);
        self
    }

    /// Adds a form of corpora.
    #[must_use]
    pub fn corpus_format(mut self, entry: CorpusEntry) -> Self {
        self.corpus_formats.push(entry);
        self
    }

    /// Adds a way to search an index.
    #[must_use]
    pub fn mode(mut self, entry: ModeEntry) -> Self {
        self.modes.push(entry);
        self
    }

    /// Adds a retriever that brings its own passages.
    #[must_use]
    pub fn retriever(mut self, entry: RetrieverEntry) -> Self {
        self.retrievers.push(entry);
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
            let mut names = others.flat_map(EnvEntry::names);
            if let Some(name) = names.find(|name| entry.names().contains(name)) {
                let kind = EnvEntry::KIND;
                return Err(forage_contracts::PluginError::Taken { kind, name }.into());
            }
        }
        REWARD_REGISTRY.check(&self.rewards)?;
        QUESTION_FORMATS.check(&self.question_formats)?;
        CorpusEntry::registry().check(&self.corpus_formats)?;
        ModeEntry::registry().check(&self.modes)?;
        Ok(RetrieverEntry::registry().check(&self.retrievers)?)
    }

    /// Puts the entries after the built-in ones, for the life of the process.
    ///
    /// # Errors
    /// As [`Plugins::check`], and when plug-ins are installed already.
    pub fn install(self) -> Result<(), PluginError> {
        self.check()?;
        ENVIRONMENT_REGISTRY.install(self.environments)?;
        REWARD_REGISTRY.install(self.rewards)?;
        QUESTION_FORMATS.install(self.question_formats)?;
        CorpusEntry::registry().install(self.corpus_formats)?;
        ModeEntry::registry().install(self.modes)?;
        Ok(RetrieverEntry::registry().install(self.retrievers)?)
    }
}

fn well_formed(id: &str) -> bool {
    let part = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c))
    };
    let Some((namespace, name)) = id.split_once('/') else {
        return false;
    };
    let Some((name, version)) = name.rsplit_once("-v") else {
        return false;
    };
    part(namespace)
        && part(name)
        && !version.is_empty()
        && version.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reward::answers::EM;
    use crate::search_r1;

    fn taken_name(kind: &'static str, name: &'static str) -> PluginError {
        forage_contracts::PluginError::Taken { kind, name }.into()
    }

    #[test]
    fn names_are_taken_once_and_ids_have_one_form() {
        let named = |id| EnvEntry {
            id,
            ..search_r1::ENTRY
        };
        assert_eq!(
            Plugins::new().environment(named("lab/other-v0")).check(),
            Ok(())
        );
        let taken = Plugins::new()
            .environment(named("lab/search-r1-v1"))
            .check();
        assert_eq!(taken, Err(taken_name("environment", "search-r1")));
        let twice = Plugins::new()
            .environment(named("a/x-v0"))
            .environment(named("b/x-v1"))
            .check();
        assert_eq!(twice, Err(taken_name("environment", "x")));
        for id in [
            "sql",
            "lab/sql",
            "lab/sql-v",
            "lab/sql-vx",
            "/sql-v0",
            "lab/-v0",
            "Lab/sql-v0",
        ] {
            assert_eq!(
                Plugins::new().environment(named(id)).check(),
                Err(PluginError::Id { id }),
                "{id}"
            );
        }
        let taken = Plugins::new().reward(EM).check();
        assert_eq!(taken, Err(taken_name("reward", "em")));
        let own = |name| RewardEntry { name, ..EM };
        assert_eq!(
            Plugins::new()
                .reward(own("mine"))
                .reward(own("other"))
                .check(),
            Ok(())
        );
        assert!(
            Plugins::new()
                .reward(own("mine"))
                .reward(own("mine"))
                .check()
                .is_err()
        );
    }
}

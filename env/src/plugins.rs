//! Plug-ins: environments, rewards, question and corpus formats, search modes and retrievers from outside, each a file with an entry,
//! registered in one line.
//!
//! Every kind of entry has a list ([`forage_contracts::Registry`]) that begins with the built-in ones. A program adds its own entries
//! once, before anything is looked up; from then on they are found wherever a built-in one is: in configs, commands, `inverse` and
//! `noisy`, suggestions and help texts.

use forage_contracts::question::QuestionEntry;
use forage_contracts::retriever::RetrieverEntry;
use forage_contracts::reward::RewardEntry;
use forage_contracts::{CorpusEntry, Entry, EntryError, EnvEntry};
use forage_retriever::{Listed, ModeEntry};

use crate::dataset::QUESTION_FORMATS;
use crate::registry::{ENVIRONMENT_REGISTRY, ENVIRONMENTS, REWARD_REGISTRY};

/// The entries that a program adds.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    /// Environments.
    pub environments: Vec<EnvEntry>,
    /// Rewards.
    pub rewards: Vec<RewardEntry>,
    /// Forms of questions.
    pub question_formats: Vec<QuestionEntry>,
    /// Forms of corpora.
    pub corpus_formats: Vec<CorpusEntry>,
    /// Ways to search an index.
    pub modes: Vec<ModeEntry>,
    /// Retrievers that bring their own passages.
    pub retrievers: Vec<RetrieverEntry>,
}

impl Plugins {
    /// Checks the entries against each other and the built-in ones.
    ///
    /// # Errors
    /// When a name is taken or an id has another form.
    pub fn check(&self) -> Result<(), EntryError> {
        for (place, entry) in self.environments.iter().enumerate() {
            if !well_formed(entry.id) {
                return Err(EntryError::Id { id: entry.id });
            }
            let others = ENVIRONMENTS.iter().chain(&self.environments[..place]);
            let mut names = others.flat_map(EnvEntry::names);
            if let Some(name) = names.find(|name| entry.names().contains(name)) {
                let kind = EnvEntry::KIND;
                return Err(EntryError::Taken { kind, name });
            }
        }
        REWARD_REGISTRY.check(&self.rewards)?;
        QUESTION_FORMATS.check(&self.question_formats)?;
        CorpusEntry::registry().check(&self.corpus_formats)?;
        ModeEntry::registry().check(&self.modes)?;
        RetrieverEntry::registry().check(&self.retrievers)
    }

    /// Puts the entries after the built-in ones, for the life of the process.
    ///
    /// # Errors
    /// As [`Plugins::check`], and when plug-ins are installed already.
    pub fn install(self) -> Result<(), EntryError> {
        self.check()?;
        ENVIRONMENT_REGISTRY.install(self.environments)?;
        REWARD_REGISTRY.install(self.rewards)?;
        QUESTION_FORMATS.install(self.question_formats)?;
        CorpusEntry::registry().install(self.corpus_formats)?;
        ModeEntry::registry().install(self.modes)?;
        RetrieverEntry::registry().install(self.retrievers)
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

    fn environments(entries: &[EnvEntry]) -> Result<(), EntryError> {
        let environments = entries.to_vec();
        Plugins {
            environments,
            ..Plugins::default()
        }
        .check()
    }

    fn rewards(entries: &[RewardEntry]) -> Result<(), EntryError> {
        let rewards = entries.to_vec();
        Plugins {
            rewards,
            ..Plugins::default()
        }
        .check()
    }

    #[test]
    fn names_are_taken_once_and_ids_have_one_form() {
        let named = |id| EnvEntry {
            id,
            ..search_r1::ENTRY
        };
        assert_eq!(environments(&[named("lab/other-v0")]), Ok(()));
        let taken = |kind, name| Err(EntryError::Taken { kind, name });
        assert_eq!(
            environments(&[named("lab/search-r1-v1")]),
            taken("environment", "search-r1")
        );
        assert_eq!(
            environments(&[named("a/x-v0"), named("b/x-v1")]),
            taken("environment", "x")
        );
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
                environments(&[named(id)]),
                Err(EntryError::Id { id }),
                "{id}"
            );
        }
        assert_eq!(rewards(&[EM]), taken("reward", "em"));
        let own = |name| RewardEntry { name, ..EM };
        assert_eq!(rewards(&[own("mine"), own("other")]), Ok(()));
        assert_eq!(
            rewards(&[own("mine"), own("mine")]),
            taken("reward", "mine")
        );
    }
}

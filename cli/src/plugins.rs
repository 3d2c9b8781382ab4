//! Everything that a program adds to what is built in, in one table.

use forage_contracts::EnvEntry;
use forage_contracts::question::QuestionEntry;
use forage_contracts::reward::RewardEntry;
use forage_retriever::remote::RetrieverEntry;
use forage_retriever::{CorpusEntry, ModeEntry};
use forage_trainer::model::{Family, install_families};
use forage_trainer::objective::{AdvantageEntry, LossEntry, ObjectivePlugins};

/// Everything that a program adds to the lists of built-in entries.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    env: forage_env::Plugins,
    objective: ObjectivePlugins,
    families: Vec<Family>,
}

impl Plugins {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an environment.
    #[must_use]
    pub fn environment(mut self, entry: EnvEntry) -> Self {
        self.env = self.env.environment(entry);
        self
    }

    /// Adds a reward.
    #[must_use]
    pub fn reward(mut self, entry: RewardEntry) -> Self {
        self.env = self.env.reward(entry);
        self
    }

    /// Adds a question format.
    #[must_use]
    pub fn question_format(mut self, entry: QuestionEntry) -> Self {
        self.env = self.env.question_format(entry);
        self
    }

    /// Adds a corpus format.
    #[must_use]
    pub fn corpus_format(mut self, entry: CorpusEntry) -> Self {
        self.env = self.env.corpus_format(entry);
        self
    }

    /// Adds a way to search an index.
    #[must_use]
    pub fn mode(mut self, entry: ModeEntry) -> Self {
        self.env = self.env.mode(entry);
        self
    }

    /// Adds a retriever that brings its own passages.
    #[must_use]
    pub fn retriever(mut self, entry: RetrieverEntry) -> Self {
        self.env = self.env.retriever(entry);
        self
    }

    /// Adds a loss.
    #[must_use]
    pub fn loss(mut self, entry: LossEntry) -> Self {
        self.objective = self.objective.loss(entry);
        self
    }

    /// Adds an advantage.
    #[must_use]
    pub fn advantage(mut self, entry: AdvantageEntry) -> Self {
        self.objective = self.objective.advantage(entry);
        self
    }

    /// Adds a model family.
    #[must_use]
    pub fn family(mut self, entry: Family) -> Self {
        self.families.push(entry);
        self
    }

    /// Puts the entries beside the built-in ones, for the life of the process; [`crate::main_with`] does so.
    ///
    /// # Errors
    /// When a name is taken, an entry has another form, or plug-ins are installed already.
    pub fn install(self) -> anyhow::Result<()> {
        self.env.install()?;
        self.objective.install()?;
        Ok(install_families(self.families)?)
    }
}

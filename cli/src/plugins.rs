//! Everything that a program adds to what is built in, in one table.

use forage_contracts::question::QuestionEntry;
use forage_contracts::retriever::RetrieverEntry;
use forage_contracts::reward::RewardEntry;
use forage_contracts::{CurriculumEntry, EnvEntry};
use forage_retriever::{CorpusEntry, ModeEntry};
use forage_trainer::Family;
use forage_trainer::objective::{AdvantageEntry, LossEntry};

/// Everything that a program adds to the lists of built-in entries.
#[derive(Clone, Debug, Default)]
pub struct Plugins {
    env: forage_env::Plugins,
    trainer: forage_trainer::Plugins,
}

impl Plugins {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an environment.
    #[must_use]
    pub fn environment(mut self, entry: EnvEntry) -> Self {
        self.env.environments.push(entry);
        self
    }

    /// Adds a reward.
    #[must_use]
    pub fn reward(mut self, entry: RewardEntry) -> Self {
        self.env.rewards.push(entry);
        self
    }

    /// Adds a question format.
    #[must_use]
    pub fn question_format(mut self, entry: QuestionEntry) -> Self {
        self.env.question_formats.push(entry);
        self
    }

    /// Adds a corpus format.
    #[must_use]
    pub fn corpus_format(mut self, entry: CorpusEntry) -> Self {
        self.env.corpus_formats.push(entry);
        self
    }

    /// Adds a way to search an index.
    #[must_use]
    pub fn mode(mut self, entry: ModeEntry) -> Self {
        self.env.modes.push(entry);
        self
    }

    /// Adds a retriever that brings its own passages.
    #[must_use]
    pub fn retriever(mut self, entry: RetrieverEntry) -> Self {
        self.env.retrievers.push(entry);
        self
    }

    /// Adds a loss.
    #[must_use]
    pub fn loss(mut self, entry: LossEntry) -> Self {
        self.trainer.losses.push(entry);
        self
    }

    /// Adds an advantage.
    #[must_use]
    pub fn advantage(mut self, entry: AdvantageEntry) -> Self {
        self.trainer.advantages.push(entry);
        self
    }

    /// Adds a curriculum.
    #[must_use]
    pub fn curriculum(mut self, entry: CurriculumEntry) -> Self {
        self.trainer.curricula.push(entry);
        self
    }

    /// Adds a model family.
    #[must_use]
    pub fn family(mut self, entry: Family) -> Self {
        self.trainer.families.push(entry);
        self
    }

    /// Puts the entries beside the built-in ones, for the life of the process; [`crate::main_with`] does so.
    ///
    /// # Errors
    /// When a name is taken, an entry has another form, or plug-ins are installed already.
    pub fn install(self) -> anyhow::Result<()> {
        self.env.install()?;
        Ok(self.trainer.install()?)
    }
}

//! Questions and what they are searched in where no config names them.

use std::path::Path;
use std::sync::Arc;

use forage_contracts::Split;
use forage_env::{World, WorldError, WorldSpec, read_tasks, registry};
use forage_retriever::CorpusFormat;

use crate::data::{Corpus, Tasks, own_questions};
use crate::error::{Context, Result, bail, refuse};
use crate::evidence::name_pages;
use crate::hub::fetch_file;
use crate::retrieval::RetrieverConfig;

/// Questions of a file, which are searched in an index or a corpus; else those of the environment, or of a generated world.
pub struct Sources<'a> {
    /// The environment, by its id.
    pub environment: &'a str,
    /// A file of questions.
    pub questions: Option<&'a Path>,
    /// The folder of an index.
    pub index: Option<&'a Path>,
    /// A corpus, which is indexed first.
    pub corpus: Option<(&'a Path, CorpusFormat)>,
    /// The search for passages.
    pub retrieval: &'a RetrieverConfig,
    /// Split of the questions.
    pub split: Split,
    /// Most questions.
    pub limit: Option<usize>,
    /// The number of questions to make without a limit.
    pub usual: usize,
    /// Pages of a generated world; without it none is made.
    pub pages: Option<u64>,
    /// Seed of what is made.
    pub seed: u64,
}

impl Sources<'_> {
    /// Opens what is searched, indexing a corpus in `scratch`, and reads or makes the questions.
    ///
    /// # Errors
    /// When something cannot be read or made, or the sources do not go together.
    pub fn open(&self, scratch: &Path) -> Result<(Corpus, Tasks)> {
        let Some(questions) = self.questions else {
            return self.made();
        };
        let unsearched = self.index.is_none() && self.corpus.is_none();
        if unsearched && registry::find(self.environment)?.questions.is_none() {
            bail!("--questions goes with --index or --corpus, what they are searched in");
        }
        let mut tasks = read_tasks(&fetch_file(questions)?, self.split)?;
        tasks.truncate(self.limit.unwrap_or(usize::MAX));
        let corpus = if unsearched {
            Corpus::none()
        } else {
            Corpus::searchable(self.index, self.corpus, self.retrieval, scratch)?
        };
        name_pages(&mut tasks, corpus.index.as_deref())?;
        Ok((corpus, tasks.into_iter().map(Arc::new).collect()))
    }

    fn made(&self) -> Result<(Corpus, Tasks)> {
        let count = self.limit.unwrap_or(self.usual);
        let searched = self.index.is_some() || self.corpus.is_some();
        let own = registry::find(self.environment)?.questions;
        if let Some(own) = own.filter(|_| !searched) {
            let settings = serde_json::Map::new();
            let tasks = own_questions(own, settings, self.split, count, self.seed)?;
            return Ok((Corpus::none(), tasks));
        }
        let pages = self
            .pages
            .filter(|_| !searched)
            .context("give a config, or --questions with --index or --corpus")?;
        if self.retrieval.mode.needs_encoder {
            refuse!(
                "mode {} searches vectors, and the passages of a generated world have none; give --questions, and --index \
                 with one that has",
                self.retrieval.mode
            );
        }
        let world = Arc::new(World::new(WorldSpec::new(pages, self.seed))?);
        let questions = match (world.questions(self.split, count as u64), self.limit) {
            // Nobody asked for so many: a small world has fewer.
            (Err(WorldError::TooManyQuestions { available, .. }), None) => {
                world.questions(self.split, available)?
            }
            (found, _) => found?,
        };
        let tasks = questions.map(Arc::new).collect();
        Ok((Corpus::generated(&world, self.retrieval)?, tasks))
    }
}

#[cfg(test)]
mod tests {
    use forage_retriever::Mode;

    use super::*;

    #[test]
    fn a_generated_world_is_searched_in_the_mode_that_is_asked_for() {
        let open = |mode| {
            let retrieval = RetrieverConfig {
                mode,
                ..RetrieverConfig::default()
            };
            let sources = Sources {
                environment: "search-r1",
                questions: None,
                index: None,
                corpus: None,
                retrieval: &retrieval,
                split: Split::Test,
                limit: Some(2),
                usual: 2,
                pages: Some(100),
                seed: 1,
            };
            let (corpus, _) = sources.open(Path::new("nowhere"))?;
            Ok::<_, crate::RunError>(corpus.retriever.fingerprint())
        };
        assert_ne!(open(Mode::BOOLEAN).unwrap(), open(Mode::BM25).unwrap());
        let error = open(Mode::DENSE).unwrap_err().to_string();
        assert!(error.contains("a generated world have none"), "{error}");
    }
}

//! Environments by name.

use std::error::Error;
use std::sync::Arc;

use forage_retriever::Retriever;
use forage_sandbox::SandboxError;
use serde_json::{Map, Value};

use crate::code_search;
use crate::environment::{EnvFactory, Outcome};
use crate::nearest::nearest;
use crate::plugins::environments;
use crate::query_writer;
use crate::search_r1::{self, SettingsError};
use crate::seed::Seed;
use crate::task::{Split, Task};
use crate::tokenizer::Tokenizer;
use crate::wiki::{Wiki, WikiError};

/// Opens the pages of an environment that reads whole pages. Called by those environments alone.
pub type OpenWiki = Arc<dyn Fn() -> Result<Arc<Wiki>, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// What environments may stand on. An environment opens only what it needs.
#[derive(Clone)]
pub struct Resources {
    /// Finds passages.
    pub retriever: Arc<dyn Retriever>,
    /// The policy's tokenizer, for limits in tokens.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// Where whole pages come from, if there are any.
    pub wiki: Option<OpenWiki>,
    /// Hears what takes long.
    pub notice: fn(&str),
}

impl Resources {
    /// Passages alone.
    pub fn new(retriever: Arc<dyn Retriever>, tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self { retriever, tokenizer, wiki: None, notice: |_| {} }
    }

    /// Whole pages as well.
    #[must_use]
    pub fn with_wiki(self, open: OpenWiki) -> Self {
        Self { wiki: Some(open), ..self }
    }

    /// Whole pages that are open already.
    #[must_use]
    pub fn with_open_wiki(self, wiki: Arc<Wiki>) -> Self {
        self.with_wiki(Arc::new(move || Ok(Arc::clone(&wiki))))
    }

    /// Opens the pages.
    pub(crate) fn open_wiki(&self) -> Result<Arc<Wiki>, RegistryError> {
        let open = self.wiki.as_ref().ok_or(RegistryError::NoPages)?;
        open().map_err(RegistryError::Pages)
    }
}

/// One registered environment.
#[derive(Clone, Copy, Debug)]
pub struct EnvEntry {
    /// `forage/NAME-vN`.
    pub id: &'static str,
    /// What its episodes are for.
    pub outcome: Outcome,
    /// What it is, in a few words.
    pub about: &'static str,
    /// A turn that is valid under the default settings and, where episodes have several turns, does not end the episode,
    /// for the checker.
    pub probe: &'static str,
    /// Writes the turn that ends a task's episode with the highest score, for the checker.
    pub gold: fn(&Task) -> String,
    /// Settings for scripted policies, whose tokens are bytes, about four to one of a model's; for settings as written.
    pub for_bytes: fn(Map<String, Value>) -> Map<String, Value>,
    /// What an environment brings along that needs neither passages nor questions of others.
    pub own: Option<Own>,
    /// Builds its factory from settings as written.
    pub make: fn(Value, Resources) -> Result<Arc<dyn EnvFactory>, RegistryError>,
}

/// Questions of an environment's own and how a perfect player answers them.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The first `count` questions of a split; a function of the split and the seed, splits share nothing.
    pub questions: fn(split: Split, count: usize, seed: Seed) -> Vec<Task>,
    /// The turn a perfect player writes after these observations, for `--policy oracle` and demonstrations.
    pub oracle: fn(task: &Task, shown: &[String]) -> String,
}

impl EnvEntry {
    /// The names it is found by: the id, the id without its namespace, and that without its version.
    pub fn names(&self) -> [&'static str; 3] {
        let versioned = self.id.rsplit_once('/').map_or(self.id, |(_, name)| name);
        let short = versioned.rsplit_once("-v").map_or(versioned, |(name, _)| name);
        [self.id, versioned, short]
    }
}

/// Every built-in environment. A new one is a file and a line here, and is then covered by the conformance tests; one from
/// outside is registered through [`crate::plugins`].
pub const ENVIRONMENTS: &[EnvEntry] = &[search_r1::ENTRY, code_search::ENTRY, query_writer::ENTRY];

/// An environment could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// No environment has this id.
    #[error("unknown environment `{id}`; did you mean `{nearest}`?")]
    Unknown {
        /// As written.
        id: String,
        /// The nearest registered id.
        nearest: &'static str,
    },
    /// The settings do not have the right keys and types.
    #[error("environment settings")]
    Parse(#[from] serde_json::Error),
    /// The settings contradict themselves.
    #[error("environment settings")]
    Settings(#[from] SettingsError),
    /// The environment reads whole pages and was given none.
    #[error("this environment reads whole pages and there are none; name a corpus of pages or use a generated world")]
    NoPages,
    /// The pages cannot be opened.
    #[error("open the pages")]
    Pages(#[source] Box<dyn Error + Send + Sync>),
    /// The environment runs queries in boolean syntax and the retriever takes text only.
    #[error(
        "this environment needs boolean mode; name an index folder, with retriever mode bm25 or boolean and no reranker"
    )]
    NoBoolean,
    /// The titles cannot be indexed.
    #[error("index the pages")]
    Wiki(#[from] WikiError),
    /// The sandbox cannot be opened.
    #[error("open the sandbox")]
    Sandbox(#[from] SandboxError),
    /// What an environment from outside stands on cannot be used.
    #[error("set up the environment")]
    Own(#[source] Box<dyn Error + Send + Sync>),
}

/// Finds an environment by its id (`forage/search-r1-v0`) or its short name (`search-r1`, `search-r1-v0`).
///
/// # Errors
/// When there is none; the error names the nearest.
pub fn find(id: &str) -> Result<&'static EnvEntry, RegistryError> {
    let known = environments().find(|entry| entry.names().contains(&id));
    known.ok_or_else(|| {
        let all = environments().flat_map(EnvEntry::names);
        let nearest = nearest(id, all);
        RegistryError::Unknown { id: id.to_owned(), nearest }
    })
}

/// Makes the factory of the environment `id`. `settings` may be null for the defaults.
///
/// # Errors
/// When the id is unknown or the settings are wrong.
pub fn make(id: &str, settings: Value, resources: Resources) -> Result<Arc<dyn EnvFactory>, RegistryError> {
    let settings = if settings.is_null() { Value::Object(serde_json::Map::default()) } else { settings };
    (find(id)?.make)(settings, resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_found_and_misspelt_ones_suggested() {
        for name in ["forage/search-r1-v0", "search-r1-v0", "search-r1"] {
            assert_eq!(find(name).expect("registered").id, "forage/search-r1-v0");
        }
        let error = find("serach-r1").expect_err("misspelt").to_string();
        assert_eq!(error, "unknown environment `serach-r1`; did you mean `search-r1`?");
    }
}

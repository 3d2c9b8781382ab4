//! The entry of an environment: everything specific to it, as values and functions.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::environment::{EnvFactory, Outcome};
use crate::episode::Episode;
use crate::metric::Metric;
use crate::pages::Pages;
use crate::policy::Policy;
use crate::registry::Entry;
use crate::retriever::Retriever;
use crate::scripted::{Cast, ScriptEntry};
use crate::seed::Seed;
use crate::tag::Tag;
use crate::task::{Split, Task};
use crate::telemetry::EnvTelemetry;
use crate::tokenizer::Tokenizer;

/// Opens the pages of an environment that reads whole pages. Called by those environments alone.
pub type OpenWiki =
    Arc<dyn Fn() -> Result<Arc<dyn Pages>, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// The resources that an environment may use. An environment opens only those that it needs.
#[derive(Clone)]
pub struct Resources {
    /// Finds passages.
    pub retriever: Arc<dyn Retriever>,
    /// The policy's tokenizer, for limits in tokens.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// The source of whole pages, if there is one.
    pub wiki: Option<OpenWiki>,
    /// Receives notices about work that takes long.
    pub notice: fn(&str),
}

impl Resources {
    /// Passages alone.
    pub fn new(retriever: Arc<dyn Retriever>, tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self {
            retriever,
            tokenizer,
            wiki: None,
            notice: |_| {},
        }
    }

    /// Whole pages as well.
    #[must_use]
    pub fn with_wiki(self, open: OpenWiki) -> Self {
        Self {
            wiki: Some(open),
            ..self
        }
    }

    /// Whole pages that are open already.
    #[must_use]
    pub fn with_open_wiki(self, wiki: Arc<dyn Pages>) -> Self {
        self.with_wiki(Arc::new(move || Ok(Arc::clone(&wiki))))
    }

    /// Opens the pages.
    ///
    /// # Errors
    /// When there are none, or they cannot be opened.
    pub fn open_wiki(&self) -> Result<Arc<dyn Pages>, RegistryError> {
        let open = self.wiki.as_ref().ok_or(RegistryError::NoPages)?;
        open().map_err(RegistryError::Pages)
    }
}

/// Makes the first `count` questions of a split, under settings as written.
type MakeQuestions =
    fn(settings: Value, split: Split, count: usize, seed: Seed) -> Result<Vec<Task>, RegistryError>;

/// Emits numbers about a step's episodes, each with its name.
type StepMetrics = fn(&[&Episode], &mut dyn FnMut(&str, f64));

/// Emits numbers about an episode, each with its name.
type Measures = fn(&Episode, &mut dyn FnMut(&'static str, f64));

/// One registered environment, with everything specific to it. [`EnvEntry::new`] takes what every environment has; the other fields have
/// defaults.
///
/// ```
/// # use forage_contracts::{EnvEntry, RegistryError};
/// # use forage_contracts::environment::Outcome;
/// const ENTRY: EnvEntry = EnvEntry {
///     quickstart: Some("seed = 1"),
///     ..EnvEntry::new("lab/mine-v0", "one of mine", Outcome::Answer, "<search>x</search>", |_, _| {
///         Err(RegistryError::NoPages)
///     })
/// };
/// assert_eq!(ENTRY.names(), ["lab/mine-v0", "mine-v0", "mine"]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EnvEntry {
    /// `NAMESPACE/NAME-vN`.
    pub id: &'static str,
    /// The purpose of its episodes.
    pub outcome: Outcome,
    /// A few words about it.
    pub about: &'static str,
    /// Builds its factory from settings as written.
    pub make: fn(Value, Resources) -> Result<Arc<dyn EnvFactory>, RegistryError>,
    /// Resolves settings: fills in defaults, and derives what follows from them.
    pub resolve: fn(Value) -> Result<Resolved, RegistryError>,
    /// JSON schema of its settings (`schemars::schema_for!`), for the reference of a config's keys; without it keys and defaults are
    /// those that [`Self::resolve`] spells out, and nobody says what they mean.
    pub schema: Option<fn() -> Value>,
    /// Settings for scripted policies, whose tokens are bytes, about four to one of a model's; for settings as written.
    pub for_bytes: fn(Map<String, Value>) -> Map<String, Value>,
    /// The reason why a reward of this name, which fits the outcome, cannot judge episodes under these settings (as resolved), and what to do
    /// instead; `None` where it can.
    pub refuses: fn(&str, &Value) -> Option<&'static str>,
    /// The setting (of these, as resolved) by which episodes learn from the gold answers whatever the reward is; `None` without one.
    pub tells_golds: fn(&Value) -> Option<&'static str>,
    /// The first `count` questions of a split, for an environment that brings its own; a function of the settings, the split and the
    /// seed. Splits share nothing, and no two questions of one have the same id.
    pub questions: Option<MakeQuestions>,
    /// Its scripted policies; [`ScriptEntry::ORACLE`] demonstrates how to be right.
    pub scripts: &'static [ScriptEntry],
    /// The rules by which a tokenizer that is trained for it cuts text.
    pub vocabulary: Vocabulary,
    /// The config of `forage quickstart`, as TOML.
    pub quickstart: Option<&'static str>,
    /// Metrics of a training step for this environment's episodes alone, each emitted with its name. Episodes that an infrastructure
    /// fault ended are not among them.
    pub metrics: StepMetrics,
    /// Measures of one scored episode of this environment, each emitted with its name; none for episodes of other environments.
    pub measures: Measures,
    /// The metrics that [`Self::metrics`] and [`Self::measures`] emit.
    pub declares: &'static [Metric],
    /// Its own items of telemetry, and how the common ones read its turns.
    pub telemetry: EnvTelemetry,
    /// For the checker: a turn that is valid under the default settings and, where episodes have several turns, does not end
    /// the episode.
    pub probe: &'static str,
    /// For the checker and policies that are `constant:ANSWER`: the turn that ends an episode with this answer or query.
    pub last: fn(&str) -> String,
    /// For the checker: the turn that ends a task's episode with the highest score.
    pub gold: fn(&Task) -> String,
}

/// Settings of an environment and what follows from them.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Every setting, defaults and profile included.
    pub settings: Value,
    /// The template of the opening prompt; `None` when there is none that can be read.
    pub prompt: Option<String>,
    /// The same instructions in other words, as values of the setting `prompt`; empty when there are none.
    pub wordings: Vec<Value>,
    /// The files that the settings name, with the key of each, for configs to be checked before they are opened.
    pub files: Vec<(String, PathBuf)>,
    /// The use that the environment makes of the passages that are found.
    pub passages: Passages,
}

/// The use that an environment makes of the passages that its retriever finds: it decides which changes to them reach the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passages {
    /// The policy reads them.
    Read,
    /// The policy reads the pages that they lead to: passages can be hidden or exchanged, not invented.
    LeadToPages,
    /// The policy reads none of them.
    Unread {
        /// Why.
        why: &'static str,
        /// The alternative.
        fix: &'static str,
    },
}

/// The parts of an environment's text that a trained tokenizer must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// The tags of its protocol; each is a single token, so that a stop string always ends exactly at a token.
    pub tags: &'static [&'static str],
    /// The boundaries that merges do not cross.
    pub pieces: Pieces,
}

/// Pieces of text that the merges of a tokenizer do not cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// Words with the space before them.
    Words,
    /// Identifiers, and names and digits apart from the spaces and marks before them: a name has the same tokens in a
    /// question, a string literal and an answer, so it can be copied. Such a vocabulary is trained on demonstrations too.
    Code,
}

impl Resolved {
    /// Settings as they were written, of an environment that says nothing more about them.
    ///
    /// # Errors
    /// None; the form is that of [`EnvEntry::resolve`].
    pub fn as_written(settings: Value) -> Result<Self, RegistryError> {
        Ok(Self {
            settings,
            prompt: None,
            wordings: Vec::new(),
            files: Vec::new(),
            passages: Passages::Read,
        })
    }
}

impl EnvEntry {
    /// An environment without optional parts. `probe` is a turn that is valid under the default settings.
    pub const fn new(
        id: &'static str,
        about: &'static str,
        outcome: Outcome,
        probe: &'static str,
        make: fn(Value, Resources) -> Result<Arc<dyn EnvFactory>, RegistryError>,
    ) -> Self {
        Self {
            id,
            outcome,
            about,
            make,
            resolve: Resolved::as_written,
            schema: None,
            for_bytes: |settings| settings,
            refuses: |_, _| None,
            tells_golds: |_| None,
            questions: None,
            scripts: &[],
            vocabulary: Vocabulary {
                tags: &[],
                pieces: Pieces::Words,
            },
            quickstart: None,
            metrics: |_, _| {},
            measures: |_, _| {},
            declares: &[],
            telemetry: EnvTelemetry::COMMON,
            probe,
            last: answer,
            gold: gold_answer,
        }
    }

    /// One of its scripted policies.
    ///
    /// # Errors
    /// When it has none of this name; the error lists those it has.
    pub fn script(&self, name: &str, cast: Cast) -> Result<Arc<dyn Policy>, RegistryError> {
        let found = self.scripts.iter().find(|script| script.name == name);
        found
            .map(|script| (script.play)(cast))
            .ok_or_else(|| RegistryError::NoScript {
                name: name.to_owned(),
                id: self.id,
                known: self
                    .scripts
                    .iter()
                    .map(|script| script.name)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// The names under which it is found: the id, the id without its namespace, and that without its version.
    pub fn names(&self) -> [&'static str; 3] {
        let versioned = self.id.rsplit_once('/').map_or(self.id, |(_, name)| name);
        let short = versioned
            .rsplit_once("-v")
            .map_or(versioned, |(name, _)| name);
        [self.id, versioned, short]
    }
}

impl Entry for EnvEntry {
    const KIND: &'static str = "environment";

    fn label(&self) -> (&'static str, &'static str) {
        (self.id, self.about)
    }
}

/// The turn that answers with the first gold, after a thought.
fn gold_answer(task: &Task) -> String {
    let gold = task.golds.first().map_or("", String::as_str);
    Tag::turn("known", Tag::Answer.both(), gold)
}

/// The turn that answers.
fn answer(answer: &str) -> String {
    Tag::turn("", Tag::Answer.both(), answer)
}

/// An environment could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// No environment has this id.
    #[error("unknown environment `{id}`; {suggestion}")]
    Unknown {
        /// As written.
        id: String,
        /// The nearest registered name, or all of them.
        suggestion: String,
    },
    /// An environment has no scripted policy of this name.
    #[error("{id} has no script `{name}`; it has {known} and constant:ANSWER")]
    NoScript {
        /// As written.
        name: String,
        /// The environment.
        id: &'static str,
        /// Those it has.
        known: String,
    },
    /// The settings do not have the right keys and types.
    #[error("environment settings")]
    Parse(#[from] serde_json::Error),
    /// The settings contradict themselves.
    #[error("environment settings")]
    Settings(#[source] Box<dyn Error + Send + Sync>),
    /// The environment reads whole pages and was given none.
    #[error(
        "this environment reads whole pages and there are none; name a corpus of pages or use a generated world"
    )]
    NoPages,
    /// The pages cannot be opened.
    #[error("open the pages")]
    Pages(#[source] Box<dyn Error + Send + Sync>),
    /// The environment runs queries in boolean syntax and the retriever takes text only.
    #[error(
        "this environment needs boolean mode; name an index folder, with retriever mode bm25 or boolean and no reranker"
    )]
    NoBoolean,
    /// The sandbox cannot be opened.
    #[error("open the sandbox")]
    Sandbox(#[source] Box<dyn Error + Send + Sync>),
    /// A resource of an environment from outside cannot be used.
    #[error("set up the environment")]
    Own(#[source] Box<dyn Error + Send + Sync>),
}

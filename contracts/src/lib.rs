//! The contracts: the traits, records and registry entries that a plug-in implements or hands over, and nothing that runs them.
//!
//! A plug-in depends on this crate alone, which brings no index, no sandbox, no server and no tensors:
//!
//! - an environment: [`environment`], [`EnvEntry`], and [`scripted`] for its policies without a model;
//! - a reward: [`reward`], which sees a [`Task`] and an [`Episode`];
//! - a retriever that brings its own passages: [`retriever`];
//! - a corpus format or a question format: [`CorpusEntry`], [`question`], over the [`Row`]s of a file;
//! - a loss or an advantage: [`objective`], over plain slices;
//! - a curriculum: [`CurriculumEntry`], over what was asked before.
//!
//! What runs them is in the crates above: indexes in `forage-retriever`, built-in environments, rewards and the rollout driver in
//! `forage-env`, the learner in `forage-trainer`. A search mode works on an index folder, and so its entry is in
//! `forage-retriever`.

mod corpus;
mod curriculum;
mod entry;
pub mod environment;
mod episode;
mod metric;
mod nearest;
pub mod objective;
mod one_or_many;
mod pages;
pub mod policy;
pub mod question;
mod registry;
pub mod retriever;
pub mod reward;
mod row;
pub mod scripted;
pub mod seed;
mod setting;
mod tag;
mod task;
mod telemetry;
mod tokenizer;
mod tokens;

pub use corpus::{CorpusEntry, Passage};
pub use curriculum::{Asked, CurriculumEntry, CurriculumInputs};
pub use entry::{
    EnvEntry, OpenWiki, Passages, Pieces, RegistryError, Resolved, Resources, Vocabulary,
};
pub use episode::{Boundary, Branch, Ending, Episode, Limit, Score, Turn};
pub use metric::{Direction, Metric, STEP_METRICS};
pub use nearest::{nearest, suggestion};
pub use one_or_many::OneOrMany;
pub use pages::{Found, Page, PagePart, Pages};
pub use registry::{Entry, EntryError, Registry};
pub use row::{Cell, Row, RowFault};
pub use setting::SettingError;
pub use tag::Tag;
pub use task::{OracleHop, Split, Task};
pub use telemetry::{EnvTelemetry, Item, Reading, Sign};
pub use tokenizer::{ByteTokenizer, Tokenizer};
pub use tokens::{Provenance, Span, TokenLog, Treatment};

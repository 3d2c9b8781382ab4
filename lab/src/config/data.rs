//! `[data]`: where questions and passages come from.

use std::path::PathBuf;

use forage_contracts::OneOrMany;
use forage_env::{Labels, WorldSpec};
use forage_retriever::CorpusFormat;
use serde::{Deserialize, Serialize};

use crate::error::{Result, refuse};

/// Exactly one of `world`, `files` and `own`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Questions to learn from, counted from the first. All that files hold by default; of a generated world 2,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_questions: Option<usize>,
    /// Questions for evaluations during training, in the same way; of a generated world 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev_questions: Option<usize>,
    /// Held-out questions, in the same way; of a generated world 500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_questions: Option<usize>,
    /// The answers that count as right in training: `true`, or as a control `shuffled`, `wrong`, `majority:FILE` or
    /// `wrong-majority:FILE` with recorded episodes. Development and test questions keep their own.
    #[serde(default, skip_serializing_if = "Labels::are_true")]
    #[schemars(extend("default" = "true"))]
    pub labels: Labels,
    /// A generated world.
    pub world: Option<WorldSpec>,
    /// Published files.
    pub files: Option<FilesConfig>,
    /// Digests of the questions, as a run's resolved config has them: a run on other questions is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digests: Option<Digests>,
    /// The environment's own questions, where it brings some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) own: Option<OwnQuestions>,
}

impl DataConfig {
    /// Most questions to take of each split: train, dev and test.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let usual = match self.files {
            Some(_) => [usize::MAX; 3],
            None => [2_000, 100, 500],
        };
        let written = [
            self.train_questions,
            self.dev_questions,
            self.test_questions,
        ];
        std::array::from_fn(|split| written[split].unwrap_or(usual[split]))
    }
}

/// [`forage_env::digest_ids`] of each split that has questions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Digests {
    /// Training questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<String>,
    /// Development questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// Held-out questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<String>,
}

impl Digests {
    /// Each digest with its key.
    pub(crate) fn by_key(&self) -> [(&'static str, Option<&String>); 3] {
        [
            ("train", self.train.as_ref()),
            ("dev", self.dev.as_ref()),
            ("test", self.test.as_ref()),
        ]
    }
}

/// Fixed lists of questions, one id a line, for the splits that have one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IdLists {
    /// Training questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<PathBuf>,
    /// Development questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev: Option<PathBuf>,
    /// Held-out questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<PathBuf>,
}

/// Questions that the environment makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnQuestions {
    /// Seed they are made from.
    pub seed: u64,
}

/// A corpus and its questions as files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesConfig {
    /// The corpus, or a list of corpora that are one: their names are the field `dataset` of passages and stand before ids. Not needed
    /// beside an index, nor where the passages are on a server.
    #[serde(default, with = "OneOrMany", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "one_or_many")]
    pub corpus: Vec<PathBuf>,
    /// Its format; read off its first record by default, and pages stay whole where the environment neither reads nor ranks passages.
    pub format: Option<CorpusFormat>,
    /// Whole pages (`id`, `title`, `content`) for environments that read them; the corpus's own by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PathBuf>,
    /// A ready-made index, checked against the corpus where one is named; built into the run's folder when absent.
    pub index: Option<PathBuf>,
    /// Questions to learn from, a file or a list of files: JSON lines, a JSON list, parquet, a table, a BEIR folder. Not needed for
    /// evaluations.
    #[serde(default, with = "OneOrMany", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "one_or_many")]
    pub train: Vec<PathBuf>,
    /// Share of `train`, from its first row on, that is learned from; the rest are the held-out questions, in place of `test`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_share: Option<f64>,
    /// Questions for evaluations during training.
    #[serde(default, with = "OneOrMany", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "one_or_many")]
    pub dev: Vec<PathBuf>,
    /// Held-out questions.
    #[serde(default, with = "OneOrMany", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "one_or_many")]
    pub test: Vec<PathBuf>,
    /// Fixed lists of ids: only these questions of the files, in this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ids: Option<IdLists>,
}

impl FilesConfig {
    /// Refuses contradictory rules of splitting.
    pub(super) fn check(&self) -> Result<()> {
        if self.train.is_empty() && self.test.is_empty() {
            refuse!(
                "no file of questions is named; write train for those to learn from, or test for those of evaluations"
            );
        }
        if self.format.is_some() && self.corpus.is_empty() {
            refuse!(
                "format is that of a corpus, and none is named; write corpus, or remove format"
            );
        }
        let Some(share) = self.train_share else {
            return Ok(());
        };
        if !(share > 0.0 && share < 1.0) {
            refuse!("train_share is {share}; write a share between 0 and 1, for instance 0.8");
        }
        if self.train.is_empty() {
            refuse!(
                "train_share cuts `train` in two, which names no file; remove it, or write train"
            );
        }
        if !self.test.is_empty() || self.ids.is_some() {
            refuse!("train_share cuts `train` in two by itself; remove it, or `test` and `ids`");
        }
        Ok(())
    }
}

/// The schema of a path or a list of paths.
fn one_or_many(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }]
    })
}

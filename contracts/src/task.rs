//! Tasks: one question with its golds and evidence.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The part of a data set that a task belongs to. Splits share no entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Questions a policy may learn from.
    Train,
    /// Questions for choosing settings.
    Dev,
    /// Held-out questions: looked at only to report.
    Test,
}

impl Split {
    /// Cuts tasks in two in their own order: the first `share` of them (0 to 1, rounded down) for training, the rest held out for tests.
    pub fn cut(mut tasks: Vec<Task>, share: f64) -> (Vec<Task>, Vec<Task>) {
        let first = (tasks.len() as f64 * share.clamp(0.0, 1.0)).floor() as usize;
        let mut held_out = tasks.split_off(first.min(tasks.len()));
        for task in &mut tasks {
            task.split = Self::Train;
        }
        for task in &mut held_out {
            task.split = Self::Test;
        }
        (tasks, held_out)
    }
}

/// One question an episode tries to answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique within [`Task::data_source`]: published files begin their ids anew in each data set.
    pub id: String,
    /// The text of the question.
    pub question: String,
    /// Accepted answers: the gold first, then aliases. Empty where nobody knows one, for rewards that do without.
    #[serde(default)]
    pub golds: Vec<String>,
    /// Ids of the passages or pages that hold the evidence, in hop order. May be empty.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// Grades of judged passages by id, as `trec_eval` reads them: 1 and above is relevant. Empty when nobody graded; then
    /// [`Task::judgments`] takes the evidence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub qrels: BTreeMap<String, i32>,
    /// The number of facts that must be chained; 0 when unknown.
    #[serde(default)]
    pub hops: u8,
    /// The queries a perfect searcher would send, one per hop; empty when unknown. Only scripted policies read this.
    #[serde(default)]
    pub oracle: Vec<OracleHop>,
    /// Data set the task comes from: the other half of its identity.
    pub data_source: String,
    /// Its part of the data set.
    pub split: Split,
}

impl Task {
    /// A training question of which nothing else is known; struct update fills in the rest.
    pub fn new(id: impl Into<String>, question: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            question: question.into(),
            golds: Vec::new(),
            evidence: Vec::new(),
            qrels: BTreeMap::new(),
            hops: 0,
            oracle: Vec::new(),
            data_source: String::new(),
            split: Split::Train,
        }
    }

    /// The identity of the question: its data set and its id there.
    pub fn key(&self) -> (String, String) {
        (self.data_source.clone(), self.id.clone())
    }

    /// The identity as one text, `nq/train_0`; the id alone where no data set is known.
    pub fn name(&self) -> String {
        if self.data_source.is_empty() {
            return self.id.clone();
        }
        format!("{}/{}", self.data_source, self.id)
    }

    /// Grades by passage id: the task's own, or 1 for each passage of its evidence. Empty when neither is known.
    pub fn judgments(&self) -> Cow<'_, BTreeMap<String, i32>> {
        if self.qrels.is_empty() {
            return Cow::Owned(self.evidence.iter().map(|id| (id.clone(), 1)).collect());
        }
        Cow::Borrowed(&self.qrels)
    }
}

/// One step of the known solution of a generated question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OracleHop {
    /// Query that finds the evidence, written with the entity known at this point.
    pub query: String,
    /// Fact to read off the evidence: the next entity, or the answer on the last hop.
    pub finding: String,
}

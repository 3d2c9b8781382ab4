//! Tasks: one question with its golds and evidence.

use serde::{Deserialize, Serialize};

/// Which part of a data set a task belongs to. Splits share no entity.
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

/// One question an episode tries to answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique within the data set.
    pub id: String,
    /// What the policy is asked.
    pub question: String,
    /// Accepted answers: the gold first, then aliases. Never empty.
    pub golds: Vec<String>,
    /// Ids of the passages or pages that hold the evidence, in hop order. May be empty.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// How many facts must be chained; 0 when unknown.
    #[serde(default)]
    pub hops: u8,
    /// The queries a perfect searcher would send, one per hop; empty when unknown. Only scripted policies read this.
    #[serde(default)]
    pub oracle: Vec<OracleHop>,
    /// Data set the task comes from. Group keys are `(data_source, id)`.
    pub data_source: String,
    /// Its part of the data set.
    pub split: Split,
}

/// One step of the known solution of a generated question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OracleHop {
    /// Query that finds the evidence, written with the entity known at this point.
    pub query: String,
    /// Fact to read off the evidence: the next entity, or the answer on the last hop.
    pub finding: String,
}

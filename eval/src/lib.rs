//! Did it learn, and is it real?
//!
//! Functions from finished episodes and rankings to numbers with intervals, comparisons, a verdict and a report. This
//! crate runs no policy and no search: it takes [`forage_env`] episodes and plain ranked lists.
//!
//! - [`stats`]: seeded bootstrap intervals, paired tests and their corrections, power, profiles over runs.
//! - [`retrieval`]: a whole run of rankings against judgments, equal to `trec_eval`.
//! - [`measures`]: the numbers read off one episode.
//! - [`answers`]: cost per right answer, budgets and curves over samples, of one policy.
//! - [`at_k`]: pass@k and maj@k, and whether training added capability or sharpened sampling.
//! - [`cost`]: searches, turns and tokens per right answer, exact match within a budget of searches.
//! - [`calibration`]: stated certainties against what was right.
//! - [`summary`]: the numbers of one set of episodes, with intervals.
//! - [`telemetry`]: conduct, signs of gamed rewards, alarms; of a set of episodes or of a run.
//! - [`compare`]: two sets of episodes on the same questions.
//! - [`verdict`]: start, trained and control in one honest statement, written to `verdict.json`.
//! - [`probe`]: the same policy plain and under a change.
//! - [`study`]: several seeds beside their spurious twins.
//! - [`trajectory`]: episodes as people read them.
//! - [`report`]: one self-contained HTML page, readable offline; the same as Markdown or JSON.
//!
//! A guide to choosing a test, reading an interval, formulas, coverage and the reference of each function:
//! `docs/statistics.md`.

pub mod answers;
pub mod at_k;
pub mod calibration;
pub mod compare;
pub mod cost;
pub mod critique;
pub mod judge;
pub mod measures;
pub mod probe;
pub mod report;
pub mod retrieval;
pub mod stats;
pub mod study;
pub mod summary;
pub mod telemetry;
mod text;
pub mod trajectory;
pub mod verdict;

pub use compare::{CompareError, Comparison};
pub use probe::{ProbeResult, Sensitivity};
pub use report::{Report, ReportError};
pub use retrieval::{RetrievalReport, evaluate_retrieval};
pub use stats::{Bootstrap, Interval, StatsError, bootstrap_mean, paired_bootstrap};
pub use summary::EvalSummary;
pub use telemetry::Telemetry;
pub use verdict::{Verdict, VerdictError};

#[cfg(test)]
mod tests;

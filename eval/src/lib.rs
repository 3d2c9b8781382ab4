//! Did it learn, and is it real?
//!
//! Functions from finished episodes and rankings to numbers with intervals, comparisons, a verdict and a report. This
//! crate runs no policy and no search: it takes [`forage_env`] episodes and plain ranked lists.
//!
//! - [`stats`]: seeded bootstrap intervals, paired tests, aggregates over runs.
//! - [`ranking`]: NDCG, recall, precision, reciprocal rank, average precision, equal to `trec_eval`.
//! - [`retrieval`]: a whole run of rankings against judgments.
//! - [`measures`]: the numbers read off one episode.
//! - [`summary`]: the numbers of one set of episodes, with intervals.
//! - [`compare`]: two sets of episodes on the same questions.
//! - [`verdict`]: start, trained and control in one honest statement, written to `verdict.json`.
//! - [`trajectory`]: episodes as people read them.
//! - [`report`]: one self-contained HTML page, readable offline; the same as Markdown or JSON.

pub mod compare;
pub mod judge;
pub mod measures;
pub mod report;
pub mod retrieval;
pub mod stats;
pub mod summary;
mod text;
pub mod trajectory;
pub mod verdict;

pub use forage_env::reward::ranking;

pub use compare::{CompareError, Comparison};
pub use report::{Report, ReportError};
pub use retrieval::{RetrievalReport, evaluate_retrieval};
pub use stats::{Bootstrap, Interval, StatsError, bootstrap_mean, paired_bootstrap};
pub use summary::EvalSummary;
pub use verdict::{Verdict, VerdictError};

//! Did it learn, and is it real?
//!
//! Functions from finished episodes and rankings to numbers with intervals, comparisons, a verdict and a report. This
//! crate runs no policy and no search: it takes [`forage_env`] episodes and plain ranked lists.
//!
//! - `stats`: seeded bootstrap intervals, paired tests and their corrections, power, profiles over runs.
//! - `retrieval`: a whole run of rankings against judgments, equal to `trec_eval`.
//! - `measures`: the numbers read off one episode.
//! - `answers`: cost per right answer, budgets and curves over samples, of one policy.
//! - `at_k`: pass@k and maj@k, and whether training added capability or sharpened sampling.
//! - `cost`: searches, turns and tokens per right answer, exact match within a budget of searches.
//! - `calibration`: stated certainties against what was right.
//! - `summary`: the numbers of one set of episodes, with intervals.
//! - `telemetry`: conduct, signs of gamed rewards, alarms; of a set of episodes or of a run.
//! - `decomposition`: what of a gain is searching, finding, reading, guessing.
//! - `mistakes`: why episodes fail, class by class.
//! - `effort`: searches per episode against the hops of the question.
//! - `compare`: two sets of episodes on the same questions.
//! - `swiss`: three and more, ranked by a contest over data sets.
//! - `verdict`: start, trained and control in one honest statement, written to `verdict.json`.
//! - `probe`: the same policy plain and under a change.
//! - `pool`: differences over several seeds, with intervals and a test.
//! - `study`: several seeds beside their spurious twins.
//! - `trajectory`: episodes as people read them.
//! - `report`: one self-contained HTML page, readable offline; the same as Markdown or JSON.
//!
//! A guide to choosing a test, reading an interval, formulas, coverage and the reference of each function:
//! `docs/statistics.md`.

mod answers;
mod at_k;
mod calibration;
mod compare;
mod cost;
mod critique;
mod decomposition;
mod effort;
mod judge;
mod measures;
mod mistakes;
mod pool;
mod probe;
mod report;
mod retrieval;
mod stats;
mod study;
mod summary;
mod swiss;
mod telemetry;
mod text;
mod trajectory;
mod verdict;

pub use answers::Answers;
pub use at_k::CurveComparison;
pub use compare::{CompareError, Comparison, Difference};
pub use critique::Critique;
pub use judge::{Agreement, Labelled, PositionBias};
pub use measures::QuestionKey;
pub use probe::{ProbeResult, Sensitivity};
pub use report::{Arm, Recipe, Report, ReportError, Trend};
pub use retrieval::{RetrievalMetric, RetrievalReport};
pub use stats::{Bootstrap, Interval, NonInferiority, StatsError};
pub use study::{SeedEpisodes, Study, StudyError};
pub use summary::{EvalSummary, Metric};
pub use swiss::Standings;
pub use telemetry::{Course, StepTelemetry, Telemetry};
pub use text::write_atomic;
pub use trajectory::{Origin, Segment, Trajectory};
pub use verdict::{Verdict, VerdictError};

// Tests inside of the crate name it as its users do.
#[cfg(test)]
extern crate self as forage_eval;
#[cfg(test)]
mod tests;

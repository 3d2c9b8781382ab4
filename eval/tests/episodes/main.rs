//! From finished episodes to summaries, comparisons, verdicts and reports.

mod compare;
mod fixtures;
mod report;
mod summary;
mod telemetry;
mod verdict;

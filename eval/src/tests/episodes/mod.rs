//! From finished episodes to summaries, comparisons, verdicts and reports.

mod compare;
mod fixtures;
mod report;
mod samples;
mod study;
mod summary;
mod telemetry;
mod verdict;

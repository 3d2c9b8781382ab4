//! From finished episodes to summaries, comparisons, verdicts and reports.

mod compare;
mod fixtures;
mod report;
mod samples;
mod summary;
mod verdict;

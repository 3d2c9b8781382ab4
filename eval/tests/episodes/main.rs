//! From finished episodes to summaries, comparisons, verdicts and reports.

mod compare;
mod fixtures;
mod measures;
mod report;
mod study;
mod summary;
mod verdict;

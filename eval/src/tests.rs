//! Statistics against independent references; comparisons, verdicts and reports of episodes.

mod against_references;
mod against_scipy;
mod against_trec_eval;
mod coverage;
mod episodes;

//! Comparisons, verdicts and reports of episodes; rankings against `trec_eval`.

mod against_trec_eval;
mod episodes;

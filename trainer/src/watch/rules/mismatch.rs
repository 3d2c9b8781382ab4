//! The sampler's log-probabilities against the trainer's.

use forage_contracts::Metric;

use super::{Facts, Finding, number};
use crate::logprobs::ROUNDED_GAP;

/// Mean differences, nats per token, from which on a step warns and stops: what a push may differ by stops no run. Two engines that
/// compute the same weights in bf16 are about 0.01 apart, in f32 less than 1e-4.
const GAP: [f64; 2] = [0.4 * ROUNDED_GAP, ROUNDED_GAP];

/// Thresholds of the largest distance of a ratio from 1: rounding makes tokens of some thousandths twice as likely, or half.
const DEVIATION: [f64; 2] = [100.0, 1000.0];

/// The room for the update that lies between sampler and trainer where episodes are played ahead.
const AHEAD: f64 = 10.0;

impl Facts<'_> {
    /// The policy that sampled is not the policy that learns, though at most one update lies between them.
    pub(super) fn mismatch(&self) -> Option<Finding> {
        // Of recorded rollouts nobody knows the weights, and those of replayed groups are older still.
        let age = self.row.get(Metric::POLICY_AGE)?;
        let replayed = self.row.get(Metric::REPLAY_GROUPS);
        if age > 1.0 || replayed.is_some_and(|groups| groups > 0.0) {
            return None;
        }
        let room = if age > 0.0 { AHEAD } else { 1.0 };
        let gap = self.row.get(Metric::MISMATCH)?;
        let deviation = self.row.get(Metric::RATIO_DEVIATION).unwrap_or(0.0);
        let message = || {
            format!(
                "The log-probabilities that the sampler reports are {} nats per token away from the trainer's for the same text, \
                 and a ratio is {} away from 1. The sampler has other weights than the trainer, or reports at another temperature \
                 (vLLM does below and above 1 unless it runs with --logprobs-mode processed_logprobs). What was learned in this \
                 step is not to be trusted: see push/logprob_abs_diff, restart the server, and resume from an earlier checkpoint.",
                number(gap),
                number(deviation)
            )
        };
        let found = Finding::above(gap, GAP.map(|bound| room * bound), message);
        let other = Finding::above(deviation, DEVIATION.map(|bound| room * bound), message);
        let graver = match (found, other) {
            (Some(found), Some(other)) if other.severity > found.severity => other,
            (found, other) => found.or(other)?,
        };
        Some(graver.at_once())
    }
}

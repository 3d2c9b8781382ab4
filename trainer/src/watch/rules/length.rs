//! Lengths: of episodes, which limits end, and of what the policy writes in them.

use forage_contracts::Metric;
use forage_env::Severity;

use super::{Facts, Finding, number, optional, percent};

impl Facts<'_> {
    /// Episodes run into limits.
    pub(super) fn truncation(&self) -> Option<Finding> {
        let level = self.level(Metric::TRUNCATED)?;
        Finding::above(level, [0.5, 0.95], || {
            let length = optional(self.level(Metric::RESPONSE_TOKENS), |length| {
                format!(" at {} policy tokens", number(length))
            });
            format!(
                "{} of the episodes run into a limit{length} before they answer. Either the limits are too small for the task \
                 or the policy rambles. Read some episodes: raise the limits of turns and tokens, or go back to a checkpoint \
                 before the lengths grew.",
                percent(level)
            )
        })
    }

    /// Responses shrink to almost nothing.
    pub(super) fn length_collapse(&self) -> Option<Finding> {
        let [start, level, ratio] = self.growth(Metric::RESPONSE_TOKENS)?;
        Finding::below(ratio, [0.25, 0.1], || {
            format!(
                "Responses shrank from {} to {} policy tokens. The policy found a short text that the reward pays as well, or \
                 that a length penalty pays better. Read some episodes; require what was dropped in the reward, or remove \
                 the penalty.",
                number(start),
                number(level)
            )
        })
    }

    /// Responses multiply within a window. Slow growth may be a policy that learns to think; a multiple is not.
    pub(super) fn length_explosion(&self) -> Option<Finding> {
        let before = self.trace(Metric::RESPONSE_TOKENS)?.before(self.span)?;
        let level = self.level(Metric::RESPONSE_TOKENS)?;
        (level > 3.0 * before).then(|| {
            let cut = optional(self.level(Metric::TRUNCATED), |share| {
                format!("; {} are truncated", percent(share))
            });
            let message = format!(
                "Responses grew from {} to {} policy tokens within a window{cut}. So fast a growth is rambling rather than \
                 thought: averaging the loss over sequences favours long wrong texts. Average over tokens, make truncated \
                 episodes earn nothing, or go back.",
                number(before),
                number(level)
            );
            Finding::new(Severity::Warn, [level, 3.0 * before], message)
        })
    }
}

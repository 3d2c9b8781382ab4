//! The groups that are learned from.

use serde::{Deserialize, Serialize};

use super::credit::Moments;

/// Unbiased standard deviation up to which slime and DAPO's dynamic sampling call a group flat.
const FLAT: f64 = 1e-6;

/// A rule that keeps or drops whole groups before advantages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum GroupFilter {
    /// Keeps groups whose rewards vary: unbiased standard deviation above 1e-6 (dynamic sampling, DAPO; slime).
    ZeroVariance,
    /// Keeps groups whose mean accuracy lies between `lowest` and `highest`: neither too hard nor too easy (online difficulty
    /// filtering, PRIME, arXiv 2502.01456, 0.2 and 0.8).
    AccuracyBand {
        /// Least mean that is kept.
        lowest: f64,
        /// Greatest mean that is kept.
        highest: f64,
    },
}

impl GroupFilter {
    /// Returns whether the group stays; a group without members does not. `rewards` and `accuracies` (in \[0, 1\]): `[G]`.
    pub(crate) fn keeps(self, rewards: &[f32], accuracies: &[f32]) -> bool {
        let moments = |values: &[f32]| {
            Moments::of(
                &values
                    .iter()
                    .map(|&value| f64::from(value))
                    .collect::<Vec<_>>(),
            )
        };
        match self {
            Self::ZeroVariance => rewards.len() > 1 && moments(rewards).unbiased_std() > FLAT,
            Self::AccuracyBand { lowest, highest } => {
                !accuracies.is_empty() && (lowest..=highest).contains(&moments(accuracies).mean)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_groups_are_dropped() {
        let keeps = |rewards: &[f32]| GroupFilter::ZeroVariance.keeps(rewards, &[]);
        assert!(keeps(&[0.0, 1.0]));
        assert!(!keeps(&[0.1, 0.1, 0.1]));
        assert!(!keeps(&[1.0]));
    }

    #[test]
    fn groups_outside_the_band_are_dropped() {
        let keeps = |accuracies: &[f32]| {
            GroupFilter::AccuracyBand {
                lowest: 0.25,
                highest: 0.75,
            }
            .keeps(&[9.0], accuracies)
        };
        assert!(keeps(&[1.0, 0.0, 0.0, 0.0]));
        assert!(!keeps(&[1.0, 0.0, 0.0, 0.0, 0.0]));
        assert!(!keeps(&[1.0, 1.0]));
        assert!(!keeps(&[]));
    }
}

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
    /// Keeps groups whose rewards have a standard deviation, that of the members themselves, of `least` or more (ReST-GRPO, arXiv
    /// 2508.19576, 0.05).
    Spread {
        /// Least standard deviation that is kept.
        least: f64,
    },
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
    /// The key of a filter that compares members, and drops every group of one.
    pub(crate) fn compares_members(self) -> Option<&'static str> {
        match self {
            Self::ZeroVariance => Some("filter.zero_variance"),
            Self::Spread { .. } => Some("filter.spread"),
            Self::AccuracyBand { .. } => None,
        }
    }

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
            Self::Spread { least } => moments(rewards).population_std() >= least,
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
    fn groups_that_differ_too_little_are_dropped() {
        let keeps = |least: f64, rewards: &[f32]| GroupFilter::Spread { least }.keeps(rewards, &[]);
        // NumPy's `std` of these is .4330127 and .05.
        assert!(keeps(0.43, &[0.0, 0.0, 0.0, 1.0]) && !keeps(0.44, &[0.0, 0.0, 0.0, 1.0]));
        assert!(keeps(0.049, &[0.5, 0.6]) && !keeps(0.051, &[0.5, 0.6]));
        assert!(!keeps(0.05, &[1.0]) && !keeps(0.05, &[]));
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

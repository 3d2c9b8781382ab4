//! Bounds on what the turns of an episode collect: `turn_bounds`.

use forage_contracts::SettingError;
use serde::{Deserialize, Serialize};

use super::credit::Credit;

/// Bounds on the rewards of turns, before a credit reads them: On Designing Effective RL Reward at Training Time for LLM Reasoning
/// (arXiv 2410.15115), which found that process rewards are gained by repeating good steps. With both, the differences are those of
/// what clipping left. The score is never bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TurnBounds {
    /// Threshold eta: a turn's reward r counts as min(r - eta, 0), so that good turns earn nothing and many of them no more. Not
    /// bounded without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
    /// Whether a turn's reward counts less that of the next turn, so that the sum from any turn on is that turn's own reward, however
    /// many follow. The next but last keeps its own, as published; so does the last, where the paper pays the outcome alone, which is
    /// assumed.
    pub delta: bool,
}

impl TurnBounds {
    /// `[turns]`: what is left of `rewards`, `[turns]`.
    pub(super) fn of(self, rewards: &[f32]) -> Vec<f32> {
        let clipped = |&reward: &f32| match self.clip {
            Some(threshold) => (f64::from(reward) - threshold).min(0.0) as f32,
            None => reward,
        };
        let mut bounded: Vec<f32> = rewards.iter().map(clipped).collect();
        if self.delta {
            for turn in 0..bounded.len().saturating_sub(2) {
                bounded[turn] -= bounded[turn + 1];
            }
        }
        bounded
    }

    /// Checks the threshold, and that `credit` reads rewards of turns.
    pub(super) fn check(self, credit: Credit) -> Result<(), SettingError> {
        if let Some(threshold) = self.clip
            && !threshold.is_finite()
        {
            return Err(SettingError::range(
                "turn_bounds.clip",
                threshold,
                "a finite number",
            ));
        }
        if self != Self::default() && !credit.reads_turns() {
            let fault = "bounds rewards of turns, which this credit does not read; set credit to process_supervision, \
                         information_gain, gigpo, reward_to_go or gae, or leave it out";
            return Err(SettingError::new("turn_bounds", fault));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        rewards: Vec<f32>,
        clip: Option<f64>,
        delta: bool,
        bounded: Vec<f64>,
        collected: Vec<f64>,
    }

    #[test]
    fn bounded_rewards_of_turns_equal_exact_fractions() {
        let text = include_str!("../../tests/fixtures/turn_bounds.json");
        let cases: Vec<Case> = serde_json::from_str(text).unwrap();
        assert!(cases.len() > 20);
        for case in cases {
            let bounds = TurnBounds {
                clip: case.clip,
                delta: case.delta,
            };
            let found = bounds.of(&case.rewards);
            assert_eq!(found.len(), case.bounded.len());
            for (turn, value) in found.iter().enumerate() {
                assert!(
                    (f64::from(*value) - case.bounded[turn]).abs() < 1e-5,
                    "{bounds:?} of {:?}: {found:?}",
                    case.rewards
                );
                // What is collected from a turn on.
                let rest: f64 = found[turn..].iter().map(|&value| f64::from(value)).sum();
                assert!((rest - case.collected[turn]).abs() < 1e-5, "{rest}");
            }
        }
    }

    #[test]
    fn good_turns_repeated_collect_no_more() {
        let sum = |bounds: TurnBounds, turns: usize| -> f32 {
            let rewards: Vec<f32> = std::iter::repeat_n(0.75, turns).chain([0.0]).collect();
            bounds.of(&rewards).iter().sum()
        };
        let free = TurnBounds::default();
        assert!(sum(free, 8) > 5.0 * sum(free, 1));
        for (clip, delta) in [(Some(0.5), false), (None, true), (Some(1.0), true)] {
            let bounds = TurnBounds { clip, delta };
            assert!(sum(bounds, 8) <= sum(bounds, 1) + 1e-6, "{bounds:?}");
        }
        assert!(
            TurnBounds {
                clip: None,
                delta: true
            }
            .of(&[])
            .is_empty()
        );
    }
}

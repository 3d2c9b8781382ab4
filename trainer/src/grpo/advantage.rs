//! Advantages of the members of one group.

use serde::{Deserialize, Serialize};

/// How a group's rewards become advantages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advantage {
    /// (r - mean) / (unbiased standard deviation + 1e-6): Search-R1, verl, `SkyRL`, slime.
    #[default]
    Grpo,
    /// r - mean: Dr. GRPO (Liu et al. 2025), prime-rl.
    DrGrpo,
}

/// What a group of rewards has to teach.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupOutcome {
    /// One advantage per member, mean zero.
    Learn(Vec<f32>),
    /// Every member earned the same: no direction, whatever the advantage.
    ZeroVariance,
    /// Fewer than two members finished.
    TooSmall,
}

/// Advantages of one group's rewards.
pub fn group_advantages(rewards: &[f32], kind: Advantage) -> GroupOutcome {
    let count = rewards.len();
    if count < 2 {
        return GroupOutcome::TooSmall;
    }
    if rewards.iter().all(|reward| reward.to_bits() == rewards[0].to_bits()) {
        return GroupOutcome::ZeroVariance;
    }
    let mean = rewards.iter().map(|&reward| f64::from(reward)).sum::<f64>() / count as f64;
    let squares: f64 = rewards.iter().map(|&reward| (f64::from(reward) - mean).powi(2)).sum();
    let scale = match kind {
        Advantage::Grpo => (squares / (count - 1) as f64).sqrt() + 1e-6,
        Advantage::DrGrpo => 1.0,
    };
    GroupOutcome::Learn(rewards.iter().map(|&reward| ((f64::from(reward) - mean) / scale) as f32).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn learn(rewards: &[f32], kind: Advantage) -> Vec<f32> {
        match group_advantages(rewards, kind) {
            GroupOutcome::Learn(advantages) => advantages,
            other => panic!("{other:?}"),
        }
    }

    fn close(found: &[f32], expected: &[f32]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 2e-6, "{found} {expected}");
        }
    }

    #[test]
    fn published_vectors() {
        let one_in_five = [1.0, 0.0, 0.0, 0.0, 0.0];
        close(&learn(&one_in_five, Advantage::Grpo), &[1.788_85, -0.447_213, -0.447_213, -0.447_213, -0.447_213]);
        close(&learn(&one_in_five, Advantage::DrGrpo), &[0.8, -0.2, -0.2, -0.2, -0.2]);
        let mixed = [1.0, 1.0, 0.0, 0.2, 0.1, 0.8, 0.0, 0.0];
        let expected = [1.328_138, 1.328_138, -0.840_251, -0.406_573, -0.623_412, 0.894_46, -0.840_251, -0.840_251];
        close(&learn(&mixed, Advantage::Grpo), &expected);
    }

    #[test]
    fn groups_without_a_direction_are_named() {
        assert_eq!(group_advantages(&[0.3, 0.3, 0.3], Advantage::Grpo), GroupOutcome::ZeroVariance);
        assert_eq!(group_advantages(&[1.0], Advantage::Grpo), GroupOutcome::TooSmall);
        assert_eq!(group_advantages(&[], Advantage::Grpo), GroupOutcome::TooSmall);
    }

    proptest! {
        #[test]
        fn advantages_centre_and_ignore_a_shift(rewards in prop::collection::vec(0_u8..10, 2..16), shift in 0_u8..10) {
            let rewards: Vec<f32> = rewards.into_iter().map(f32::from).collect();
            let shifted: Vec<f32> = rewards.iter().map(|reward| reward + f32::from(shift)).collect();
            for kind in [Advantage::Grpo, Advantage::DrGrpo] {
                if let GroupOutcome::Learn(advantages) = group_advantages(&rewards, kind) {
                    prop_assert!(advantages.iter().sum::<f32>().abs() < 1e-4);
                    let moved = learn(&shifted, kind);
                    prop_assert!(advantages.iter().zip(&moved).all(|(a, b)| (a - b).abs() < 1e-4));
                }
            }
        }
    }
}

//! The settings of `AdamW`.

use forage_contracts::SettingError;
use serde::{Deserialize, Serialize};

use super::eight_bit;
use crate::model::Kernels;

/// The curve of a falling learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decay {
    /// Along which curve.
    pub(crate) curve: Curve,
    /// Optimizer step, warm-up included, at which the rate is 0.
    pub steps: u64,
}

/// The curve of a [`Decay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Curve {
    /// A straight line.
    Linear,
    /// Half a cosine (Loshchilov and Hutter 2017).
    Cosine,
}

/// Settings of `AdamW`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdamWConfig {
    /// Learning rate after warm-up.
    pub learning_rate: f64,
    /// Steps of linear warm-up from zero.
    pub warmup_steps: u64,
    /// The decay of the rate after warm-up; it stays without it.
    pub decay: Option<Decay>,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled decay of matrices; norms and biases are never decayed.
    pub weight_decay: f64,
    /// Largest global gradient norm.
    pub clip_norm: f64,
    /// Keeps moments in 8 bits, those of norms and biases aside: a quarter of the memory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub moments_in_8_bits: bool,
    /// Divides moments among ranks: each keeps those of its share of every parameter, and updates that share (`ZeRO` stage 1, Rajbhandari
    /// et al. 2020): the same bits, with the memory of moments divided by the number of ranks. A lost rank takes its moments with it: the
    /// run then goes on from the last checkpoint that was due (`grpo.checkpoint_every`). With one process it changes nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub sharded: bool,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self {
            learning_rate: 1e-6,
            warmup_steps: 10,
            decay: None,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            clip_norm: 1.0,
            moments_in_8_bits: false,
            sharded: false,
        }
    }
}

impl AdamWConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`SettingError`], which names the key at fault.
    pub fn check(&self) -> Result<(), SettingError> {
        let fraction = "must be in [0, 1)";
        let faults = [
            (
                self.learning_rate >= 0.0 && self.learning_rate.is_finite(),
                "learning_rate",
                "must be 0 or more",
            ),
            ((0.0..1.0).contains(&self.beta1), "beta1", fraction),
            ((0.0..1.0).contains(&self.beta2), "beta2", fraction),
            (self.epsilon > 0.0, "epsilon", "must be above 0"),
            (
                self.weight_decay >= 0.0,
                "weight_decay",
                "must be 0 or more",
            ),
            (self.clip_norm > 0.0, "clip_norm", "must be above 0"),
            (
                self.decay
                    .is_none_or(|decay| decay.steps > self.warmup_steps),
                "decay.steps",
                "must be above warmup_steps",
            ),
        ];
        let fault = faults.iter().find(|(holds, ..)| !holds);
        fault.map_or(Ok(()), |(_, key, fault)| {
            Err(SettingError::new(*key, *fault))
        })
    }

    /// Returns whether the moments of a parameter of so many numbers are of 8 bits where these kernels compute.
    pub(super) fn quantises(&self, count: usize, kernels: Kernels) -> bool {
        self.moments_in_8_bits && eight_bit::is_worth_it(count) && kernels != Kernels::Burn
    }

    /// Learning rate of the step that is number `step`, counted from 0.
    pub fn rate(&self, step: u64) -> f64 {
        let warmup = self.warmup_steps;
        if step < warmup {
            return self.learning_rate * (step + 1) as f64 / warmup as f64;
        }
        let Some(Decay { curve, steps }) = self.decay else {
            return self.learning_rate;
        };
        let done = ((step - warmup) as f64 / (steps.saturating_sub(warmup)).max(1) as f64).min(1.0);
        self.learning_rate
            * match curve {
                Curve::Linear => 1.0 - done,
                Curve::Cosine => f64::midpoint(1.0, (std::f64::consts::PI * done).cos()),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_falls_from_the_end_of_its_warm_up_on() {
        let close = |warmup_steps, curve, expected: [f64; 5]| {
            let config = AdamWConfig {
                learning_rate: 1.0,
                warmup_steps,
                decay: Some(Decay { curve, steps: 4 }),
                ..AdamWConfig::default()
            };
            for (step, expected) in (0..).zip(expected) {
                let found = config.rate(step);
                let gap = (found - expected).abs();
                assert!(
                    gap < 1e-6,
                    "{curve:?}, step {step}: {found}, not {expected}"
                );
            }
        };
        close(0, Curve::Linear, [1.0, 0.75, 0.5, 0.25, 0.0]);
        close(0, Curve::Cosine, [1.0, 0.853_553, 0.5, 0.146_447, 0.0]);
        close(2, Curve::Linear, [0.5, 1.0, 1.0, 0.5, 0.0]);
    }
}

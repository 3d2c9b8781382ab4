//! The clipped policy-gradient loss over tokens.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// How far the ratio may move before its gradient stops (PPO, Schulman et al. 2017; clip-higher, DAPO, Yu et al. 2025).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClipRange {
    /// Ratios below 1 - `low` carry no gradient for negative advantages.
    pub low: f64,
    /// Ratios above 1 + `high` carry no gradient for positive advantages.
    pub high: f64,
    /// Bound of the loss for negative advantages, as a multiple of the advantage (dual clip, Ye et al. 2020); 0 for none.
    pub dual: f64,
}

impl Default for ClipRange {
    fn default() -> Self {
        Self { low: 0.2, high: 0.28, dual: 3.0 }
    }
}

/// A penalty for leaving the reference policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlPenalty {
    /// No reference policy.
    #[default]
    None,
    /// exp(-d) + d - 1 with d = logp - reference clamped to +-20 and the value to +-10 (k3 of Schulman 2020, as verl's
    /// `low_var_kl`).
    LowVar,
}

/// Settings of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LossConfig {
    /// Ratio bounds.
    pub clip: ClipRange,
    /// Which penalty.
    pub kl: KlPenalty,
    /// Its weight.
    pub kl_coefficient: f64,
}

/// What the loss needs about `n` policy tokens besides their current log-probabilities.
#[derive(Clone, Debug)]
pub struct LossParts {
    /// `[n]`, nats: log-probabilities when sampled.
    pub old_logprobs: Tensor<1>,
    /// `[n]`: advantage of each token's episode.
    pub advantages: Tensor<1>,
    /// `[n]`, nats: log-probabilities under the reference; required by [`KlPenalty::LowVar`].
    pub reference_logprobs: Option<Tensor<1>>,
}

/// Sums over the tokens of one micro-batch; divide by the step's token count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossStats {
    /// Loss without the penalty.
    pub policy_loss: f64,
    /// Tokens whose loss was changed by the clip (dual clip excluded).
    pub clipped: f64,
    /// Sum of old - current log-probability (k1 estimate of the KL from the old policy).
    pub approx_kl_old: f64,
    /// Sum of the penalty's KL estimate.
    pub kl_reference: f64,
    /// Sum of |current - old|: on the first update, the mismatch between sampler and trainer.
    pub logprob_abs_diff: f64,
    /// Largest |ratio - 1|.
    pub ratio_deviation_max: f64,
}

/// Clipped policy-gradient loss, token mean over the whole optimizer step.
///
/// `step_tokens` counts the policy tokens of **all** micro-batches of the step, so the sum of micro-batch losses does not
/// depend on how the step was cut.
///
/// # Shapes
/// `logprobs`: `[n]`, nats, with graph. Returns `[1]`, to be minimised.
///
/// # Panics
/// When a penalty is asked for without reference log-probabilities.
pub fn policy_loss(
    logprobs: &Tensor<1>,
    parts: &LossParts,
    config: &LossConfig,
    step_tokens: usize,
) -> (Tensor<1>, LossStats) {
    let scale = 1.0 / step_tokens as f64;
    let on = |tensor: &Tensor<1>| if logprobs.is_autodiff() { tensor.clone().autodiff() } else { tensor.clone() };
    let (old, advantages) = (on(&parts.old_logprobs), on(&parts.advantages));
    let log_ratio = logprobs.clone() - old;
    let ratio = log_ratio.clone().exp();
    let plain = (advantages.clone() * ratio.clone()).neg();
    let bounded = ratio.clone().clamp(1.0 - config.clip.low, 1.0 + config.clip.high);
    let clipped = (advantages.clone() * bounded).neg();
    let mut token_loss = plain.clone().max_pair(clipped.clone());
    if config.clip.dual > 0.0 {
        let bound = advantages.clone().neg() * config.clip.dual;
        let bounded = token_loss.clone().min_pair(bound);
        let negative = advantages.lower_elem(0.0);
        token_loss = token_loss.mask_where(negative, bounded);
    }
    let mut stats = LossStats {
        policy_loss: sum(&token_loss),
        clipped: f64::from(
            clipped.without_autodiff().greater(plain.without_autodiff()).float().sum().into_scalar::<f32>(),
        ),
        approx_kl_old: -sum(&log_ratio),
        logprob_abs_diff: sum(&log_ratio.abs()),
        ratio_deviation_max: f64::from(ratio.without_autodiff().sub_scalar(1.0).abs().max().into_scalar::<f32>()),
        kl_reference: 0.0,
    };
    if config.kl == KlPenalty::LowVar {
        let reference = parts.reference_logprobs.as_ref().expect("a KL penalty needs reference log-probabilities");
        let kl = low_var_kl(logprobs.clone() - on(reference));
        stats.kl_reference = sum(&kl);
        token_loss = token_loss + kl * config.kl_coefficient;
    }
    (token_loss.sum() * scale, stats)
}

fn low_var_kl(difference: Tensor<1>) -> Tensor<1> {
    let difference = difference.clamp(-20.0, 20.0);
    (difference.clone().neg().exp() + difference - 1.0).clamp(-10.0, 10.0)
}

fn sum(tensor: &Tensor<1>) -> f64 {
    f64::from(tensor.clone().without_autodiff().sum().into_scalar::<f32>())
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn vector(values: &[f32]) -> Tensor<1> {
        Tensor::from_floats(values, &Device::flex())
    }

    /// Loss of one token with ratio `ratio`.
    fn token(ratio: f32, advantage: f32, dual: f64) -> f32 {
        let parts =
            LossParts { old_logprobs: vector(&[0.0]), advantages: vector(&[advantage]), reference_logprobs: None };
        let config = LossConfig { clip: ClipRange { dual, ..ClipRange::default() }, ..LossConfig::default() };
        policy_loss(&vector(&[ratio.ln()]), &parts, &config, 1).0.into_scalar::<f32>()
    }

    #[test]
    fn clip_vectors() {
        for (ratio, advantage, dual, expected) in [
            (0.5, 1.0, 0.0, -0.5),
            (0.5, -1.0, 0.0, 0.8),
            (1.28, 1.0, 0.0, -1.28),
            (1.5, 1.0, 0.0, -1.28),
            (1.5, -1.0, 0.0, 1.5),
            (4.0, -1.0, 0.0, 4.0),
            (4.0, -1.0, 3.0, 3.0),
            (4.0, 1.0, 3.0, -1.28),
        ] {
            let found = token(ratio, advantage, dual);
            assert!((found - expected).abs() < 1e-6, "({ratio}, {advantage}, {dual}): {found}");
        }
    }

    #[test]
    fn low_var_kl_vectors() {
        let found: Vec<f32> =
            low_var_kl(vector(&[0.1, -0.1, 1.0, -1.0, -3.0, 15.0])).into_data().try_into_vec().unwrap();
        let expected = [0.004_837_42, 0.005_170_92, 0.367_879_4, 0.718_281_8, 10.0, 10.0];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 2e-6, "{found} {expected}");
        }
    }
}

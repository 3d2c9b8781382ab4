//! Losses whose ratio belongs to the sequence.

use super::loss::{LOG_RATIO_LIMIT, Ratio, Term, Token, ppo_clip, weighted_logprob};

/// Least sequence ratio of VESPO.
const VESPO_LEAST: f64 = 1e-8;

/// [`super::PolicyLoss::Gspo`].
pub(super) fn gspo(tokens: &[Token], low: f64, high: f64) -> impl Iterator<Item = Term> {
    let ratio = Ratio::of(mean(tokens.iter().map(|token| token.lp - token.lo)));
    tokens.iter().map(move |token| ppo_clip(ratio, token.advantage, low, high, None))
}

/// [`super::PolicyLoss::Gmpo`].
pub(super) fn gmpo(tokens: &[Token], low: f64, high: f64) -> impl Iterator<Item = Term> {
    // The log ratio that counts, and whether its bound stopped it.
    let held = move |token: &Token| {
        let log_ratio = token.lp - token.lo;
        if token.advantage > 0.0 {
            (log_ratio.min(high), log_ratio > high)
        } else if token.advantage < 0.0 {
            (log_ratio.max(-low), log_ratio < -low)
        } else {
            (0.0, true)
        }
    };
    let ratio = Ratio::of(mean(tokens.iter().map(|token| held(token).0)));
    let advantage = mean(tokens.iter().map(|token| token.advantage));
    tokens.iter().map(move |token| {
        let (_, bounded) = held(token);
        let grad = if bounded { 0.0 } else { -advantage * ratio.grad };
        Term { value: -advantage * ratio.value, grad, bounded }
    })
}

/// [`super::PolicyLoss::Vespo`].
pub(super) fn vespo(tokens: &[Token]) -> impl Iterator<Item = Term> {
    let log_ratio = |token: &Token| (token.lp - token.lo).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
    let sum: f64 = tokens.iter().map(log_ratio).sum();
    let held = sum.clamp(VESPO_LEAST.ln(), LOG_RATIO_LIMIT);
    let bounded = held.to_bits() != sum.to_bits();
    tokens.iter().map(move |token| weighted_logprob(token, vespo_phi(held, token.advantage >= 0.0), bounded))
}

/// exp(l + k ln W - l W).
fn vespo_phi(log_ratio: f64, positive: bool) -> f64 {
    let (k, l) = if positive { (2.0, 3.0) } else { (3.0, 2.0) };
    (l + k * log_ratio - l * log_ratio.exp()).exp()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::{PolicyLoss, TokenInputs};

    #[test]
    fn vespo_vectors() {
        for (log_ratio, positive, expected) in [
            (-1.0, true, 0.901_551),
            (-1.0, false, 0.176_266),
            (0.0, true, 1.0),
            (0.0, false, 1.0),
            (0.1, true, 0.890_909),
            (0.1, false, 1.093_800),
            (1.0, true, 0.042_645),
            (1.0, false, 0.646_253),
        ] {
            let found = vespo_phi(log_ratio, positive);
            assert!((found - expected).abs() < 2e-6, "({log_ratio}, {positive}): {found}");
        }
    }

    #[test]
    fn sequences_share_one_ratio() {
        let inputs = TokenInputs {
            logprobs: &[-0.5, -1.5],
            proximal: &[-1.0, -1.0],
            sampler: &[-1.0, -1.0],
            advantages: &[1.0, 1.0],
        };
        let gspo = PolicyLoss::Gspo { low: 3e-4, high: 4e-4 }.tokens(&inputs);
        assert_eq!((gspo.values, gspo.gradients), (vec![-1.0; 2], vec![-1.0; 2]));
        let luspo = PolicyLoss::Luspo { low: 2e-3, high: 2.5e-3 }.tokens(&inputs);
        assert_eq!((luspo.values, luspo.gradients), (vec![-2.0; 2], vec![-2.0; 2]));
        // The first token's 0.5 nats are held at 0.4; the second is free to fall.
        let gmpo = PolicyLoss::Gmpo { low: 0.4, high: 0.4 }.tokens(&inputs);
        let ratio = (-0.05_f32).exp();
        assert_eq!((gmpo.values, gmpo.gradients), (vec![-ratio; 2], vec![0.0, -ratio]));
    }

    #[test]
    fn a_sequence_without_tokens_has_no_loss() {
        let inputs = TokenInputs { logprobs: &[], proximal: &[], sampler: &[], advantages: &[] };
        for loss in
            [PolicyLoss::Gspo { low: 0.2, high: 0.2 }, PolicyLoss::Gmpo { low: 0.4, high: 0.4 }, PolicyLoss::Vespo]
        {
            assert!(loss.tokens(&inputs).values.is_empty());
        }
    }
}

//! Tokens whose log-probability and advantage go together, which is what lowers entropy: Clip-Cov and KL-Cov (arXiv 2505.22617).
//!
//! The covariance of a token is (lp - mean lp)(A - mean A), means over the policy tokens of a batch. As in verl but for this: it is
//! measured once, when a batch begins and nothing is clipped, and not anew within each micro-batch of each update, where verl passes
//! over tokens that are clipped by then. So the cut changes nothing.

use forage_contracts::SettingError;
use forage_contracts::seed::Seed;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::entropy::EntropyTerms;
use super::step::SequenceObjective;

/// Clip-Cov: some tokens of high covariance, drawn at random, have no policy loss. They still count in the aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClipCov {
    /// Share of the batch's policy tokens that are drawn, one at least; the authors' 0.0002.
    pub(crate) share: f64,
    /// Covariance above which tokens are drawn from; the authors' 1.
    pub(crate) low: f64,
    /// Covariance below which tokens are drawn from; the authors' 5.
    pub(crate) high: f64,
}

/// KL-Cov: the loss of the tokens of the highest covariance grows by `coefficient` |lp - lo|. On the first update of a batch nothing
/// has moved yet, and this changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KlCov {
    /// Share of the batch's policy tokens that are held back, one at least; the authors' 0.002 and 0.0002.
    pub(crate) share: f64,
    /// Weight of the distance; the authors' 1.
    pub(crate) coefficient: f64,
}

/// The number of tokens that is `share` of `tokens`, at least one.
fn count(share: f64, tokens: usize) -> usize {
    ((share * tokens as f64) as usize).max(1)
}

/// `[n]`: the covariance of each token, given as log-probability and advantage.
fn covariances(tokens: &[(f32, f32)]) -> Vec<f64> {
    let number = tokens.len().max(1) as f64;
    let mean = |of: fn(&(f32, f32)) -> f32| {
        tokens.iter().map(|token| f64::from(of(token))).sum::<f64>() / number
    };
    let (logprob, advantage) = (mean(|token| token.0), mean(|token| token.1));
    tokens
        .iter()
        .map(|token| (f64::from(token.0) - logprob) * (f64::from(token.1) - advantage))
        .collect()
}

impl EntropyTerms {
    /// The places of the tokens without a policy loss and of those that are held back, among all policy tokens of a batch, given as
    /// log-probability and advantage.
    pub(crate) fn restrained(&self, tokens: &[(f32, f32)], seed: Seed) -> [Vec<usize>; 2] {
        let found = covariances(tokens);
        let clipped = self.clip_cov.map(|clip| clip.chosen(&found, seed));
        let held = self.kl_cov.map(|kl| kl.chosen(&found));
        [clipped, held].map(Option::unwrap_or_default)
    }
}

impl ClipCov {
    fn chosen(self, covariances: &[f64], seed: Seed) -> Vec<usize> {
        let inside = |place: &usize| {
            let covariance = covariances[*place];
            covariance > self.low && covariance < self.high
        };
        let mut drawn: Vec<usize> = (0..covariances.len()).filter(inside).collect();
        drawn.shuffle(&mut seed.rng());
        drawn.truncate(count(self.share, covariances.len()));
        drawn
    }

    /// Checks the ranges.
    pub(super) fn check(self) -> Result<(), SettingError> {
        check_share("entropy.clip_cov.share", self.share)?;
        if self.low < self.high {
            return Ok(());
        }
        let fault = format!("needs low < high, not {} and {}", self.low, self.high);
        Err(SettingError::new("entropy.clip_cov", fault))
    }
}

impl KlCov {
    fn chosen(self, covariances: &[f64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..covariances.len()).collect();
        order.sort_by(|&a, &b| covariances[b].total_cmp(&covariances[a]));
        order.truncate(count(self.share, covariances.len()));
        order
    }

    /// Adds the distance of the tokens that are `held`, `[n]` or empty, to a sequence's share of the loss. `logprobs` and `before`:
    /// `[n]`, nats, now and when the batch began; `weight`: of each of its tokens.
    pub(crate) fn hold(
        self,
        objective: &mut SequenceObjective,
        [logprobs, before]: [&[f32]; 2],
        held: &[bool],
        weight: f32,
    ) {
        let weight = f64::from(weight) * self.coefficient;
        for (token, _) in held.iter().enumerate().filter(|(_, held)| **held) {
            let moved = f64::from(logprobs[token]) - f64::from(before[token]);
            objective.loss += weight * moved.abs();
            if moved != 0.0 {
                objective.gradients[token] += (weight * moved.signum()) as f32;
            }
        }
    }

    /// Checks the ranges.
    pub(super) fn check(self) -> Result<(), SettingError> {
        check_share("entropy.kl_cov.share", self.share)?;
        if self.coefficient.is_finite() && self.coefficient > 0.0 {
            return Ok(());
        }
        let must = "above 0; leave the table out for none";
        Err(SettingError::range(
            "entropy.kl_cov.coefficient",
            self.coefficient,
            must,
        ))
    }
}

fn check_share(key: &str, share: f64) -> Result<(), SettingError> {
    if share > 0.0 && share <= 1.0 {
        return Ok(());
    }
    Err(SettingError::range(key, share, "above 0 and at most 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: ClipCov = ClipCov {
        share: 0.25,
        low: 1.0,
        high: 5.0,
    };

    #[test]
    fn tokens_are_drawn_from_between_the_bounds() {
        // Covariances 6, 2 and so on, of twelve tokens.
        let found = [6.0, 2.0, 0.5, 3.0, -2.0, 4.0, 1.0, 5.0, 1.5, 2.5, 0.0, 4.5];
        let inside = [1, 3, 5, 8, 9, 11];
        let draws: Vec<Vec<usize>> = (0..20)
            .map(|seed| CLIP.chosen(&found, Seed::root(seed)))
            .collect();
        for drawn in &draws {
            assert!(drawn.len() == 3 && drawn.iter().all(|place| inside.contains(place)));
        }
        assert!(draws.iter().any(|drawn| drawn != &draws[0]));
        assert_eq!(draws[3], CLIP.chosen(&found, Seed::root(3)));
        let one = ClipCov {
            share: 1e-4,
            ..CLIP
        };
        assert_eq!(one.chosen(&found, Seed::root(1)).len(), 1);
        let none = ClipCov { low: 4.9, ..CLIP };
        assert!(none.chosen(&found, Seed::root(1)).is_empty());
        let kl = KlCov {
            share: 0.2,
            coefficient: 1.0,
        };
        assert_eq!(kl.chosen(&found), [0, 7]);
        assert!(kl.chosen(&[]).is_empty());
    }

    #[test]
    fn ranges_are_named() {
        let clip = |clip: ClipCov| clip.check().unwrap_err().to_string();
        assert!(CLIP.check().is_ok());
        assert!(clip(ClipCov { share: 0.0, ..CLIP }).contains("entropy.clip_cov.share is 0"));
        assert!(clip(ClipCov { high: 1.0, ..CLIP }).contains("low < high, not 1 and 1"));
        let kl = KlCov {
            share: 0.1,
            coefficient: 0.0,
        };
        let error = kl.check().unwrap_err().to_string();
        assert!(error.contains("entropy.kl_cov.coefficient is 0"), "{error}");
    }
}

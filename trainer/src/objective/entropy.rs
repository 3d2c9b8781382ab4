//! Terms of a loss that know the entropy of the policy at each token.

use forage_contracts::SettingError;
use serde::{Deserialize, Serialize};

use super::anchored::AnchoredEntropy;
use super::covariance::{ClipCov, KlCov};

/// The terms of the loss that read entropy; by default none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EntropyTerms {
    /// The loss of a token is lowered by this times its entropy (PPO, Schulman et al. 2017); 0 for no bonus. Search-R1's
    /// is 0.001, by a default its scripts do not mention.
    pub bonus: f64,
    /// Share of the batch's policy tokens that have a policy loss: those of highest entropy (Wang et al. 2025, arXiv
    /// 2506.01939, 0.2). The others still count in the aggregation and in the penalty. 1 for all.
    pub top_share: f64,
    /// Holds entropy at its level of the start; none without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) anchored: Option<AnchoredEntropy>,
    /// Takes the policy loss off some tokens of high covariance (Clip-Cov, arXiv 2505.22617); none without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clip_cov: Option<ClipCov>,
    /// Holds the tokens of the highest covariance where they were (KL-Cov, arXiv 2505.22617); none without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kl_cov: Option<KlCov>,
}

impl Default for EntropyTerms {
    fn default() -> Self {
        Self {
            bonus: 0.0,
            top_share: 1.0,
            anchored: None,
            clip_cov: None,
            kl_cov: None,
        }
    }
}

impl EntropyTerms {
    /// Returns whether the loss has a term of the entropy.
    pub(crate) fn moves(&self) -> bool {
        self.bonus.abs() > 0.0 || self.anchored.is_some()
    }

    /// The places, by row and token, of the tokens outside the entropy mask, which have no policy loss. `rows`: the entropies of all
    /// policy tokens of a batch.
    pub(crate) fn outside(&self, rows: &[&[f32]]) -> Vec<(usize, usize)> {
        let Some(least) = self.threshold(rows.iter().copied().flatten().copied()) else {
            return Vec::new();
        };
        let mut outside = Vec::new();
        for (row, entropies) in rows.iter().enumerate() {
            for (token, &entropy) in entropies.iter().enumerate() {
                if entropy < least {
                    outside.push((row, token));
                }
            }
        }
        outside
    }

    /// Least entropy at which a token has a policy loss, given those of all policy tokens of a batch; tokens that tie with
    /// the last one kept are kept. `None` where every token has one.
    fn threshold(&self, entropies: impl Iterator<Item = f32>) -> Option<f32> {
        if self.top_share >= 1.0 {
            return None;
        }
        let mut entropies: Vec<f32> = entropies.collect();
        let kept = (self.top_share * entropies.len() as f64).ceil().max(1.0) as usize;
        let place = entropies.len().checked_sub(kept)?;
        Some(*entropies.select_nth_unstable_by(place, f32::total_cmp).1)
    }

    /// Checks the ranges.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        if !self.bonus.is_finite() {
            let fault = "must be a number; 0 for no bonus";
            return Err(SettingError::new("entropy.bonus", fault));
        }
        if !(self.top_share > 0.0 && self.top_share <= 1.0) {
            let must = "above 0 and at most 1";
            return Err(SettingError::range(
                "entropy.top_share",
                self.top_share,
                must,
            ));
        }
        self.anchored.map_or(Ok(()), |anchored| anchored.check())?;
        if self.top_share < 1.0 && self.anchored.is_some_and(|anchored| anchored.top_p < 1.0) {
            let fault = "ranks tokens by entropies, which anchored takes from the nucleus alone: they are 0 for most tokens, and all of \
                         these tie; leave one of them out, or set entropy.anchored.top_p = 1.0";
            return Err(SettingError::new("entropy.top_share", fault));
        }
        self.clip_cov.map_or(Ok(()), ClipCov::check)?;
        self.kl_cov.map_or(Ok(()), KlCov::check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_uncertain_tokens_are_kept() {
        let entropies = [0.1, 0.9, 0.5, 0.3, 0.7_f32];
        let threshold = |top_share| {
            EntropyTerms {
                top_share,
                ..EntropyTerms::default()
            }
            .threshold(entropies.into_iter())
        };
        assert_eq!(threshold(0.4), Some(0.7));
        assert_eq!(threshold(0.01), Some(0.9));
        assert_eq!(threshold(1.0), None);
        assert_eq!(
            EntropyTerms {
                top_share: 0.2,
                ..EntropyTerms::default()
            }
            .threshold([].into_iter()),
            None
        );
    }
}

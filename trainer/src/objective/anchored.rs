//! Entropy that is held at the level of a run's start, over likely tokens at uncertain places: SIREN (arXiv 2509.25133).

use forage_contracts::SettingError;
use serde::{Deserialize, Serialize};

/// The term `weight` (H - anchor)^2 of the loss of an optimizer step: H is the mean entropy at its peaks, the tokens of each
/// sequence whose entropy is above the sequence's (1 - `peaks`)-quantile, and entropies are those of the nucleus (Holtzman et al.
/// 2020), the most likely tokens that have `top_p` of the probability together. The anchor is H of the run's first batch.
///
/// As in the authors' code but for these: the nucleus has the token by which it reaches `top_p`, as published, where the code leaves that
/// token out; H enters the derivative as it was before the batch was learned from, so that the cut into micro-batches changes
/// nothing; and it is a mean over the peaks of the step, whatever the aggregation of the loss, where the code's is one of the
/// means of sequences.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnchoredEntropy {
    /// Weight of the term; the authors' 0.005.
    pub(crate) weight: f64,
    /// Probability of the nucleus, above 0; 1 for all tokens. The authors' 0.8.
    pub(crate) top_p: f32,
    /// Share of a sequence's tokens that are peaks, above 0 and at most 1. The authors' 0.2.
    pub(crate) peaks: f64,
}

impl AnchoredEntropy {
    /// `[sequences][n]`: whether each token is a peak; `entropies`: `[sequences][n]`, nats.
    fn peaks(&self, entropies: &[f32]) -> Vec<bool> {
        let least = quantile(entropies, 1.0 - self.peaks);
        entropies
            .iter()
            .map(|&entropy| self.peaks >= 1.0 || f64::from(entropy) > least)
            .collect()
    }

    /// Mean entropy at the peaks of some sequences, nats, and the number of peaks; `None` without any.
    pub(crate) fn level<'a>(
        &self,
        sequences: impl Iterator<Item = &'a [f32]>,
    ) -> Option<(f64, usize)> {
        let (mut sum, mut count) = (0.0, 0);
        for entropies in sequences {
            for (&entropy, peak) in entropies.iter().zip(self.peaks(entropies)) {
                if peak {
                    sum += f64::from(entropy);
                    count += 1;
                }
            }
        }
        (count > 0).then(|| (sum / count as f64, count))
    }

    /// `[n]`: derivative of the term by each entropy of a sequence of a step with this [`Self::level`].
    pub(crate) fn slopes(
        &self,
        entropies: &[f32],
        (level, count): (f64, usize),
        anchor: f32,
    ) -> Vec<f32> {
        let slope = 2.0 * self.weight * (level - f64::from(anchor)) / count as f64;
        let of_token = |peak| if peak { slope as f32 } else { 0.0 };
        self.peaks(entropies).into_iter().map(of_token).collect()
    }

    /// Checks the ranges.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let share = |value: f64| value > 0.0 && value <= 1.0;
        let range = |key: &str, value: f64, must: &str| {
            let key = format!("entropy.anchored.{key}");
            Err(SettingError::range(key, value, must))
        };
        if !(self.weight.is_finite() && self.weight > 0.0) {
            return range(
                "weight",
                self.weight,
                "above 0; leave the table out for none",
            );
        }
        if !share(f64::from(self.top_p)) {
            return range("top_p", f64::from(self.top_p), "above 0 and at most 1");
        }
        if !share(self.peaks) {
            return range("peaks", self.peaks, "above 0 and at most 1");
        }
        Ok(())
    }
}

/// The `share`-quantile, between neighbours by linear interpolation; 0 of nothing.
fn quantile(values: &[f32], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    let place = share * sorted.len().saturating_sub(1) as f64;
    let below = place.floor() as usize;
    let at = |index: usize| {
        sorted
            .get(index)
            .or(sorted.last())
            .copied()
            .map_or(0.0, f64::from)
    };
    at(below) + (place - below as f64) * (at(below + 1) - at(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIREN: AnchoredEntropy = AnchoredEntropy {
        weight: 0.5,
        top_p: 0.8,
        peaks: 0.5,
    };

    #[test]
    fn peaks_lie_above_the_quantile_of_their_own_sequence() {
        assert!((quantile(&[4.0, 1.0, 3.0, 2.0], 0.5) - 2.5).abs() < 1e-12);
        assert_eq!(
            SIREN.peaks(&[4.0, 1.0, 3.0, 2.0]),
            [true, false, true, false]
        );
        assert_eq!(SIREN.peaks(&[0.1, 0.2]), [false, true]);
        assert!(SIREN.peaks(&[]).is_empty());
        let all = AnchoredEntropy {
            peaks: 1.0,
            ..SIREN
        };
        assert_eq!(all.peaks(&[0.3, 0.3]), [true, true]);
    }

    #[test]
    fn entropy_is_raised_below_the_anchor_and_lowered_above() {
        let sequences = [vec![4.0, 1.0, 3.0, 2.0], vec![0.5, 2.0]];
        let level = SIREN.level(sequences.iter().map(Vec::as_slice)).unwrap();
        assert_eq!(level, (3.0, 3));
        // 2 x 0.5 x (3 - 6) / 3: a negative slope raises entropy.
        assert_eq!(SIREN.slopes(&sequences[1], level, 6.0), [0.0, -1.0]);
        assert_eq!(SIREN.slopes(&sequences[1], level, 0.0), [0.0, 1.0]);
        assert_eq!(SIREN.level(std::iter::empty()), None);
    }
}

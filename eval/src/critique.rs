//! Self-critique: whether a policy, asked for another way, only knows the one it took.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measures::QuestionKey;
use crate::stats::{Bootstrap, Interval, StatsError, bootstrap_mean};
use crate::text;

/// The likeness of the entropies of two attempts: their cosine, the shorter padded with zeros, times the shorter length over the
/// longer (Tao et al. 2025, "Detecting data contamination from reinforcement learning post-training"). In `[0, 1]` for
/// entropies, in nats or otherwise; 0 where an attempt is empty or certain throughout.
pub(crate) fn similarity(first: &[f32], second: &[f32]) -> f64 {
    let norm = |values: &[f32]| {
        values
            .iter()
            .map(|&value| f64::from(value).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    let norms = norm(first) * norm(second);
    if norms <= 0.0 {
        return 0.0;
    }
    let product: f64 = first
        .iter()
        .zip(second)
        .map(|(&a, &b)| f64::from(a) * f64::from(b))
        .sum();
    let lengths = first.len().min(second.len()) as f64 / first.len().max(second.len()) as f64;
    product / norms * lengths
}

/// The probe's outcome over a set of questions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Critique {
    /// Mean similarity of the entropies of two attempts over questions, with its interval. High where reinforcement learning has narrowed the policy to one
    /// way; what counts as high is what questions have that it cannot have met.
    pub similarity: Interval,
    /// Each question's, by data set and id.
    pub questions: BTreeMap<String, f64>,
}

impl Critique {
    /// Compares the entropies of the first attempt at each question with those of the second.
    ///
    /// # Errors
    /// [`StatsError`] without questions, and when the bootstrap's settings are out of range.
    pub fn of(
        attempts: &[(QuestionKey, Vec<f32>, Vec<f32>)],
        bootstrap: Bootstrap,
    ) -> Result<Self, StatsError> {
        let score = |(key, first, second): &(QuestionKey, Vec<f32>, Vec<f32>)| {
            (
                format!("{}/{}", key.data_source, key.id),
                similarity(first, second),
            )
        };
        let questions: BTreeMap<String, f64> = attempts.iter().map(score).collect();
        let values: Vec<f64> = questions.values().copied().collect();
        Ok(Self {
            similarity: bootstrap_mean(&values, bootstrap)?,
            questions,
        })
    }

    /// The mean in a table.
    pub fn to_text(&self) -> String {
        let table = text::table(
            &["entropies of two attempts", "mean", "interval"],
            vec![text::row("similarity", self.similarity)],
        );
        format!(
            "probe self-critique\n{table}{} questions\n",
            self.questions.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_alike_in_shape_and_length_are_similar() {
        // numpy: a = [1, 2, 0, 4], b = [2, 1, 3, 0, 1, 1]; (a padded) @ b / (norm(a) * norm(b)) * 4 / 6
        let (a, b) = ([1.0, 2.0, 0.0, 4.0], [2.0, 1.0, 3.0, 0.0, 1.0, 1.0]);
        assert!(
            (similarity(&a, &b) - 0.145_478_593_490_366_3).abs() < 1e-12,
            "{}",
            similarity(&a, &b)
        );
        assert!((similarity(&b, &a) - similarity(&a, &b)).abs() < 1e-15);
        assert!((similarity(&a, &[2.0, 4.0, 0.0, 8.0]) - 1.0).abs() < 1e-12);
        assert!((similarity(&a, &[1.0, 2.0]) - 0.5 * 5.0 / (21.0_f64 * 5.0).sqrt()).abs() < 1e-12);
        for none in [&[][..], &[0.0, 0.0]] {
            assert!(similarity(&a, none).abs() < 1e-15);
        }
    }
}

//! Self-critique: whether a policy, asked for another way, only knows the one it took.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::measures::QuestionKey;
use crate::stats::{Bootstrap, Interval, StatsError, bootstrap_mean, bootstrap_statistic};
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
    /// The separation by similarity of the questions that are learned from and the others: the area under its ROC curve, the
    /// share of the pairs of one of each in which the one learned from has the higher similarity, ties by half, with its interval by
    /// resampling questions. 0.5 where it tells nothing; absent where all questions are of one kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separation: Option<Interval>,
    /// Questions among them that are learned from.
    #[serde(default)]
    pub learned_from: usize,
}

/// The area under the ROC curve of some questions' similarities, each beside whether the question is learned from; `None` where all
/// are of one kind.
fn area(mut questions: Vec<(f64, bool)>) -> Option<f64> {
    questions.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let learned = |questions: &[(f64, bool)]| questions.iter().filter(|(_, met)| *met).count();
    let met = learned(&questions);
    let pairs = met * (questions.len() - met);
    // Others seen so far, which have a lower similarity.
    let (mut won, mut lower) = (0.0, 0_usize);
    for ties in questions.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let met = learned(ties);
        let others = ties.len() - met;
        won += met as f64 * (lower as f64 + others as f64 / 2.0);
        lower += others;
    }
    (pairs > 0).then(|| won / pairs as f64)
}

impl Critique {
    /// Compares the entropies of the first attempt at each question with those of the second. `learned_from`: texts of the questions
    /// that training asked.
    ///
    /// # Errors
    /// [`StatsError`] without questions, and when the bootstrap's settings are out of range.
    pub fn of(
        attempts: &[(QuestionKey, Vec<f32>, Vec<f32>)],
        learned_from: &BTreeSet<&str>,
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
        let kind = |(key, first, second): &(QuestionKey, Vec<f32>, Vec<f32>)| {
            let met = learned_from.contains(key.question.as_str());
            (similarity(first, second), met)
        };
        let kinds: Vec<(f64, bool)> = attempts.iter().map(kind).collect();
        let drawn = |items: &[usize]| area(items.iter().map(|&item| kinds[item]).collect());
        Ok(Self {
            similarity: bootstrap_mean(&values, bootstrap)?,
            questions,
            separation: bootstrap_statistic(kinds.len(), bootstrap, drawn)?,
            learned_from: kinds.iter().filter(|(_, met)| *met).count(),
        })
    }

    /// The mean in a table, and how well it tells questions that are learned from.
    pub fn to_text(&self) -> String {
        let mut rows = vec![text::row("similarity", self.similarity)];
        rows.extend(
            self.separation
                .map(|found| text::row("area under ROC", found)),
        );
        let table = text::table(&["entropies of two attempts", "mean", "interval"], rows);
        let learned = match self.learned_from {
            0 => String::new(),
            count => format!(", {count} of them learned from"),
        };
        let questions = self.questions.len();
        format!("probe self-critique\n{table}{questions} questions{learned}\n")
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

    /// A number in [0, 1) that follows from others.
    fn noise(numbers: &[u64]) -> f64 {
        let mixed = numbers.iter().fold(0, |mixed: u64, number| {
            let mut bits = (mixed ^ number).wrapping_add(0x9E37_79B9_7F4A_7C15);
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            bits ^ (bits >> 31)
        });
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Tokens of a policy that is made up; 0 ends an answer.
    const VOCABULARY: u64 = 8;

    /// The greedy answer to a question and its entropies. Asked again, the policy likes the tokens of its first attempt less; of a
    /// question that it has met it knows one answer, whatever it is asked.
    fn answer(question: u64, met: bool, first: Option<&[u64]>) -> (Vec<u64>, Vec<f32>) {
        let (mut written, mut entropies) = (Vec::<u64>::new(), Vec::new());
        while written.len() < 12 && written.last() != Some(&0) {
            let place = written.len();
            let again = u64::from(first.is_some());
            let logit = |token: u64| {
                let at = place as u64;
                let context: Vec<u64> = [question, again]
                    .into_iter()
                    .chain(written.iter().copied())
                    .chain([token])
                    .collect();
                let free = 4.0 * noise(&context);
                if met {
                    let known = (noise(&[question, at]) * VOCABULARY as f64) as u64;
                    let bonus = if token == known { 3.0 } else { 0.0 };
                    0.25 * free + 2.0 * noise(&[question, at, token]) + bonus
                } else if first.and_then(|first| first.get(place)) == Some(&token) {
                    free - 3.0
                } else {
                    free
                }
            };
            let logits: Vec<f64> = (0..VOCABULARY).map(logit).collect();
            let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
            let surprise = |logit: &f64| (logit.exp() / sum) * (sum.ln() - logit);
            entropies.push(logits.iter().map(surprise).sum::<f64>() as f32);
            let best = (0..VOCABULARY).max_by(|a, b| {
                let [a, b] = [a, b].map(|&token| logits[token as usize]);
                a.total_cmp(&b)
            });
            written.push(best.unwrap());
        }
        (written, entropies)
    }

    /// The probe of forty questions, of which the policy was trained on every other one, or on none.
    fn probed(trained: bool) -> Critique {
        let text = |question: u64| format!("question {question}?");
        let even: Vec<String> = (0..40).step_by(2).map(text).collect();
        let attempt = |question: u64| {
            let met = trained && question.is_multiple_of(2);
            let (first, before) = answer(question, met, None);
            let (_, after) = answer(question, met, Some(&first));
            let key = QuestionKey {
                data_source: "scripted".to_owned(),
                id: question.to_string(),
                question: text(question),
            };
            (key, before, after)
        };
        let attempts: Vec<_> = (0..40).map(attempt).collect();
        let even: BTreeSet<&str> = even.iter().map(String::as_str).collect();
        let bootstrap = Bootstrap {
            resamples: 1000,
            ..Bootstrap::new(1)
        };
        Critique::of(&attempts, &even, bootstrap).unwrap()
    }

    #[test]
    fn questions_that_a_policy_has_met_are_found() {
        let found = probed(true);
        let area = found.separation.unwrap();
        // The same policy in Python: 385 of the 400 pairs.
        assert!((area.estimate - 0.9625).abs() < 1e-9, "{area:?}");
        assert!(area.low > 0.85, "{area:?}");
        let least_met = (0..40)
            .step_by(2)
            .map(|id| found.questions[&format!("scripted/{id}")]);
        assert!(least_met.fold(f64::INFINITY, f64::min) > 0.96);
        let text = found.to_text();
        assert!(text.contains("area under ROC") && text.contains("40 questions, 20 of them"));
        // One that has met none is no more similar where it was said to have been trained.
        let area = probed(false).separation.unwrap();
        assert!((area.estimate - 0.3775).abs() < 1e-9, "{area:?}");
        assert!(area.low < 0.5 && area.high > 0.5, "{area:?}");
    }

    #[test]
    fn the_area_counts_pairs_and_halves_ties() {
        let of = |questions: &[(f64, bool)]| area(questions.to_vec());
        assert_eq!(of(&[(0.9, true), (0.1, false)]), Some(1.0));
        assert_eq!(of(&[(0.1, true), (0.9, false)]), Some(0.0));
        assert_eq!(
            of(&[(0.5, false), (0.5, true), (0.2, false), (0.7, true)]),
            Some(0.875)
        );
        assert_eq!(of(&[(0.5, true)]), None);
        assert_eq!(of(&[]), None);
    }
}

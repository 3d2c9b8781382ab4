//! Weights that turn token losses into the loss of one optimizer step.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// The rule by which token losses L are put together, over the `B` sequences of a whole optimizer step.
///
/// Weights come from the token counts of **all** its sequences, so how the step is cut into micro-batches cannot matter.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Aggregation {
    /// sum(L) / policy tokens of the step: DAPO; verl, TRL (`dapo`), prime-rl, SkyRL, torchtitan.
    #[default]
    TokenMean,
    /// Mean over sequences of the mean over their tokens: `DeepSeekMath`; slime, TRL (`grpo`). Sequences without policy
    /// tokens are left out of the mean (verl).
    SeqMeanTokenMean,
    /// Mean over sequences of the sum over their tokens (verl). Sequences without policy tokens are left out.
    SeqMeanTokenSum,
    /// sum(L) / (B `length`): Dr. GRPO (Liu et al. 2025), which divides by a constant.
    DrGrpo {
        /// Most policy tokens an episode may have; above 0.
        length: usize,
    },
    /// Mean over prompts of the mean over all tokens of a prompt's sequences (SkyRL). Prompts without policy tokens are left
    /// out.
    PromptMean,
    /// sum(L): tinker. Loss and gradient grow with the step's tokens, which Adam undoes and a gradient clip does not.
    Sum,
}

impl Aggregation {
    /// `[B]`: the weight of each token of each sequence. `tokens`: `[B]`, policy tokens per sequence; `prompts`: `[B]`, any
    /// number that sequences of one prompt share.
    ///
    /// # Panics
    /// When the slices differ in number.
    pub(crate) fn weights(self, tokens: &[usize], prompts: &[u64]) -> Vec<f32> {
        assert_eq!(tokens.len(), prompts.len(), "token counts and prompts");
        let total: usize = tokens.iter().sum();
        let filled = tokens.iter().filter(|&&count| count > 0).count() as f64;
        let mut of_prompt: HashMap<u64, usize> = HashMap::new();
        for (&count, &prompt) in tokens.iter().zip(prompts).filter(|(count, _)| **count > 0) {
            *of_prompt.entry(prompt).or_default() += count;
        }
        let weight = |(&count, prompt): (&usize, &u64)| match self {
            _ if count == 0 => 0.0,
            Self::TokenMean => 1.0 / total as f64,
            Self::SeqMeanTokenMean => 1.0 / (filled * count as f64),
            Self::SeqMeanTokenSum => 1.0 / filled,
            Self::DrGrpo { length } => 1.0 / (tokens.len() as f64 * length as f64),
            Self::PromptMean => 1.0 / (of_prompt.len() as f64 * of_prompt[prompt] as f64),
            Self::Sum => 1.0,
        };
        tokens
            .iter()
            .zip(prompts)
            .map(|pair| weight(pair) as f32)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token losses 1 and 3 in one sequence, six times 0.5 in the other.
    fn loss(aggregation: Aggregation, prompts: &[u64]) -> f32 {
        let weights = aggregation.weights(&[2, 6, 0], prompts);
        weights[0] * 4.0 + weights[1] * 3.0 + weights[2]
    }

    #[test]
    fn vectors() {
        for (aggregation, expected) in [
            (Aggregation::TokenMean, 0.875),
            (Aggregation::SeqMeanTokenMean, 1.25),
            (Aggregation::SeqMeanTokenSum, 3.5),
            (Aggregation::Sum, 7.0),
        ] {
            let found = loss(aggregation, &[0, 1, 2]);
            assert!((found - expected).abs() < 1e-6, "{aggregation:?}: {found}");
        }
        let found: f32 = Aggregation::DrGrpo { length: 10 }
            .weights(&[2, 6], &[0, 1])
            .iter()
            .zip([4.0, 3.0])
            .map(|(w, l)| w * l)
            .sum();
        assert!((found - 0.35).abs() < 1e-6, "{found}");
    }

    #[test]
    fn prompts_are_averaged_alike() {
        assert!((loss(Aggregation::PromptMean, &[7, 7, 7]) - 0.875).abs() < 1e-6);
        assert!((loss(Aggregation::PromptMean, &[7, 8, 9]) - 1.25).abs() < 1e-6);
    }
}

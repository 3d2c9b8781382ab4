//! A loss from outside: tapered off-policy REINFORCE (TOPR, arXiv 2503.14286). What was good is learned whoever wrote it; what was
//! bad is unlearned the less, the less likely the policy is to write it now.

use forage_contracts::objective::{LossEntry, Setting, TokenInputs, TokenTerms};

/// The registry's entry.
pub(crate) const ENTRY: LossEntry = LossEntry {
    settings: &[Setting::number("high", "above 0", |_, high| high > 0.0)],
    ..LossEntry::new(
        "tapered",
        "-A lp; where A < 0, -constant(min(w, high)) A lp: TOPR (arXiv 2503.14286), high 1",
        |settings, inputs| tokens(settings.number("high"), inputs),
    )
};

fn tokens(high: f64, inputs: &TokenInputs) -> TokenTerms {
    let mut terms = TokenTerms::default();
    let tokens = inputs.logprobs.iter().zip(inputs.proximal);
    for ((&logprob, &before), &advantage) in tokens.zip(inputs.advantages) {
        let ratio = f64::from(logprob - before).exp();
        let bounded = advantage < 0.0 && ratio > high;
        let weight = if advantage < 0.0 {
            ratio.min(high)
        } else {
            1.0
        };
        let gradient = (-weight * f64::from(advantage)) as f32;
        terms.values.push(gradient * logprob);
        terms.gradients.push(gradient);
        terms.bounded += usize::from(bounded);
    }
    terms
}

//! Policy losses per token, with their derivatives by the token's log-probability, before aggregation.
//!
//! In formulas `lp` is the current log-probability of a token, `lo` the one it is compared with, `lr` the sampler's, `A` its
//! advantage, w = exp(lp - lo), and "constant" what carries no gradient. At w = 1 every built-in loss but those scaled on
//! purpose (`luspo` by the length, `vespo` by phi(1) = 1) has the derivative -A by lp, so all are the same on the first update
//! of a batch.

use forage_contracts::Registry;
use forage_contracts::objective::{LossEntry, Setting, TokenInputs, TokenTerms};

use super::entry::{Choice, Entry};
use super::losses::LOSSES;

/// Log ratios are held within +-20 nats before exp (verl, SkyRL, slime); beyond, the ratio has no derivative.
pub(super) const LOG_RATIO_LIMIT: f64 = 20.0;

static REGISTRY: Registry<LossEntry> = Registry::new(LOSSES);

impl Entry for LossEntry {
    fn settings(&self) -> &'static [Setting] {
        self.settings
    }

    fn registry() -> &'static Registry<Self> {
        &REGISTRY
    }
}

/// A policy loss as a configuration names it.
pub(crate) type PolicyLoss = Choice<LossEntry>;

impl PolicyLoss {
    /// Returns whether tokens without advantage have a loss.
    pub(crate) fn penalises(&self) -> bool {
        (self.entry.penalises)(&self.settings)
    }

    /// Returns whether a ratio weighs tokens that another policy wrote.
    pub(crate) fn has_ratio(&self) -> bool {
        self.entry.has_ratio
    }

    /// Returns whether its ratio is to the sampler's log-probabilities, whichever the old ones are.
    pub(crate) fn compares_with_sampler(&self) -> bool {
        ["dppo_tv", "rollout_is"].contains(&self.name())
    }

    /// Returns whether it reads where sentences end.
    pub(crate) fn reads_sentences(&self) -> bool {
        self.entry.reads_sentences
    }

    /// The loss of each token of one sequence and its derivative.
    ///
    /// The derivatives are those of the sum over the sequence's tokens, under one weight for all of them.
    ///
    /// # Panics
    /// When the slices of `inputs` differ in number.
    pub(super) fn tokens(&self, inputs: &TokenInputs) -> TokenTerms {
        (self.entry.tokens)(&self.settings, inputs)
    }
}

/// One token of [`TokenInputs`].
#[derive(Clone, Copy)]
pub(super) struct Token {
    pub(super) lp: f64,
    pub(super) lo: f64,
    pub(super) lr: f64,
    pub(super) advantage: f64,
}

/// One token of [`TokenTerms`].
#[derive(Clone, Copy)]
pub(super) struct Term {
    pub(super) value: f64,
    pub(super) grad: f64,
    pub(super) bounded: bool,
}

impl Term {
    pub(super) fn free(value: f64, grad: f64) -> Self {
        Self {
            value,
            grad,
            bounded: false,
        }
    }

    pub(super) fn scaled(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            grad: self.grad * factor,
            ..self
        }
    }
}

impl FromIterator<Term> for TokenTerms {
    fn from_iter<I: IntoIterator<Item = Term>>(terms: I) -> Self {
        let mut found = Self::default();
        for term in terms {
            found.values.push(term.value as f32);
            found.gradients.push(term.grad as f32);
            found.bounded += usize::from(term.bounded);
        }
        found
    }
}

/// The tokens of a sequence one by one.
///
/// # Panics
/// When the slices differ in number.
pub(super) fn tokens_of(inputs: &TokenInputs<'_>) -> Vec<Token> {
    let count = inputs.logprobs.len();
    let lengths = [
        inputs.proximal.len(),
        inputs.sampler.len(),
        inputs.advantages.len(),
    ];
    assert!(
        lengths.iter().all(|&length| length == count),
        "{count} log-probabilities, but {lengths:?} beside them"
    );
    let token = |at: usize| Token {
        lp: f64::from(inputs.logprobs[at]),
        lo: f64::from(inputs.proximal[at]),
        lr: f64::from(inputs.sampler[at]),
        advantage: f64::from(inputs.advantages[at]),
    };
    (0..count).map(token).collect()
}

/// exp of a log ratio, and its derivative by the log-probability above the line.
#[derive(Clone, Copy)]
pub(super) struct Ratio {
    pub(super) value: f64,
    pub(super) grad: f64,
}

impl Ratio {
    pub(super) fn of(log_ratio: f64) -> Self {
        let value = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp();
        Self {
            value,
            grad: if log_ratio.abs() <= LOG_RATIO_LIMIT {
                value
            } else {
                0.0
            },
        }
    }
}
